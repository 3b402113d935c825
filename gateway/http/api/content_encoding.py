"""The content coding of the live feed: gzip for clients that accept it (RFC 9110 section 12.5.3), else none.

Owns: which it is, and what one connection is sent of it. What many are sent is compressed once for all of
them, what only one is sent for it only, beside the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.http.api.follow import LIKED_MAX, Headers, weighed
from gateway.relay.channel import Chunk
from gateway.relay.gzipped import HEAD, Sent, deflated

Messages = Chunk[bytes]
"""Each is what one event is sent as."""

# What is compressed for this connection only: each costs the loop 10 µs.
_CHUNKS_AT_ONCE = 8
# In less time than this takes, no thread begins.
_BESIDE_BYTES = 64 * 1024


def accepts_gzip(accept: bytes | None) -> bool:
    """Whether `Accept-Encoding` does, and likes no coding no better."""
    if not accept:
        return False
    likes = dict(map(weighed, accept.split(b",", LIKED_MAX)))
    gzip = likes.get(b"gzip", likes.get(b"x-gzip", likes.get(b"*", 0.0)))
    return gzip > 0 and gzip >= likes.get(b"identity", 0.0)


class Plain:
    """No coding."""

    headers: Headers = ((b"vary", b"authorization, Accept-Encoding"),)
    head = b""

    def one(self, chunk: Messages) -> bytes:
        """What the chunk is to be sent as. Once it was, `sent` is to be called."""
        return chunk.whole()

    def sent(self, chunk: Messages) -> None: ...

    async def several(self, chunks: Sequence[Messages]) -> bytes:
        """What will be sent next for these."""
        return b"".join([chunk.whole() for chunk in chunks])

    async def for_one(self, messages: bytes) -> bytes:
        """What will be sent next for messages to this connection only."""
        return messages

    def end(self) -> bytes:
        return b""


class Gzip(Plain):
    headers = (*Plain.headers, (b"content-encoding", b"gzip"))
    head = HEAD

    def __init__(self) -> None:
        self._sent = Sent()

    def one(self, chunk: Messages) -> bytes:
        return chunk.gzipped().sent

    def sent(self, chunk: Messages) -> None:
        self._sent.follow(chunk.gzipped())

    async def several(self, chunks: Sequence[Messages]) -> bytes:
        if len(chunks) > _CHUNKS_AT_ONCE:
            return await self.for_one(await super().several(chunks))
        for chunk in chunks:
            self.sent(chunk)
        return b"".join(map(self.one, chunks))

    async def for_one(self, messages: bytes) -> bytes:
        if not messages:
            return b""
        self._sent.for_one(messages)
        if len(messages) < _BESIDE_BYTES:
            return deflated(messages)
        return await asyncio.to_thread(deflated, messages)

    def end(self) -> bytes:
        return self._sent.end()
