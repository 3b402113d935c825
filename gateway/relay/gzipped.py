"""A gzip stream (RFC 1952) whose parts are compressed once for all connections that are sent them. Pure.

A part is raw deflate (RFC 1951) that ends at a byte and refers to nothing before it, so it continues any
stream. What a stream ends with is the CRC and the size of all that it held. No sender counts these for each
connection: a run counts them over its own parts, and what a connection was sent of a run follows from where
it came in and where it left.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import NamedTuple

from isal import isal_zlib

HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Of a stream: deflate, no name, no time, compressed fast, on no system in particular."""
_FINAL = b"\x03\x00"
# Compressing more would keep all else on this thread waiting: so much takes 3 to 5 ms.
AT_ONCE_BYTES = 4 * 1024 * 1024


class Mark(NamedTuple):
    """The CRC-32 of some bytes, and how many there are."""

    crc: int
    size: int

    def over(self, plain: bytes) -> Mark:
        """With these behind them."""
        return Mark(isal_zlib.crc32(plain, self.crc), self.size + len(plain))


NOTHING = Mark(0, 0)


class Part(NamedTuple):
    """Of a run: what is sent, and all that the run held before it and with it."""

    sent: bytes
    before: Mark
    after: Mark


class Run:
    """Parts in the order in which they are made."""

    __slots__ = ("_mark",)

    def __init__(self) -> None:
        self._mark = NOTHING

    def part(self, plain: bytes) -> Part:
        before = self._mark
        self._mark = before.over(plain)
        sent = deflated(plain) if len(plain) <= AT_ONCE_BYTES else _stored(plain)
        return Part(sent, before, self._mark)


class Sent:
    """What one stream held so far. Of its parts nearly all are one run's, one after the other: for each of
    these, two values are compared."""

    __slots__ = ("_entered", "_left", "_mark")

    def __init__(self) -> None:
        self._mark = NOTHING  # up to where it came into the run
        self._entered = self._left = NOTHING

    def follow(self, part: Part) -> None:
        """It was sent a part."""
        if part.before != self._left:
            self._settle()
            self._entered = part.before
        self._left = part.after

    def for_one(self, plain: bytes) -> None:
        """It was sent these, deflated for it only."""
        self._settle()
        self._mark = self._mark.over(plain)

    def end(self) -> bytes:
        """What ends the stream."""
        self._settle()
        return _FINAL + struct.pack("<LL", self._mark.crc, self._mark.size & 0xFFFFFFFF)

    def _settle(self) -> None:
        self._mark = gone_on(self._mark, self._entered, self._left)
        self._entered = self._left = NOTHING


def deflated(plain: bytes) -> bytes:
    """Ends at a byte, refers to nothing before it and is not the last block."""
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
    return deflate.compress(plain) + deflate.flush(isal_zlib.Z_FULL_FLUSH)


def _stored(plain: bytes) -> bytes:
    """The same, but as it is."""
    deflate = zlib.compressobj(zlib.Z_NO_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(plain) + deflate.flush(zlib.Z_FULL_FLUSH)


# ---- CRCs ----


def gone_on(mark: Mark, before: Mark, after: Mark) -> Mark:
    """What becomes of a mark by the bytes that make `after` of `before`, unseen."""
    size = after.size - before.size
    return Mark(_shifted(mark.crc ^ before.crc, size) ^ after.crc, mark.size + size)


_BITS = 32
_POLYNOMIAL = 0xEDB88320


def _shifted(crc: int, size: int) -> int:
    """What a CRC, but for its complements, becomes by so many zero bytes: crc * x^(8 size) in GF(2) modulo
    the polynomial. The highest bit is that of x^0."""
    power = 3  # a byte is 2^3 bits
    while crc and size:
        if size & 1:
            crc = _product(crc, _by_x_to_two_to(power))
        size >>= 1
        power += 1
    return crc


@cache
def _by_x_to_two_to(power: int) -> tuple[int, ...]:
    """What each bit is multiplied with x^(2^power), from the lowest on."""
    if power:
        root = _by_x_to_two_to(power - 1)
        return tuple([_product(each, root) for each in root])
    return (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))


def _product(crc: int, products: tuple[int, ...]) -> int:
    product = 0
    for each in products:
        if crc & 1:
            product ^= each
        crc >>= 1
    return product
