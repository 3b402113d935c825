"""Queries over tags and types: a JSON value to `Item`s, or the first thing wrong with it. Pure.

Owns: how a query is written, and what of it the spec must declare. Must not know: where events are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.errors import Refusal
from gateway.items import Item, Items
from spec.errors import nearest, shown
from spec.filter_items import ITEM_TAGS_MAX, ITEMS_MAX, QUERY_TAGS_MAX, TYPES_MAX
from spec.identifiers import NAME_GRAMMAR
from spec.model import Spec
from spec.tags import hashed_value

_TYPE: Final = re.compile(rf"({NAME_GRAMMAR})\.({NAME_GRAMMAR})")
_TAG: Final = re.compile(rf"({NAME_GRAMMAR}):(.+)", re.DOTALL)
"""An event's own tag may have a longer prefix than a declared one."""
_NAMES: Final = ("types", "tags")


def with_tags(items: Items, tags: Iterable[str], path: str) -> Items | Refusal:
    """What the items match and has these tags as well; `path` is where those are in the request."""
    more = frozenset(tags)
    if len(more) > ITEM_TAGS_MAX:
        return Refusal("invalid_field", f"An event has at most {ITEM_TAGS_MAX} tags.", path)
    if not items:
        return (Item(frozenset(), more),)
    found = tuple([Item(item.types, item.tags | more) for item in items])
    if max(len(item.tags) for item in found) > ITEM_TAGS_MAX:
        why = f"With these tags, an item has more than {ITEM_TAGS_MAX}, and no event has so many."
        return Refusal("invalid_field", why, path)
    if sum(len(item.tags) for item in found) > QUERY_TAGS_MAX:
        why = f"With these in each, the items of a query have more than {QUERY_TAGS_MAX} tags."
        return Refusal("invalid_field", why, path)
    return found


def read_query(value: object, spec: Spec | None, salt: bytes, path: str = "") -> Items | Refusal:
    """The items of `{"items": […]}`; `path` is where that is in the request. Without a spec, names are not
    held to what it declares."""
    below = f"{path}." if path else ""
    if not isinstance(value, dict):
        return Refusal("invalid_field", 'A query is an object: {"items": […]}.', path or None)
    for name in value:
        if name != "items":
            return Refusal("unknown_field", f"A query has no field {shown(name)}.", f"{below}{name}")
    if "items" not in value:
        return Refusal("missing_field", "A query has `items`.", f"{below}items")
    return read_items(value["items"], spec, salt, f"{below}items")


def read_items(
    value: object, spec: Spec | None, salt: bytes, path: str, *, bounded: bool = True
) -> Items | Refusal:
    """`bounded`: not for a stored filter, of which earlier releases accepted more tags."""
    if not isinstance(value, list) or not 1 <= len(value) <= ITEMS_MAX:
        return Refusal("invalid_field", f"A query has 1 to {ITEMS_MAX} items, in a list.", path)
    items: dict[Item, None] = {}
    tags = 0
    for n, each in enumerate(value):
        item = _read_item(each, spec, salt, f"{path}[{n}]", bounded)
        if isinstance(item, Refusal):
            return item
        items[item] = None
        tags += len(item.tags)
    if bounded and tags > QUERY_TAGS_MAX:
        return Refusal("invalid_field", f"The items of a query have at most {QUERY_TAGS_MAX} tags.", path)
    return tuple(items)


def _read_item(value: object, spec: Spec | None, salt: bytes, path: str, bounded: bool) -> Item | Refusal:
    if not isinstance(value, dict):
        return Refusal("invalid_field", "An item is an object with `types`, `tags` or both.", path)
    for name, listed in value.items():
        if name not in _NAMES:
            return Refusal("unknown_field", f"An item has no field {shown(name)}.", f"{path}.{name}")
        most = TYPES_MAX if name == "types" else ITEM_TAGS_MAX
        if not isinstance(listed, list) or (bounded and len(listed) > most):
            why = f"`{name}` is a list of at most {most}; leave it out for any."
            return Refusal("invalid_field", why, f"{path}.{name}")
    if not any(value.values()):
        return Refusal("invalid_field", "An item names `types`, `tags` or both.", path)
    types, tags = set(), set()
    for n, each in enumerate(value.get("types", ())):
        named = _read_type(each, spec, f"{path}.types[{n}]")
        if isinstance(named, Refusal):
            return named
        types.add(named)
    for n, each in enumerate(value.get("tags", ())):
        tag = read_tag(each, spec, salt, f"{path}.tags[{n}]")
        if isinstance(tag, Refusal):
            return tag
        tags.add(tag)
    return Item(frozenset(types), frozenset(tags))


def _read_type(value: object, spec: Spec | None, path: str) -> tuple[str, str] | Refusal:
    found = _TYPE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return Refusal("invalid_field", "A type is written `<aggregate type>.<event type>`.", path)
    aggregate, event = found[1], found[2]
    if spec is None:
        return aggregate, event
    declared = spec.aggregate_types
    if aggregate not in declared:
        near = nearest(aggregate, declared)
        why = f"The spec declares no aggregate type {aggregate[:64]!r}{near}."
        return Refusal("unknown_aggregate_type", why, path, status=422)
    if event not in declared[aggregate].events:
        near = nearest(event, declared[aggregate].events)
        why = f"The spec declares no event {event[:64]!r} for {aggregate!r}{near}."
        return Refusal("unknown_event_type", why, path, status=422)
    return aggregate, event


def read_tag(value: object, spec: Spec | None, salt: bytes, path: str) -> str | Refusal:
    """A tag as it is stored: text as it is, `{"hash": "email:a@b.c"}` hashed as the edge does."""
    hashed = isinstance(value, dict) and value.keys() == {"hash"}
    text = value["hash"] if isinstance(value, dict) and hashed else value
    found = _TAG.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        why = 'A tag is written `student:s1`, one that is declared as hashed {"hash": "email:a@b.c"}.'
        return Refusal("invalid_field", why, path)
    prefix, rest = found.groups()
    if spec is not None and prefix not in spec.tag_prefixes:
        near = nearest(prefix, spec.tag_prefixes)
        why = f"The spec declares no tag and no aggregate type {prefix[:64]!r}{near}."
        return Refusal("unknown_tag", why, path)
    return f"{prefix}:{hashed_value(salt, prefix, rest) if hashed else rest}"
