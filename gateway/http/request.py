"""A request as the endpoints see it: its head read once, its body on demand under a cap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.catalog.model import Principal
from gateway.errors import Refusal

TICKETED = "sluice.ticketed"
"""What `scope` has of a request that came with a ticket."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = b"application/json"


class ClientGone(Exception):
    """The connection was closed before the request was complete; no client waits for an answer."""


class Refused(Exception):
    """A refusal found while reading: carried, with headers of its own, to the one place that answers."""

    def __init__(self, refusal: Refusal, more: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal
        self.more = more


class Head:
    """The headers by lower-case name. A name sent twice is in `repeated` and keeps its first value.

    `client` is the address that the connection comes from, None over a Unix socket. `ticketed` is whose
    ticket the request came with, in place of a key.
    """

    __slots__ = ("client", "headers", "repeated", "ticketed")

    def __init__(self, scope: Scope) -> None:
        raw = scope["headers"]
        peer: tuple[str, int] | None = scope.get("client")
        self.client = peer[0] if peer else None
        self.ticketed: Principal | None = scope.get(TICKETED)
        self.headers: dict[bytes, bytes] = dict(raw)
        self.repeated: dict[bytes, list[bytes]] = {}
        if len(self.headers) != len(raw):
            self._find_repeated(raw)

    def _find_repeated(self, raw: list[tuple[bytes, bytes]]) -> None:
        values: dict[bytes, list[bytes]] = {}
        for name, value in raw:
            values.setdefault(name, []).append(value)
        self.repeated = {name: found for name, found in values.items() if len(found) > 1}
        self.headers.update((name, found[0]) for name, found in self.repeated.items())

    def get(self, name: bytes) -> bytes | None:
        return self.headers.get(name)

    def joined(self, name: bytes) -> bytes | None:
        """The value of a header that is a list; sent twice, it is one list (RFC 9110 section 5.3)."""
        return b", ".join(self.repeated[name]) if name in self.repeated else self.headers.get(name)

    def all(self, name: bytes) -> list[bytes]:
        if name in self.repeated:
            return self.repeated[name]
        value = self.headers.get(name)
        return [] if value is None else [value]


def check_json_body(head: Head, bytes_max: int, accepted: bytes = JSON) -> Refusal | None:
    """What the headers say of the body: 415, then 413. The body itself is not read for it."""
    content_type = head.get(b"content-type")
    if head.repeated and len(set(head.all(b"content-type"))) > 1:
        content_type = None
    if content_type != accepted and not _is_media_type(content_type, accepted):
        return Refusal(
            "unsupported_media_type",
            f"Send the body as Content-Type: {accepted.decode()} in UTF-8.",
            "Content-Type",
        )
    if head.get(b"content-encoding") is not None:
        return Refusal(
            "unsupported_media_type", "Send the body as it is, without Content-Encoding.", "Content-Encoding"
        )
    return too_large(bytes_max) if content_length(head) > bytes_max else None


def content_length(head: Head) -> int:
    """As it is declared, 0 where it is not. The parser has seen that it is digits, of less than 2^64: there
    may be any number of zeros in front."""
    return int((head.get(b"content-length") or b"").lstrip(b"0") or b"0")


def _is_media_type(value: bytes | None, accepted: bytes) -> bool:
    """The accepted type in any case, with no parameter but a charset of UTF-8."""
    if value is None:
        return False
    media, _, parameters = value.partition(b";")
    if media.strip().lower() != accepted:
        return False
    given = parameters.strip().lower().replace(b'"', b"")
    return given in (b"", b"charset=utf-8", b"charset=utf8")


def too_large(bytes_max: int) -> Refusal:
    return Refusal("too_large", f"The body is larger than {bytes_max} bytes.")


async def read_body(receive: Receive, bytes_max: int, timeout_s: float) -> bytes:
    """The whole body. Raises Refused once it is over `bytes_max` (413), or when the rest of it has not come
    `timeout_s` after its beginning (408), and ClientGone when it breaks off."""
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > bytes_max:
        raise Refused(too_large(bytes_max))
    if not message.get("more_body", False):
        return body
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_on(receive, [body], bytes_max)
    except TimeoutError:
        raise Refused(_too_slow(timeout_s)) from None


async def _read_on(receive: Receive, parts: list[bytes], bytes_max: int) -> bytes:
    size, more = sum(map(len, parts)), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > bytes_max:
            raise Refused(too_large(bytes_max))
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_slow(timeout_s: float) -> Refusal:
    return Refusal("bad_request", f"The body did not arrive within {timeout_s:g} s.", status=408)
