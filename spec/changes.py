"""What a new spec takes away from an old one: only that can be in the way of what is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from spec.errors import below
from spec.model import EventType, Spec
from spec.tags import TagRule


@dataclass(frozen=True, slots=True)
class Removal:
    """`names` are the aggregate type's; or the aggregate type's and the event type's; or the singleton's; or
    the new key of public ids, beside which no other may have been given; or the type or singleton that events
    may name as actor or target. `pointer` is RFC 6901 into the old spec, bare, or where that has no such
    place, into the new one."""

    kind: Literal[
        "aggregate_type",
        "event_type",
        "singleton",
        "public_key",
        "agent_type",
        "target_type",
        "named_singleton",
    ]
    names: tuple[str, ...]
    pointer: str


def removals(old: Spec, new: Spec) -> tuple[Removal, ...]:
    """What `new` no longer declares, in the order of `old`. The event types of a removed aggregate type are
    not listed beside it. Whether any of it is in use is for the gateway to find out."""
    found: list[Removal] = []
    for name, old_type in old.aggregate_types.items():
        place = below("", "aggregate_types", name)
        new_type = new.aggregate_types.get(name)
        if new_type is None:
            found.append(Removal("aggregate_type", (name,), place))
            continue
        found.extend(
            Removal("event_type", (name, event), below(place, "events", event))
            for event in old_type.events
            if event not in new_type.events
        )
    found.extend(
        Removal("singleton", (name,), below("", "singletons", index))
        for index, name in enumerate(old.singleton_list)
        if name not in new.singletons
    )
    return tuple(found)


def references(old: Spec, new: Spec) -> tuple[Removal, ...]:
    """What `new` no longer lets an event name as its actor or target."""
    kinds: tuple[tuple[Literal["agent_type", "target_type"], frozenset[str], frozenset[str]], ...] = (
        ("agent_type", old.agent_types, new.agent_types),
        ("target_type", old.target_types, new.target_types),
    )
    found = [
        Removal(kind, (name,), below("", f"{kind}s"))
        for kind, was, now in kinds
        for name in sorted(was - now)
    ]
    found.extend(
        Removal("named_singleton", (name,), below("", "singletons", index))
        for index, name in enumerate(old.singleton_list)
        if name not in new.singletons
    )
    return tuple(found)


def rechecked(old: Spec, new: Spec) -> dict[str, tuple[str, ...]]:
    """By aggregate type the event types of both whose schema is another one, or what brings data to it."""
    found = {}
    for name, old_type in old.aggregate_types.items():
        now = new.aggregate_types[name].events if name in new.aggregate_types else {}
        changed = tuple(
            [
                event
                for event, was in old_type.events.items()
                if event in now and _read_by(was) != _read_by(now[event])
            ]
        )
        if changed:
            found[name] = changed
    return found


def _read_by(declared: EventType) -> tuple[str, str]:
    """What decides whether stored events fit."""
    return _text(declared.schema), repr(declared.upcasts)


def admitted_alike(old: Spec, new: Spec) -> list[tuple[str, str]]:
    """The event types of both, by aggregate type and name, whose events are admitted alike, but for rules: by
    equal schemas, with the same tags and claims, as the same records, and implying the same."""
    found = []
    for name, was in old.aggregate_types.items():
        now = new.aggregate_types.get(name)
        if now is not None and (was.mint, was.identity) == (now.mint, now.identity):
            found += [
                (name, event)
                for event, each in was.events.items()
                if event in now.events and _admits(each) == _admits(now.events[event])
            ]
    return found


def _admits(declared: EventType) -> tuple[object, ...]:
    each = declared
    text = _text(each.schema)
    return text, each.revision, each.tags, each.claims, each.releases, repr(each.implications)


def lowered(old: Spec, new: Spec) -> tuple[tuple[str, int], ...]:
    """The places of revisions that are lower than before, each with what it was."""
    found = []
    for name, old_type in old.aggregate_types.items():
        now = new.aggregate_types[name].events if name in new.aggregate_types else {}
        found += [
            (below("", "aggregate_types", name, "events", event, "revision"), was.revision)
            for event, was in old_type.events.items()
            if event in now and now[event].revision < was.revision
        ]
    return tuple(found)


def _text(schema: object) -> str:
    """For comparison: 1 is not true."""
    return json.dumps(schema, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Reread:
    """Something that the new spec reads differently: a sentence, the place in the new spec, and the aggregate
    type whose states follow from it."""

    text: str
    pointer: str
    aggregate_type: str | None = None


def reread(old: Spec, new: Spec) -> tuple[Reread, ...]:
    """Stored events and names that `new` reads otherwise than `old`."""
    found = []
    for name, old_type in old.aggregate_types.items():
        place = below("", "aggregate_types", name, "events")
        now = new.aggregate_types[name].events if name in new.aggregate_types else {}
        found += [
            Reread(f"{event} has another handler.", below(place, event, "handler"), name)
            for event, was in old_type.events.items()
            if event in now and repr(was.handler) != repr(now[event].handler)  # 1 is not true
        ]
        found += [
            Reread(f"{event} brings its data to another revision.", below(place, event, "upcast"), name)
            for event, was in old_type.events.items()
            if event in now and repr(was.upcasts) != repr(now[event].upcasts)
        ]
    if old.hash_ids and new.hash_ids and old.hash_ids.prefix != new.hash_ids.prefix:
        prefixes = (
            f"from now on begin with {new.hash_ids.prefix}, those given before keep {old.hash_ids.prefix}"
        )
        place = below("", "hash_ids", "prefix")
        found.append(Reread(f"Hash ids {prefixes} and still resolve.", place))
    return tuple(found)


def takings(old: Spec, new: Spec) -> tuple[Removal, ...]:
    """The key that `new` begins to give to public ids: they have one permanently. Numbers and hashes may
    share a prefix, since no name is both."""
    if not new.public_ids or not new.public_ids.has_key:
        return ()
    if old.public_ids is not None and old.public_ids.key == new.public_ids.key:
        return ()
    return (Removal("public_key", (new.public_ids.key,), below("", "public_ids", "key")),)


def reclaimed(old: Spec, new: Spec) -> frozenset[str]:
    """The aggregate types whose events claim or release other values, or by other rules, than before."""
    names = {*old.aggregate_types, *new.aggregate_types}
    return frozenset([name for name in names if _claiming(old, name) != _claiming(new, name)])


def claiming_events(spec: Spec, name: str) -> frozenset[str]:
    """The events of an aggregate type that claim or release."""
    return frozenset(_claiming(spec, name))


def _claiming(spec: Spec, name: str) -> dict[str, object]:
    declared = spec.aggregate_types.get(name)
    events = {} if declared is None else declared.events
    return {
        event: (each.claims, each.releases) for event, each in events.items() if each.claims or each.releases
    }


@dataclass(frozen=True, slots=True)
class Retagged:
    """The tags that an event type newly declares, and those that it declares no more."""

    added: tuple[TagRule, ...]
    removed: tuple[TagRule, ...]


def retagged(old: Spec, new: Spec) -> dict[str, dict[str, Retagged]]:
    """By aggregate type and event type, of those that both have, whose tags are others."""
    found: dict[str, dict[str, Retagged]] = {}
    for name, old_type in old.aggregate_types.items():
        now = new.aggregate_types[name].events if name in new.aggregate_types else {}
        events = {
            event: Retagged(
                tuple([rule for rule in now[event].tags if rule not in was.tags]),
                tuple([rule for rule in was.tags if rule not in now[event].tags]),
            )
            for event, was in old_type.events.items()
            if event in now and set(was.tags) != set(now[event].tags)
        }
        if events:
            found[name] = events
    return found
