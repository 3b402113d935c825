"""What a narrowed key is for: some aggregate types, some aggregates, some events. Pure.

`order` is the type with all of its aggregates, `order/{id}` one aggregate, `order.was_paid` one event type:
those events may be appended, and are in the feed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spec.errors import proposal, shown
from spec.identifiers import canonicalize, is_name

NAMES_MAX: Final = 100
"""Of one key: it is looked at with each request."""


@dataclass(frozen=True, slots=True)
class Only:
    """What a key is narrowed to; `names` are as they are spelled."""

    names: tuple[str, ...]
    types: frozenset[str]
    aggregates: frozenset[tuple[str, str]]
    events: frozenset[tuple[str, str]]

    def reads(self, aggregate_type: str, key: str) -> bool:
        """Whether the state and all events of an aggregate may be read."""
        return aggregate_type in self.types or (aggregate_type, key) in self.aggregates

    def reads_any(self, aggregate_type: str) -> bool:
        """Whether there can be an aggregate of this type whose state may be read."""
        return aggregate_type in self.types or any(kind == aggregate_type for kind, _ in self.aggregates)

    def appends(self, aggregate_type: str, key: str | None, event_type: str | None) -> bool:
        """None: a new aggregate; several events."""
        return (
            aggregate_type in self.types
            or (key is not None and (aggregate_type, key) in self.aggregates)
            or (event_type is not None and (aggregate_type, event_type) in self.events)
        )

    def shows(self, aggregate_type: str, key: str, event_type: str) -> bool:
        """Whether the feed has such an event."""
        return self.appends(aggregate_type, key, event_type)

    @property
    def all_types(self) -> frozenset[str]:
        """Those of which anything may be seen."""
        return self.types | {name for name, _ in (*self.aggregates, *self.events)}

    def covers(self, other: Only) -> bool:
        """Whether the other one is at most as wide."""
        return (
            other.types <= self.types
            and all(kind in self.types or (kind, key) in self.aggregates for kind, key in other.aggregates)
            and all(kind in self.types or (kind, event) in self.events for kind, event in other.events)
        )


def undeclared(only: Only, events: Mapping[str, Collection[str]]) -> Iterator[str]:
    """A sentence for each name of a type that is not declared; `events` are those that are, by aggregate
    type."""
    known = {}
    for kind in only.all_types - events.keys():
        known[kind] = f"no aggregate type {shown(kind)}. {proposal(kind, events)}"
    for kind, event in only.events:
        if kind in events and event not in events[kind]:
            known[f"{kind}.{event}"] = f"no event {shown(event)} of {kind}. {proposal(event, events[kind])}"
    for name in sorted(known):
        yield f"The deployed spec has {known[name]}"


def read_only(names: Iterable[str]) -> Only | str:
    """What the names allow, or the first that is malformed. Their grammar is checked; no spec is."""
    given, types, aggregates, events = [], set(), set(), set()
    for text in names:
        kind, slash, key = text.partition("/")
        first, dot, event = text.partition(".")
        canonical = (canonicalize(key, ()) or (key if is_name(key) else None)) if slash else None
        if canonical is not None and is_name(kind):
            aggregates.add((kind, canonical))
            given.append(f"{kind}/{canonical}")
        elif not slash and dot and is_name(first) and is_name(event):
            events.add((first, event))
            given.append(text)
        elif is_name(text):
            types.add(text)
            given.append(text)
        else:
            return text
    return Only(tuple(dict.fromkeys(given)), frozenset(types), frozenset(aggregates), frozenset(events))
