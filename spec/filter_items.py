"""The `items` of a subscription's filter: which types and tags, as a query has them.

Owns: how they are written in a document, and which names of them a spec must declare.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spec.errors import Report, below, proposal, shown
from spec.fields import check_keys
from spec.identifiers import NAME_GRAMMAR
from spec.tags import TAGS_MAX

ITEMS_MAX: Final = 100
"""Of a query: the index is asked for each."""

TYPES_MAX: Final = 100
"""Of an item."""

ITEM_TAGS_MAX: Final = TAGS_MAX + 1
"""Of an item: no event has more, its own among them."""

QUERY_TAGS_MAX: Final = 200
"""Of all items of a query together."""

_TYPE: Final = re.compile(rf"({NAME_GRAMMAR})\.({NAME_GRAMMAR})")
_TAG: Final = re.compile(rf"({NAME_GRAMMAR}):.+", re.DOTALL)
_KEYS: Final = ("types", "tags")


@dataclass(frozen=True, slots=True)
class FilterItem:
    """Aggregate types with event types, and the prefixes of tags: the names in it."""

    types: tuple[tuple[str, str], ...]
    prefixes: tuple[str, ...]


def read_filter_items(value: object, pointer: str, report: Report) -> tuple[FilterItem, ...]:
    if not isinstance(value, list):
        report.add("wrong_type", pointer, 'A list is needed here: [{"types": […], "tags": […]}].')
        return ()
    if not 1 <= len(value) <= ITEMS_MAX:
        report.add("invalid_value", pointer, f"Name 1 to {ITEMS_MAX} items; leave the key out for any.")
    items = tuple([_read_item(each, below(pointer, n), report) for n, each in enumerate(value)])
    if sum(len(item.prefixes) for item in items) > QUERY_TAGS_MAX:
        why = f"The items of a filter have at most {QUERY_TAGS_MAX} tags."
        report.add("invalid_value", pointer, why, accepted_before=True)
    return items


def _read_item(value: object, pointer: str, report: Report) -> FilterItem:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "An item is an object with `types`, `tags` or both.")
        return FilterItem((), ())
    check_keys(value, pointer, _KEYS, report)
    most = {"types": TYPES_MAX, "tags": ITEM_TAGS_MAX}
    lists = {key: _list(value[key], most[key], below(pointer, key), report) for key in _KEYS if key in value}
    if not any(lists.values()):
        report.add("invalid_value", pointer, "An item names `types`, `tags` or both.")
    types, prefixes = [], []
    for n, each in enumerate(lists.get("types", ())):
        found = _TYPE.fullmatch(each) if isinstance(each, str) else None
        if found is None:
            why = "A type is written `<aggregate type>.<event type>`."
            report.add("invalid_value", below(pointer, "types", n), why)
        else:
            types.append((found[1], found[2]))
    for n, each in enumerate(lists.get("tags", ())):
        text = each["hash"] if isinstance(each, dict) and each.keys() == {"hash"} else each
        found = _TAG.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            why = 'A tag is written `student:s1`, or {"hash": "email:a@b.c"}.'
            report.add("invalid_value", below(pointer, "tags", n), why)
        else:
            prefixes.append(found[1])
    return FilterItem(tuple(types), tuple(prefixes))


def _list(value: object, most: int, pointer: str, report: Report) -> list[object]:
    if not isinstance(value, list):
        report.add("wrong_type", pointer, "A list is needed here.")
        return []
    if len(value) > most:  # earlier releases took as many tags as types
        report.add("invalid_value", pointer, f"At most {most}.", accepted_before=len(value) <= TYPES_MAX)
    return value


def check_items_declared(
    items: tuple[FilterItem, ...],
    pointer: str,
    types: Mapping[str, Collection[str]],
    prefixes: Collection[str],
    report: Report,
) -> None:
    """A fault for each name that the spec does not declare."""
    for n, item in enumerate(items):
        for m, (aggregate_type, event) in enumerate(item.types):
            if event not in types.get(aggregate_type, ()):
                events = types.get(aggregate_type)
                near = proposal(aggregate_type, types) if events is None else proposal(event, events)
                why = f"The spec declares no {shown(f'{aggregate_type}.{event}')}. {near}"
                report.add("undeclared", below(pointer, "items", n, "types", m), why)
        for m, prefix in enumerate(item.prefixes):
            if prefix not in prefixes:
                why = f"The spec declares no tag {shown(prefix)}. {proposal(prefix, prefixes)}"
                report.add("undeclared", below(pointer, "items", n, "tags", m), why)
