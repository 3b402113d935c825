"""JSON values as bytes whose order is that of the values. Pure.

Owns the order of lists: absent < null < objects and lists < false < true < numbers < texts; numbers by value,
exact; texts by code point. Equal values have equal bytes, different ones different bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from msgspec import Raw

from gateway.state.values import Node, encode, fields_of, number_of, plain, raw, short_decimal, spelled

BYTES_MAX: Final = 1024
"""Of a value that is longer, so many bytes and a digest: it is equal only to itself, and stands among those
that begin alike in the order of the digests. An index takes no more."""

ABSENT: Final = b"\x00"
NULL: Final = b"\x01"
_OTHER: Final = b"\x02"
FALSE: Final = b"\x03"
TRUE: Final = b"\x04"
NUMBER: Final = b"\x05"
TEXT: Final = b"\x06"

_DIGEST = 16
_EXPONENT_OFFSET = 1 << 63
_NEGATIVE, _ZERO, _POSITIVE = b"\x00", b"\x01", b"\x02"
_INVERTED = bytes(255 - n for n in range(256))


def of_text(text: str) -> bytes:
    return _bounded(TEXT + text.encode())


def of_number(number: Decimal) -> bytes:
    if not number:
        return NUMBER + _ZERO
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):  # Infinity: no Decimal holds it
        size, text = _EXPONENT_OFFSET - 1, b""
    else:
        text = "".join(map(str, digits)).rstrip("0").encode()
        size = len(digits) + exponent  # 0.d1d2… times ten to this power
    magnitude = (size + _EXPONENT_OFFSET).to_bytes(8, "big") + text
    if sign:  # a shorter one that begins alike is the greater
        return _bounded(NUMBER + _NEGATIVE + magnitude.translate(_INVERTED) + b"\xff")
    return _bounded(NUMBER + _POSITIVE + magnitude)


def _of_short(number: int, scale: int) -> bytes:
    """What `of_number` says of a number that is not negative, an integer and how many of its digits stand
    behind the point; in a third of the time."""
    if not number:
        return NUMBER + _ZERO
    text = b"%d" % number
    return NUMBER + _POSITIVE + (len(text) - scale + _EXPONENT_OFFSET).to_bytes(8, "big") + text.rstrip(b"0")


def of_number_text(text: str) -> bytes:
    """Of a number as JSON writes it."""
    return of_node(Raw(text.encode()))


def of_value(value: object) -> bytes:
    """Of a JSON value: as `msgspec` encodes it, numbers of any size as they are."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return of_number(Decimal(str(value)))
    return of_node(Raw(encode(value)))


def of_boolean(value: bool) -> bytes:
    return TRUE if value else FALSE


def of_node(node: Node | None) -> bytes:
    """Of what stands in a state; None is absent."""
    if node is None:
        return ABSENT
    short = short_decimal(node)
    if short is not None and short[0] >= 0:
        return _of_short(*short)
    number = number_of(node)
    if number is not None:
        return of_number(number)
    text = bytes(raw(node))
    match text[:1]:
        case b'"':
            value = plain(node)
            assert isinstance(value, str)
            return of_text(value)
        case b"t":
            return TRUE
        case b"f":
            return FALSE
        case b"n":
            return NULL
    return _OTHER + hashlib.sha256(spelled(plain(node)).encode()).digest()[:_DIGEST]


def _bounded(value: bytes) -> bytes:
    if len(value) <= BYTES_MAX:
        return value
    return value[:BYTES_MAX] + hashlib.sha256(value).digest()[:_DIGEST]


def bounds(value: bytes) -> tuple[bytes, bytes]:
    """Around all values of its kind: from the first one, up to before the second. Both booleans are one
    kind."""
    if value in (FALSE, TRUE):
        return FALSE, NUMBER
    return value[:1], bytes((value[0] + 1,))


def texts_from(prefix: str) -> tuple[bytes, bytes]:
    """Around all texts that begin so."""
    low = TEXT + prefix.encode()
    return low, _next(low)


def _next(low: bytes) -> bytes:
    """The first bytes behind all that begin so."""
    head = low.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,))


def at(fields: dict[str, Node], path: Iterable[str]) -> Node | None:
    """What stands at a path of names; None where nothing does."""
    node: Node | None = fields
    for name in path:
        inner = None if node is None else fields_of(node)
        node = None if inner is None else inner.get(name)
    return node


def of_integer(value: int) -> bytes:
    return of_number(Decimal(value))
