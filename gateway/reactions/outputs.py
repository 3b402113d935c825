"""An event that a reaction appends: admitted as a client's, made under an id of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.aggregates.implied import NotAdmitted, admitted
from gateway.catalog.model import Deployed
from gateway.events import ANY_LENGTH, Append, Event, event_identity, make_append, make_retry, revised
from gateway.items import Condition, Item
from gateway.reactions.timers import Emission, Watched

SCHEDULER = ("system_scheduler", "event_scheduler")
"""Who a timer's event is by."""


def append_of(
    deployed: Deployed,
    tenant: bytes,
    event_id: bytes,
    emission: Emission,
    *,
    actor: tuple[str, str],
    correlation_id: bytes,
    causation_id: bytes | None,
    condition: Condition | None,
    now_ms: int,
    event_bytes_max: int,
) -> Append | str:
    """The append, which is known again by its event's id; or why there can be none."""
    declared = deployed.spec.aggregate_types.get(emission.aggregate_type)
    event_type = None if declared is None else declared.events.get(emission.event_type)
    if declared is None or event_type is None:
        return f"{emission.aggregate_type}.{emission.event_type} is no longer declared."
    try:
        found = admitted(
            deployed,
            tenant,
            declared,
            event_type,
            emission.id,
            bytes(emission.data),
            event_id,
            event_bytes_max,
        )
        claims, paths = found.claims(0)
    except NotAdmitted as fault:
        return f"{fault.path}: {fault.error}"
    event = Event(
        event_id,
        event_type.name,
        *actor,
        None,
        None,
        correlation_id,
        causation_id,
        deployed.revision,
        now_ms,
        None,
        bytes(emission.data),
    )
    retry = make_retry(tenant, None, (event_id,), event_identity(tenant, event_id))
    return make_append(
        found.stream,
        (revised(event, event_type.revision),),
        ANY_LENGTH,
        retry,
        (found.tags,) if found.tags else (),
        claims=tuple(claims),
        claim_paths=tuple(paths),
        condition=condition,
    )


def unless(watched: Sequence[Watched], after: int, mark: bytes) -> Condition | None:
    """That nothing of what cancels was committed behind a place."""
    items = tuple(
        [
            Item(
                frozenset({(each.aggregate_type, each.event_type)}),
                frozenset({f"{each.aggregate_type}:{each.key}"}),
            )
            for each in watched
        ]
    )
    return Condition(items, after, mark) if items else None


def _item(watched: Watched) -> Item:
    own = f"{watched.aggregate_type}:{watched.key}"
    return Item(frozenset({(watched.aggregate_type, watched.event_type)}), frozenset({own}))
