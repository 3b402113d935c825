"""Content identity: what a record says, what surrounds it, and how a record that comes again has changed.

Owns the three hashes and the grading. Must not know where a record came from. Equal content is not identity:
two records that say the same stay two, and which is which is told by their source ids (source_ids.py).
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn

import msgspec
import rfc8785

from gateway.appends import sha256_of
from gateway.names.encoding import encode

ALGORITHM = 1
"""Stored beside hashes: those of different algorithms are never compared."""

VOLATILE = "@"
"""Properties whose name starts so (a line number, an offset) say where a record stood, not what it is."""

_INTEGER_MAX = 2**53  # up to here a double holds every integer
_INTEGER_DIGITS_MAX = 400  # a double has no more
# White_Space of Unicode. `str.strip` by itself would take U+001C to U+001F too, which are none.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_BLANKS += "\u2028\u2029\u202f\u205f\u3000"


class Identity(msgspec.Struct, frozen=True, gc=False):
    """Three SHA-256, in hex. `record` is over both others: whether anything at all has changed."""

    content: str
    context: str

    @property
    def record(self) -> str:
        """`encode("sluice/record/1", content, context)`, for every webhook: written out."""
        content, context = self.content.encode(), self.context.encode()
        parts = (len(content), content, len(context), context)
        return sha256_of(b"15:sluice/record/1,%d:%b,%d:%b," % parts).hex()


class Grade(enum.StrEnum):
    """What became of a record since it was seen before."""

    UNCHANGED = "unchanged"
    MOVED = "moved"
    """It says the same somewhere else: its context has changed."""
    EDITED = "edited"
    """It says something else at the same place: its content has changed."""
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Graded:
    """`prior` is the index of the record that it was before, None where it is new."""

    grade: Grade
    prior: int | None


def content_of_text(text: str) -> str:
    """SHA-256 of the text without blanks at its ends; nothing else is folded: case, inner blanks, Unicode
    normalization all count."""
    return sha256(text.strip(_BLANKS).encode("utf-8", "surrogatepass")).hexdigest()


def content_of_json(text: bytes, *, strict: bool = False) -> str:
    """SHA-256 of the JSON in its canonical form (RFC 8785): blanks, order of keys and spelling of strings and
    numbers don't count; a number with a fraction or an exponent is the double nearest to it.

    That form can't hold every JSON. What it can't is hashed as sent, but for blanks at its ends: an integer
    or a magnitude that no double has, a key that stands twice, half a surrogate pair, what is no JSON. Total.
    `strict`: the caller knows that no key stands twice, which is not looked at again.
    """
    try:
        canonical = _quickly(text, strict) or rfc8785.dumps(_read(text))
    except (ValueError, OverflowError, RecursionError):
        return sha256(encode("sluice/content-as-sent/1", text.strip())).hexdigest()
    return sha256(canonical).hexdigest()


def read_once(text: bytes) -> tuple[object, bytes] | None:
    """The value of a JSON text and its shortest spelling with sorted keys, for who wants value and content; a
    key that stands twice is once in both. None where a number has a fraction or an exponent, which a value
    does not tell as the RFC spells it, and for what is no JSON."""
    try:
        value = _decode_integral(text)
        return value, _encode_sorted(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def content_of_read(text: bytes, spelled: bytes) -> str:
    """As `content_of_json`, strictly, of a string whose spelling is known from `read_once`."""
    canonical = _canonical(text, spelled)
    return content_of_json(text, strict=True) if canonical is None else sha256_of(canonical).hex()


def context_of(name: str, kind: str, properties: Mapping[str, str]) -> str:
    """SHA-256 over name, type and properties but the volatile ones. Their order does not count."""
    stable = sorted((key, value) for key, value in properties.items() if not key.startswith(VOLATILE))
    flat = (part for pair in stable for part in pair)
    return sha256(encode("sluice/context/1", name, kind, *flat)).hexdigest()


def context_of_values(name: str, kind: str, properties: Mapping[str, object]) -> str:
    """The same over properties of any JSON value: a string counts as it is, another value as its canonical
    JSON, which no string is taken for."""
    texts = {key: each if isinstance(each, str) else _as_property(each) for key, each in properties.items()}
    return context_of(name, kind, texts)


def _as_property(value: object) -> str:
    """Behind U+0000, which no string of strict JSON holds."""
    return "\0" + rfc8785.dumps(_plain(value)).decode()


def _plain(value: object) -> Any:
    """A decoded value as the canonical form takes it: a number that no double holds counts as its digits."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bool | str) or value is None:
        return value
    try:
        number = _integer(str(value)) if isinstance(value, int) else float(str(value))
    except (ValueError, OverflowError):
        return f"\0{value}"
    return number if math.isfinite(number) else f"\0{value}"


def grade(record: Identity, prior: Identity | None) -> Grade:
    """What became of the record that was `prior` when it was last seen under the same source id."""
    if prior is None:
        return Grade.NEW
    if record.content == prior.content:
        return Grade.UNCHANGED if record.context == prior.context else Grade.MOVED
    return Grade.EDITED if record.context == prior.context else Grade.NEW


def grade_all(records: Sequence[Identity], priors: Sequence[Identity]) -> tuple[Graded, ...]:
    """What became of `priors`, for records that have no source ids; a verdict for each record, in order.

    All that may be a prior of any goes into one call: each is claimed once, by a record that equals it in
    both hashes before one that shares its content, and that before one at its place; equals in their order.
    """
    found: dict[int, Graded] = {}
    free = dict(enumerate(priors))
    passes: tuple[tuple[Grade, Callable[[Identity], Hashable]], ...] = (
        (Grade.UNCHANGED, lambda each: (each.content, each.context)),
        (Grade.MOVED, lambda each: each.content),
        (Grade.EDITED, lambda each: each.context),
    )
    for verdict, trait in passes:
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for index, prior in free.items():
            waiting[trait(prior)].append(index)
        for index, record in enumerate(records):
            if index not in found and waiting[trait(record)]:
                claimed = waiting[trait(record)].popleft()
                del free[claimed]
                found[index] = Graded(verdict, claimed)
    return tuple(found.get(index, Graded(Grade.NEW, None)) for index in range(len(records)))


# An integer of fewer than 16 digits is a double's. By way of a table, since a search for a class is slow.
_LONG_NUMBER = b"0" * 16
_DIGITS_AS_ZERO = bytes(ord("0") if chr(n) in "0123456789" else ord(" ") for n in range(256))
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]")  # among other characters, UTF-16 sorts as code points do
# Behind a point they are a fraction's digits, which the double nearest to it takes care of.
_LONG_INTEGER = re.compile(rb"(?<![0-9.])[0-9]{16}")


def _double(digits: str) -> msgspec.Raw:
    """A number with a fraction or an exponent, as the RFC spells it. Python spells those of ordinary size
    alike, but for `.0`."""
    number = float(digits)
    if 1e-4 <= abs(number) < 1e16:
        return msgspec.Raw(repr(number).removesuffix(".0").encode())
    return msgspec.Raw(rfc8785.dumps(number))


def _refuse_double(digits: str) -> NoReturn:
    raise ValueError(f"{digits} is not an integer")


_decode = msgspec.json.Decoder(float_hook=_double).decode
_decode_integral = msgspec.json.Decoder(float_hook=_refuse_double).decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def _quickly(text: bytes, strict: bool) -> bytes | None:
    """The canonical form, by way of C: a fiftieth of the time. None where that could be another than the
    RFC's, which includes all that has none."""
    try:
        value = _decode(text)
        if not strict and _encode(value).count(b":") != text.count(b":"):
            return None  # a key that stands twice, or a colon that is spelled as an escape
        spelled: bytes = _encode_sorted(value)
    except (ValueError, RecursionError):
        return None
    return _canonical(text, spelled)


def _canonical(text: bytes, spelled: bytes) -> bytes | None:
    """What msgspec has spelled of a string, if that is the RFC's form."""
    if _LONG_NUMBER in text.translate(_DIGITS_AS_ZERO) and _LONG_INTEGER.search(text):
        return None
    return spelled if spelled.isascii() or not _FOUR_BYTES.search(spelled) else None


def _read(text: bytes) -> Any:
    """The JSON value. Raises ValueError, OverflowError or RecursionError where it has no canonical form."""
    return json.loads(
        text.decode("utf-8"),
        object_pairs_hook=_distinct,
        parse_int=_integer,
        parse_constant=_refuse,
    )


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _integer(digits: str) -> int | float:
    """An integer that a double can't hold (an id of 18 digits, say) must not become its neighbour."""
    if len(digits) > _INTEGER_DIGITS_MAX:
        raise ValueError("no double has that many digits")
    number = int(digits)
    if abs(number) < _INTEGER_MAX:
        return number
    if float(number) != number:
        raise ValueError("no double is that integer")
    return float(number)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
