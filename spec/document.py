"""From what a caller hands in to a clean JSON value: strict where `json` is lax, and bounded.

Owns what a document may be before anything is known of specs. The value returned is a copy made of exact
dicts, lists, strings, ints, finite floats, bools and None, so it can't be changed later from outside.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from typing import NoReturn

from spec.errors import Report, below, shown

DOCUMENT_BYTES_MAX = 1_048_576
"""Longest text of a spec, in bytes: as long as any other request body."""

DOCUMENT_DEPTH_MAX = 64
"""Deepest nesting of a spec: as deep as any other body, and far from the stack's end."""

INTEGER_DIGITS_MAX = 4300
"""Longest integer, in digits: Python reads no longer one."""

UNREADABLE = object()
"""What `read` returns when nothing can be checked any further."""

_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


class _Repeating(dict[str, object]):
    """An object of a JSON text that names keys twice; the last value stands."""

    keys_twice: tuple[str, ...] = ()


def read(document: object, report: Report) -> object:
    """The JSON value of `document`: bytes or str are JSON text, anything else is a value already.

    Returns UNREADABLE, with at least one fault in `report`, if there is none.
    """
    if isinstance(document, bytes | bytearray | memoryview):
        document = _decoded(bytes(document), report)
    if isinstance(document, str):
        document = _parsed(document, report)
    if document is UNREADABLE:
        return UNREADABLE
    copy = _copy(document, "", 1, report)
    readable = all(fault.code == "duplicate_key" for fault in report.faults())
    return copy if readable else UNREADABLE


def _decoded(text: bytes, report: Report) -> object:
    if text.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        report.add("invalid_json", "", "A byte order mark comes first; save the text as UTF-8 without one.")
        return UNREADABLE
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        report.add("invalid_json", "", f"The text is not UTF-8 at byte {error.start}; save it as UTF-8.")
        return UNREADABLE


def _parsed(text: str, report: Report) -> object:
    if len(text.encode("utf-8", "surrogatepass")) > DOCUMENT_BYTES_MAX:
        report.add("too_large", "", f"The text is longer than {DOCUMENT_BYTES_MAX} bytes; shorten it.")
        return UNREADABLE
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        report.add("invalid_json", "", f"The text is not JSON at {where}: {error.msg.lower()}.")
    except ValueError as error:  # of _integer or _refuse_constant
        report.add("invalid_json", "", f"The text holds a number that can't be read: {error}.")
    except RecursionError:
        report.add("too_deep", "", _TOO_DEEP)
    return UNREADABLE


_TOO_DEEP = f"Values are nested deeper than {DOCUMENT_DEPTH_MAX}; flatten this one."


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeating = _Repeating(plain)
    repeating.keys_twice = tuple(
        name for name, times in Counter(name for name, _ in pairs).items() if times > 1
    )
    return repeating


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    count = len(digits.lstrip("-"))
    if count > INTEGER_DIGITS_MAX:
        raise ValueError(f"{digits[:8]}… has {count} digits, and {INTEGER_DIGITS_MAX} are the most")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_refuse_constant)


def _copy(value: object, pointer: str, depth: int, report: Report) -> object:
    if isinstance(value, dict | list | tuple) and depth > DOCUMENT_DEPTH_MAX:
        report.add("too_deep", pointer, _TOO_DEEP)
        return None
    if isinstance(value, dict):
        return _copied_object(value, pointer, depth, report)
    if isinstance(value, list | tuple):
        return [_copy(item, below(pointer, i), depth + 1, report) for i, item in enumerate(value)]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if _NOT_TEXT.search(value):
            report.add("invalid_json", pointer, _NO_TEXT)
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    report.add("invalid_json", pointer, "This value has no JSON form; a number must be finite.")
    return None


_NO_TEXT = "The text contains U+0000 or a lone surrogate; remove it."


def _copied_object(
    value: dict[object, object], pointer: str, depth: int, report: Report
) -> dict[str, object]:
    copy: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            report.add("invalid_json", pointer, "A key of this object is not a string.")
            continue
        if _NOT_TEXT.search(key):
            report.add("invalid_json", pointer, f"The key {shown(key)} contains U+0000 or a lone surrogate.")
            continue
        copy[str(key)] = _copy(item, below(pointer, key), depth + 1, report)
    if isinstance(value, _Repeating):
        for key in value.keys_twice:
            if key in copy:
                report.add(
                    "duplicate_key", below(pointer, key), f"The key {shown(key)} is given twice; keep one."
                )
    return copy
