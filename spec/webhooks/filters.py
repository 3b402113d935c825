"""Which deliveries of a source become events, and of which type: `to.when`, `to.types` and `type_at`.

A test is one of the handler language, whose paths lead into a delivery: `$.body…`, `$.headers…`,
`$.delivery_id`, `$.source`. Within it they stand as the names `$body`, `$headers`, … are bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from spec.errors import Report, below, proposal, shown
from spec.handlers import Predicate
from spec.predicates import read_predicate
from spec.templates import Scope
from spec.webhooks.paths import is_path, read_path
from spec.webhooks.presets import Scheme
from spec.webhooks.sources import Path

ROOTS: Final = ("$body", "$headers", "$delivery_id", "$source")
_SCOPE: Final = Scope(True, None, frozenset(ROOTS))
_BEGIN: Final = re.compile(r"\$\.(body|headers|delivery_id|source)")
_INDEX: Final = re.compile(r"\.([0-9]{1,9})(?=[.?]|\Z)")
_TYPES_MAX: Final = 1_000


def read_when(value: object, pointer: str, report: Report) -> Predicate:
    """The test that `value` is; `{"$.body.type": "x"}` is short for `{"equals": ["$.body.type", "x"]}`."""
    before = len(report)
    for place, text in _paths(value, pointer):
        read_path(text, place, report)
    if len(report) > before:
        return _NEVER
    return read_predicate(_bound(value), pointer, _SCOPE, report)


_NEVER: Final = read_predicate({"or": []}, "", _SCOPE, Report())


def _paths(value: object, pointer: str) -> Iterator[tuple[str, str]]:
    """The texts that are paths, and where they stand."""
    if isinstance(value, dict):
        for name, each in value.items():
            place = below(pointer, name)
            if is_path(name) and name not in ("$", "$literal", "$merge"):
                yield place, name
            if name != "$literal":
                yield from _paths(each, place)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths(each, below(pointer, index))
    elif isinstance(value, str) and (value.startswith(("$", "@"))):
        yield pointer, value


def _bound(value: object) -> object:
    """The same with names in place of roots, headers in lower case, and digits as places in lists."""
    if isinstance(value, dict):
        if value and all(name.startswith("$.") for name in value):
            tests: list[object] = [{"equals": [_bound(name), _bound(each)]} for name, each in value.items()]
            return tests[0] if len(tests) == 1 else {"and": tests}
        return {name: each if name == "$literal" else _bound(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_bound(each) for each in value]
    if isinstance(value, str) and value.startswith("$."):
        text = _BEGIN.sub(r"$\1", value, count=1)
        return text.lower() if text.startswith("$headers") else _INDEX.sub(r"[\1]", text)
    return value


def read_types(
    value: object, events: Mapping[str, object] | None, pointer: str, report: Report
) -> Mapping[str, str]:
    """By the provider's name, the event that it becomes."""
    if not isinstance(value, dict) or not 1 <= len(value) <= _TYPES_MAX:
        why = f"`types` maps 1 to {_TYPES_MAX} names of the provider to events of ours."
        report.add("wrong_type", pointer, why)
        return MappingProxyType({})
    for name, event in value.items():
        if not isinstance(event, str):
            report.add("wrong_type", below(pointer, name), "This must be the name of an event.")
        elif events is not None and event not in events:
            why = f"There is no event {shown(event)}. {proposal(event, events)}"
            report.add("undeclared", below(pointer, name), why)
    return MappingProxyType({name: str(event) for name, event in value.items()})


def read_type_at(
    source: dict[str, Any], to: dict[str, Any], scheme: Scheme, pointer: str, report: Report
) -> tuple[Path, ...]:
    """Where the provider's name of a delivery stands, in parts that a `.` joins; as the source says, in `to`
    or beside it, or else its preset."""
    for holder, place in ((to, below(pointer, "to", "type_at")), (source, below(pointer, "type_at"))):
        if "type_at" in holder:
            if "types" not in to:
                report.add("invalid_value", place, "`type_at` is for `to.types`, which is missing.")
            return (read_path(holder["type_at"], place, report),)
    if "types" in to and not scheme.type_at:
        why = "The place of the provider's name is missing: add `type_at`, such as `$.body.type`."
        report.add("missing_key", below(pointer, "to"), why)
    return tuple([read_path(each, "", report) for each in scheme.type_at]) if "types" in to else ()
