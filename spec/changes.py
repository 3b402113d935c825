"""What a new spec takes away from an old one: only that can be in the way of what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spec.errors import below
from spec.model import Spec


@dataclass(frozen=True, slots=True)
class Removal:
    """`names` are the aggregate type's; or the aggregate type's and the event type's; or the singleton's; or
    the key of public ids that another one takes the place of; or the key or prefix that names of the other
    kind may have already. `pointer` is RFC 6901 into the old spec, bare."""

    kind: Literal[
        "aggregate_type", "event_type", "singleton", "public_key", "key_of_hash_ids", "prefix_of_public_ids"
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
    if old.public_ids and new.public_ids and old.public_ids.key != new.public_ids.key:
        found.append(Removal("public_key", (old.public_ids.key,), below("", "public_ids", "key")))
    return tuple(found)


def takings(old: Spec, new: Spec) -> tuple[Removal, ...]:
    """The prefixes that `new` begins to give to one kind of names: all kinds share one registry, and names
    are never taken back, so one that the other kind had is not free."""
    found: list[Removal] = []
    if new.public_ids and (old.public_ids is None or old.public_ids.key != new.public_ids.key):
        names = (new.public_ids.key.lower(),)
        found.append(Removal("key_of_hash_ids", names, below("", "public_ids", "key")))
    if new.hash_ids and (old.hash_ids is None or old.hash_ids.prefix != new.hash_ids.prefix):
        names = (new.hash_ids.prefix.upper(),)
        found.append(Removal("prefix_of_public_ids", names, below("", "hash_ids", "prefix")))
    return tuple(found)
