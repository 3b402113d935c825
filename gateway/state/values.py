"""JSON values that are opened no further than they are looked into.

Owns: the nodes of a state, their exact numbers and their equality. What nothing touches stays the bytes that
were sent: a number of any size, an escape, the order of keys, blanks.
Must not know: events and handlers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow
from itertools import accumulate
from typing import Final, cast

import msgspec
from msgspec import Raw

DATA_DEPTH_MAX: Final = 64
"""Levels of an event's `data`: as many as the edge accepts."""

NUMBER_DIGITS_MAX: Final = 4300
"""Most digits of a computed number: Python's own limit for integers, which other readers of events share.
Without one, adding 1 to 1e999999 would write a million digits."""

_SHORT_DIGITS: Final = 15

SHORT_MAX: Final = 20
SCALE_MAX: Final = 6
"""Digits of a short number, and those behind its point: with more, a sum may be written with an exponent."""

Node = Raw | dict[str, "Node"] | list["Node"]
"""Raw is a value as it was sent; an object or a list is one that was opened. Scalars are always Raw."""

Fields = dict[str, Node]

encode = msgspec.json.Encoder().encode
decode_fields = cast(Callable[[bytes | Raw], Fields], msgspec.json.Decoder(dict[str, Raw]).decode)
_decode_items = cast(Callable[[Raw], list[Node]], msgspec.json.Decoder(list[Raw]).decode)
_decode_objects = cast(Callable[[bytes], list[Fields]], msgspec.json.Decoder(list[dict[str, Raw]]).decode)
decode_raw = msgspec.json.Decoder(Raw).decode

_KINDS = {
    ord(first): name for first, name in {
        "{": "an object", "[": "a list", '"': "a string", "t": "a boolean", "f": "a boolean", "n": "null"
    }.items()
}  # fmt: skip
_NUMBER = "a number"
_OBJECT: Final = ord("{")
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TEXTS_AND_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_FEW_BYTES: Final = 4096
"""Of texts that probably have few brackets together; to count those of more would be in vain."""
_AT_ONCE_BYTES: Final = 256 * 1024
_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _LEVELS.keys())


def read(text: bytes) -> Node | None:
    """The value of a JSON text, opened if it is an object; None if the text is none, or deeper than
    DATA_DEPTH_MAX."""
    if not (_surely_nests_within(text) or nests_within(text, DATA_DEPTH_MAX)):
        return None
    try:
        if not text.isascii():
            text.decode()  # msgspec does not look into the texts of a Raw
        try:
            return decode_fields(text)
        except msgspec.ValidationError:  # something else than an object
            return decode_raw(text)
    except ValueError:  # no UTF-8, or no JSON
        return None


def read_objects(texts: Sequence[bytes], *, admitted: bool = False) -> list[Fields] | None:
    """What `read` makes of each, where all are objects; else None. They are read as one list: texts that are
    JSON only together may pass, but none that was admitted as an event's data is of that kind. `admitted`:
    how deep they nest is known too."""
    joined = b",".join(texts)
    if not (admitted or _all_nest_within(texts, joined)):
        return None
    try:
        if not joined.isascii():
            joined.decode()  # as in `read`
        objects = _decode_objects(b"[%b]" % joined)
    except ValueError:  # something else than an object, no UTF-8, or no JSON
        return None
    return objects if len(objects) == len(texts) else None


def _all_nest_within(texts: Sequence[bytes], joined: bytes) -> bool:
    few = len(joined) <= _FEW_BYTES and joined.count(b"{") + joined.count(b"[") <= DATA_DEPTH_MAX
    return few or all(_surely_nests_within(text) or nests_within(text, DATA_DEPTH_MAX) for text in texts)


def _surely_nests_within(text: bytes) -> bool:
    """By its brackets. To find the first one takes a tenth of the time in which they are counted."""
    flat = text.find(b"{", 1) < 0 and b"[" not in text
    return flat or text.count(b"{") + text.count(b"[") <= DATA_DEPTH_MAX


def opened(text: bytes) -> Node:
    """The value of a JSON text that was admitted as an event's data: it needs no proof any more."""
    return decode_fields(text) if text[0] == _OBJECT else decode_raw(text)


def raw(node: Node) -> Raw:
    """The node as bytes that no later change reaches."""
    return node if isinstance(node, Raw) else Raw(encode(node))


def length(value: Raw) -> int:
    return len(memoryview(value))


def kind(node: Node) -> str:
    """What a person calls it: `a list`."""
    if isinstance(node, Raw):
        return _KINDS.get(memoryview(node)[0], _NUMBER)
    return "an object" if isinstance(node, dict) else "a list"


def fields_of(node: Node) -> Fields | None:
    """The fields if it is an object: its own if it is open, else fresh ones."""
    if isinstance(node, dict):
        return node
    return decode_fields(node) if isinstance(node, Raw) and kind(node) == "an object" else None


def items_of(node: Node) -> list[Node] | None:
    """The items if it is a list: its own if it is open, else fresh ones."""
    if isinstance(node, list):
        return node
    return _decode_items(node) if isinstance(node, Raw) and kind(node) == "a list" else None


def nests_within(node: Node | bytes, levels: int) -> bool:
    """Whether objects and lists stand at most `levels` deep in each other."""
    if isinstance(node, dict | list):
        parts = node.values() if isinstance(node, dict) else node
        return levels > 0 and all(nests_within(part, levels - 1) for part in parts)
    text = bytes(node)
    if len(text) <= levels or text.count(b"{") + text.count(b"[") <= levels:
        return True
    if len(text) > _AT_ONCE_BYTES:
        return _nests_within_piece_by_piece(text, levels)
    brackets = _TEXTS.sub(b"", text).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) <= levels


def _nests_within_piece_by_piece(text: bytes, levels: int) -> bool:
    """The same for a long text, in steps between which other threads have their turn."""
    depth = 0
    for found in _TEXTS_AND_BRACKETS.finditer(text):
        depth += _LEVELS.get(text[found.start()], 0)
        if depth > levels:
            return False
    return True


# ---- numbers ----

_EXACT = Context(
    prec=NUMBER_DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation, Overflow]
)


def number_of(node: Node) -> Decimal | None:
    """The exact number if it is one; Infinity stands for what no Decimal can hold."""
    if not isinstance(node, Raw) or memoryview(node)[0] in _KINDS:
        return None
    return _number(bytes(node).decode())


def short_integer(node: Node) -> int | None:
    """The integer if it is one of at most 15 digits, without a sign."""
    if not isinstance(node, Raw):
        return None
    view = memoryview(node)
    text = view.tobytes() if len(view) <= _SHORT_DIGITS else b""
    return int(text) if text.isdigit() else None


def short_decimal(node: Node) -> tuple[int, int] | None:
    """A number of a few digits that is written without an exponent, as an integer and how many of its digits
    stand behind the point: 141.70 is 14170 and 2. None of zero with a sign, which is no integer."""
    if not isinstance(node, Raw):
        return None
    text = bytes(node)
    if len(text) > SHORT_MAX:
        return None
    if text.isdigit():
        return int(text), 0
    signed = text[:1] == b"-"
    whole, _, behind = text.partition(b".")
    digits = (whole[1:] if signed else whole) + behind
    if not digits.isdigit() or len(behind) > SCALE_MAX:
        return None
    number = int(digits)
    if not signed:
        return number, len(behind)
    return (-number, len(behind)) if number else None


def sum_of(one: Decimal, other: Decimal) -> Raw | None:
    """The exact sum, 0.1 + 0.2 = 0.3 and 1.10 + 1 = 2.10; None if it has more than NUMBER_DIGITS_MAX."""
    try:
        total = _EXACT.add(one, other)
    except (Inexact, InvalidOperation, Overflow):
        return None
    return Raw(str(total).encode()) if total.is_finite() else None


def _number(text: str) -> Decimal:
    try:
        return Decimal(text, _EXACT)  # exact: a context's precision is for results
    except InvalidOperation:  # an exponent of 19 digits or more
        mantissa, exponent = text.lower().split("e")
        if exponent.startswith("-") or not mantissa.strip("-0."):
            return Decimal(0)
        return Decimal("-Infinity" if mantissa.startswith("-") else "Infinity")


# ---- comparing ----

_decode_exactly = msgspec.json.Decoder(float_hook=_number).decode


def plain(node: Node) -> object:
    """As a Python value; a number is an int or a Decimal, exact."""
    text = raw(node)
    try:
        return _decode_exactly(text)
    except msgspec.ValidationError:  # an integer of more digits than Python reads
        return json.loads(bytes(text), parse_int=_number, parse_float=_number)


def spelled(value: object) -> str:
    """One spelling for equal JSON (1, 1.0 and 1e0; objects in any order), another for any other.

    A string, since clients can choose numbers of one hash, and a set of those takes quadratic time.
    """
    match value:
        case int() | Decimal() if not isinstance(value, bool):
            return _spelled_number(value)
        case list():
            return f"[{','.join(map(spelled, value))}]"
        case dict():
            return f"{{{','.join(f'{spelled(name)}:{spelled(value[name])}' for name in sorted(value))}}}"
    return encode(value).decode()


def _spelled_number(number: int | Decimal) -> str:
    if isinstance(number, int):
        negative, text, exponent = number < 0, str(abs(number)), 0
    else:
        sign, digits, scale = number.as_tuple()
        if not isinstance(scale, int):  # Infinity
            return str(number)
        negative, text, exponent = sign == 1, "".join(map(str, digits)), scale
    significant = text.rstrip("0")
    return f"{'-' * negative}{significant}e{exponent + len(text) - len(significant)}" if significant else "0"
