"""What a query over tags and types is, which events it matches, and conditions of appends. Pure.

Owns: when an item matches: the event's type is one of its types, if it has any, and the event has all of its
tags, if it has any. A query matches what any of its items does. Must not know: how queries are written, and
where events are.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Item(msgspec.Struct, frozen=True, gc=False):
    """Event types, each with its aggregate type, and tags as they are stored. Empty sets take any."""

    types: frozenset[tuple[str, str]]
    tags: frozenset[str]

    def takes(self, aggregate_type: str, event_type: str, own: str, tags: Collection[str]) -> bool:
        """`own` is the tag that every event has without a declaration, `tags` are the declared ones."""
        if self.types:
            if (aggregate_type, event_type) not in self.types:
                return False
        elif aggregate_type[0] == "_":  # the system's own
            return False
        return all(tag == own or tag in tags for tag in self.tags)


Items = tuple[Item, ...]


def matches(items: Items, aggregate_type: str, key: str, event_type: str, tags: Collection[str]) -> bool:
    """Whether any of them takes an event of this aggregate with these declared tags."""
    own = f"{aggregate_type}:{key}"
    return any(item.takes(aggregate_type, event_type, own, tags) for item in items)


def tags_of(items: Items) -> tuple[str, ...]:
    """The tags of all items, those of one in the order of the alphabet."""
    return tuple([tag for item in items for tag in sorted(item.tags)])


class Condition(msgspec.Struct, frozen=True, gc=False):
    """Of an append: no event of its tenant behind `after` may match any of the items. `after` is the seq of
    an event in the tenant's partition, with the beginning of its row digest; 0 is before the first."""

    items: Items
    after: int = 0
    mark: bytes = b""
    size_bytes: int = 0
    """Of the query as it was sent: nothing but the body bounds it."""
