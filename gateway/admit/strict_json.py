"""Strict JSON: bytes to a value, or one sentence that says why not.

Owns: RFC 8259 as the contract narrows it: UTF-8 without a byte order mark, no duplicate keys, no NaN or
Infinity, at most 64 levels, no U+0000 and no lone surrogate in a string. Any size of number is legal.
Must not know: what the JSON is about (`envelope` does).

Two ways, one answer. msgspec decodes in C but overlooks duplicate keys, U+0000 and depth; `is_strict` is a
cheap proof that none of them is there. What it cannot prove goes to `decode_exactly`, which takes a few times
as long.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from gateway.json_values import integer, number

DEPTH_MAX: Final = 64
"""Levels of arrays and objects in one body, the outermost included: no real event comes near, and every
recursive reader further on is safe below it."""

FAST_FAILURES: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises on a text that it cannot decode (UnicodeDecodeError is a ValueError)."""


NESTED_MAX: Final = 50_000
"""Arrays and objects in one body: decoders in C keep the interpreter until they are done, 10 ms for so many.
A body of 1 MiB in which they take 21 bytes each on average has fewer."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The body is not strict JSON; `reason` is a sentence for its sender, with the place where known."""

    reason: str


CROWDED: Final = Malformed(f"The body has over {NESTED_MAX} opening brackets; send it in parts.")

# A search for an int is six times as fast as one for a bytes, and ten times as fast as a count.
_BACKSLASH, _BRACKET = ord("\\"), ord("[")
_decode = msgspec.json.Decoder(object).decode
_encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> object | Malformed:
    """The value of a strict JSON text. Never raises.

    Its numbers are as in `gateway.json_values`.
    """
    if crowded(body):
        return CROWDED
    try:
        value = _decode(body)
        if is_strict(body, _encode(value).count(b":"), value, DEPTH_MAX):
            return value
    except FAST_FAILURES:
        pass
    return decode_exactly(body)


def decode_made(text: bytes) -> object | Malformed:
    """As `decode`, of a text made of values of strict JSON: nothing but its depth can be at fault."""
    if may_nest(text) <= DEPTH_MAX:
        try:
            return _decode(text)
        except FAST_FAILURES:  # a number that takes longer
            pass
    return decode(text)


def is_strict(body: bytes, colons_kept: int, value: object, levels: int) -> bool:
    """True only if `body`, which msgspec has decoded, has no duplicate key, no U+0000, and is not too deep.

    `value` is the part of the body that can nest, at most `levels` deep. An object with another inside has a
    key, so colons and brackets bound the depth of most bodies without a look at the value.
    """
    if not keeps_all(body, colons_kept):
        return False
    arrays = body.count(b"[") if _BRACKET in body else 0
    return colons_kept + arrays < DEPTH_MAX or may_nest(body) <= DEPTH_MAX or is_shallow(value, levels)


def keeps_all(body: bytes, colons_kept: int) -> bool:
    """True only if `body`, which msgspec has decoded, has no duplicate key and no U+0000.

    `colons_kept` counts the `:` in the compact re-encoding of all that was decoded. A raw colon of the body
    follows a key or stands in a string. Dropping a key drops its colon, and the one way for a string to gain
    one is the escape of U+003A: without it the counts are equal exactly when nothing was dropped.
    """
    if _BACKSLASH in body and (b"\\u0000" in body or b"\\u003a" in body or b"\\u003A" in body):
        return False
    return body.count(b":") == colons_kept


def may_nest(text: bytes) -> int:
    """A bound on the depth of a JSON text: it has no more levels than opening brackets."""
    return text.count(b"{") + text.count(b"[")


def crowded(text: bytes) -> bool:
    """Whether a text may have more than NESTED_MAX arrays and objects; those count that stand in strings. Of
    most texts that is known by their length."""
    return len(text) > NESTED_MAX and may_nest(text) > NESTED_MAX


def is_shallow(value: object, levels: int) -> bool:
    """Whether a decoded value nests at most `levels` arrays and objects."""
    layer: list[object] = [[value]]
    for _ in range(levels + 1):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if type(outer) is dict else outer)  # type: ignore[attr-defined]
            if type(inner) is dict or type(inner) is list
        ]
        if not layer:
            return True
    return False


# ---- the exact way ----

_BLANKS = b" \t\r\n"
_STRINGS_AND_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_LEVELS = {"[": 1, "{": 1, "]": -1, "}": -1, '"': 0}
# Possessive, so linear on any input. Stops at the first escape of U+0000 or of half a surrogate pair.
_LAWFUL_ESCAPES = re.compile(
    r"(?:[^\\]++|\\[^u]|\\u(?!0000|[dD][89a-fA-F])|\\u[dD][89abAB]..\\u[dD][c-fC-F])*+", re.DOTALL
)


def decode_exactly(body: bytes) -> object | Malformed:
    """As `decode`, by the standard library's scanner: slower, and with a place in most reasons."""
    if crowded(body):
        return CROWDED
    if not body.strip(_BLANKS):
        return Malformed("The body is empty; a JSON text is expected.")
    if body.startswith(b"\xef\xbb\xbf"):
        return Malformed("The body starts with a byte order mark; send plain UTF-8 without it.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        return Malformed(f"The body is not UTF-8: byte 0x{body[fault.start]:02x} at offset {fault.start}.")
    try:
        value: object = _SCANNER.decode(text)
    except json.JSONDecodeError as fault:
        return Malformed(f"The body is not valid JSON: {fault.msg} at {_place(text, fault.pos)}.")
    except _Unlawful as fault:
        return Malformed(str(fault))
    except RecursionError:
        return _too_deep(text)
    if not is_shallow(value, DEPTH_MAX):
        return _too_deep(text)
    return _escape_fault(text) or value


def _too_deep(text: str) -> Malformed:
    level = 0
    offset = next(
        (
            token.start()
            for token in _STRINGS_AND_BRACKETS.finditer(text)
            if (level := level + _LEVELS[text[token.start()]]) > DEPTH_MAX
        ),
        0,
    )
    return Malformed(f"The JSON nests more than {DEPTH_MAX} levels deep, at {_place(text, offset)}.")


def _escape_fault(text: str) -> Malformed | None:
    """The first escape of valid JSON that names U+0000 or half a surrogate pair."""
    lawful = _LAWFUL_ESCAPES.match(text)
    assert lawful is not None  # it matches the empty string
    end = lawful.end()
    if end == len(text):
        return None
    escape = text[end : end + 6]
    what = "U+0000" if escape == "\\u0000" else f"{escape}, half of a surrogate pair,"
    return Malformed(f"A string contains {what} at {_place(text, end)}; it cannot be stored as text.")


def _place(text: str, offset: int) -> str:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return f"line {line}, column {column}"


class _Unlawful(Exception):
    """Carries a reason out of the scanner, which has no other way to stop."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: dict[str, None] = {}
        twice = next(name for name, _ in pairs if name in seen or seen.setdefault(name))
        raise _Unlawful(f"The key {json.dumps(twice[:64])} is given twice in one object.")
    return found


def _constant(name: str) -> NoReturn:
    raise _Unlawful(f"The body is not valid JSON: {name} is not a JSON number.")


_SCANNER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=integer, parse_float=number, parse_constant=_constant
)
