"""The answers of one bulk request that wait to be sent.

Owns: in how little memory. A client may send all of its lines before it reads an answer, and is read on all
the while, so nothing here ever waits for it: beyond `_UNREAD_BYTES`, what waits is compressed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
from isal import isal_zlib

from gateway.admit.append import Fault
from gateway.events import Stream
from gateway.items import Condition

PIECE_BYTES: Final = 16 * 1024
"""Answers are sent in pieces of about this size."""
_UNREAD_BYTES: Final = 1024 * 1024
"""Answers that wait as they are for a client to read them: what a slow connection has under way."""
_UNTOLD_BYTES: Final = 512
"""About what a line takes whose answer must be looked up."""


class Missed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A 409. What its client missed may be 256 KiB, so it is read when it can be sent."""

    number: int
    stream: Stream
    expected: int
    length: int
    path: str | None = None


class ConditionMissed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A 409 of a condition of this tenant: what matches is read when it can be sent."""

    number: int
    tenant: bytes
    condition: Condition


class Doubted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A line that is refused, unless it repeats one that is committed."""

    number: int
    fault: Fault
    first_type: str | None = None


Told = bytes | Missed | ConditionMissed | Doubted
"""A line's answer, or what has to be looked up for it when its turn comes."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[Told]).decode


class ResponseBuffer:
    """In the order in which they are to be sent."""

    def __init__(self) -> None:
        self._pieces: deque[list[Told] | bytes] = deque()  # as bytes: compressed
        self._open: list[Told] = []
        self._open_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces or self._open)

    def add(self, told: Told) -> None:
        self._open.append(told)
        self._open_bytes += len(told) if isinstance(told, bytes) else _UNTOLD_BYTES
        if self._open_bytes >= PIECE_BYTES:
            waits = len(self._pieces) * PIECE_BYTES >= _UNREAD_BYTES
            self._pieces.append(isal_zlib.compress(_pack(self._open), 1) if waits else self._open)
            self._open, self._open_bytes = [], 0

    def take(self) -> list[Told]:
        """What is to be sent next. There is something."""
        if not self._pieces:
            piece, self._open, self._open_bytes = self._open, [], 0
            return piece
        first = self._pieces.popleft()
        return _unpack(isal_zlib.decompress(first)) if isinstance(first, bytes) else first


def as_line(number: int, status: int, body: bytes, *, replayed: bool) -> bytes:
    """The single answer's body with `line` and `status` in front."""
    again = b'"replayed":true,' if replayed else b""
    return b'{"line":%d,"status":%d,%b%b\n' % (number, status, again, body[1:])
