"""The tags that an event type declares: which values of an event's data it can be found by.

Owns: the grammar of one declaration, and the tags of an event's data. Must not know: where tags are stored.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from spec.errors import Report, shown
from spec.subschemas import Schema
from spec.templates import Scope, read_path

TAGS_MAX: Final = 16
"""Tags of one event, beside its own: each is a row of an index in the commit."""

TAG_BYTES_MAX: Final = 128
"""A tag is an identifier, which a query repeats; a string is no tag."""

DECLARED_MAX: Final = 64
"""Declarations of one event type."""

PREFIX_GRAMMAR: Final = "[a-z][a-z0-9_]{0,31}"

Steps = tuple[str | None, ...]
"""A way into an event's data: a field, or None for each item of a list."""

_FIELD: Final = r"""[^.\[\]?*()"'\s\x00-\x1f]+"""
_ITEMS: Final = "[*]"
_PATH: Final = re.compile(rf"\$\.data((?:\.{_FIELD}|\[\*\])*)")
_STEP: Final = re.compile(rf"\.({_FIELD})|(\[\*\])")
_TAG: Final = re.compile(rf"({PREFIX_GRAMMAR}):(.+)", re.DOTALL)
_TAGS_ARE = "write `student:$.data.student_id`, `course:$.data.courses[*]`"
_HASH_DOMAIN: Final = b"sluice/tag-value/1"
_DIGITS_BELOW: Final = 1e21
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class TagRule:
    """`<prefix>:<the value at steps>`; `hashed`: the value is stored as a hash under the tenant's salt."""

    prefix: str
    steps: Steps
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class TagFault:
    """What can't be a tag; `path` is relative to the data, with its joint: `.email`, `.courses[2]`."""

    path: str
    error: str


# ---- declarations ----


def read_tags(value: object, pointer: str, schema: Schema, report: Report) -> tuple[TagRule, ...]:
    """The rules that `value` declares; those at fault are left out, with faults in `report`."""
    if not isinstance(value, list):
        report.add("wrong_type", pointer, f"`tags` must be a list; {_TAGS_ARE}.")
        return ()
    if len(value) > DECLARED_MAX:
        report.add("invalid_value", pointer, f"At most {DECLARED_MAX} declarations for one event type.")
    rules: dict[TagRule, None] = {}
    for index, each in enumerate(value):
        rule = _read_tag(each, f"{pointer}/{index}", schema, report)
        if rule in rules:
            report.add("duplicate_name", f"{pointer}/{index}", "This tag is declared above; remove one.")
        if rule is not None:
            rules[rule] = None
    return tuple(rules)


def _read_tag(value: object, pointer: str, schema: Schema, report: Report) -> TagRule | None:
    hashed = isinstance(value, dict)
    if isinstance(value, dict):
        if value.keys() != {"hash"}:
            report.add(
                "invalid_value",
                pointer,
                f'A hashed tag is {{"hash": "email:$.data.email"}}; else {_TAGS_ARE}.',
            )
            return None
        value, pointer = value["hash"], f"{pointer}/hash"
    if not isinstance(value, str):
        report.add("wrong_type", pointer, f"A tag is a string; {_TAGS_ARE}.")
        return None
    found = _TAG.fullmatch(value)
    if found is None:
        why = f"{shown(value)} is not a tag; {_TAGS_ARE}. A prefix is {PREFIX_GRAMMAR}."
        report.add("invalid_value", pointer, why)
        return None
    steps = read_steps(found[2], pointer, schema, report)
    return None if steps is None else TagRule(found[1], steps, hashed)


def read_steps(
    value: object, pointer: str, schema: Schema, report: Report, *, items: bool = True
) -> Steps | None:
    """The way that a path leads into the data; None, with a fault in `report`, where it is no path."""
    found = _PATH.fullmatch(value) if isinstance(value, str) else None
    if found is None or (not items and _ITEMS in found[1]):
        each = ", `[*]` for each item of a list" if items else ""
        what = shown(value) if isinstance(value, str) else "This"
        report.add("invalid_path", pointer, f"{what} is not a path here: paths are `$.data.field`{each}.")
        return None
    steps = tuple([field or None for field, _ in _STEP.findall(found[1])])
    before_items = f"$.data{found[1].split(_ITEMS)[0]}"
    read_path(before_items, pointer, Scope(schema), report)  # which the schema may rule out
    return steps


# ---- the tags of an event ----


def tags_of(rules: Sequence[TagRule], data: object, salt: bytes) -> tuple[str, ...] | TagFault:
    """The tags of an event, each once, in the order of the declarations."""
    tags: dict[str, None] = {}
    for rule in rules:
        for path, value in values_at(data, rule.steps):
            text = text_of(value)
            if text is None:
                wanted = "a list" if value is _NO_LIST else "a string, a number or a boolean"
                return TagFault(path, f"A value of the tag `{rule.prefix}` must be {wanted}.")
            if text == "":
                continue
            if not rule.hashed and len(text.encode()) > TAG_BYTES_MAX:
                return TagFault(
                    path, f"A value of the tag `{rule.prefix}` has at most {TAG_BYTES_MAX} bytes."
                )
            tags[f"{rule.prefix}:{hashed_value(salt, rule.prefix, text) if rule.hashed else text}"] = None
            if len(tags) > TAGS_MAX:
                return TagFault(path, f"An event has at most {TAGS_MAX} tags; this would be one more.")
    return tuple(tags)


_NO_LIST: Final[dict[str, object]] = {}


def values_at(value: object, steps: Steps, path: str = "") -> Iterator[tuple[str, object]]:
    """The values that `steps` lead to, each with its path; none where one is absent or null. What is no list
    where items are asked for is yielded as `_NO_LIST`, which is no value of a tag either."""
    for n, step in enumerate(steps):
        if step is None:
            if value is None:
                return
            if not isinstance(value, list):
                yield path, _NO_LIST
                return
            for index, item in enumerate(value):
                yield from values_at(item, steps[n + 1 :], f"{path}[{index}]")
            return
        if not isinstance(value, dict):
            return
        value = value.get(step)
        path += f".{step}"
    if value is not None:
        yield path, value


def text_of(value: object) -> str | None:
    """A value as a tag has it: texts as they are, numbers and booleans as JSON writes them; None for an
    object or a list.

    JSON has several spellings of a number. A whole one is written in digits, as integers are, so that `1e3`,
    `1000.0` and `1000` are one tag; beyond 10^21 with an exponent (RFC 8785).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _DIGITS_BELOW:
        return str(int(Decimal(repr(value))))
    if isinstance(value, bool | float):
        return _encode(value).decode()
    return str(value) if isinstance(value, int) else None


def hashed_value(salt: bytes, prefix: str, text: str) -> str:
    """What stands for the value in a hashed tag: 43 characters, which tell nothing without the salt."""
    name, value = prefix.encode(), text.encode()
    framed = b"%b%b%d:%b%d:%b" % (_HASH_DOMAIN, salt, len(name), name, len(value), value)
    return base64.urlsafe_b64encode(hashlib.sha256(framed).digest()).rstrip(b"=").decode()
