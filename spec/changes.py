"""What a new spec takes away from an old one: only that can be in the way of what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spec.errors import below
from spec.model import Spec


@dataclass(frozen=True, slots=True)
class Removal:
    """`names` are the aggregate type's; or the aggregate type's and the event type's; or the singleton's; or
    the key of public ids that another one takes the place of. `pointer` is RFC 6901 into the old spec,
    bare."""

    kind: Literal["aggregate_type", "event_type", "singleton", "public_key"]
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
