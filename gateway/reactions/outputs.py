"""An event that a reaction appends: admitted as a client's, made under an id of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from gateway.aggregates.implied import NotAdmitted, SchemaWork, admitted
from gateway.appends import ANY_LENGTH, Append, event_identity, make_append, make_retry
from gateway.catalog.model import Deployed
from gateway.derived_ids import derived_id
from gateway.events import Claim, Event, Spread, Stream, revised
from gateway.items import Condition, Item
from gateway.outcomes import (
    Declined,
    ImplicationRefused,
    NotUnique,
    Outcome,
    Quarantined,
    RuleViolated,
)
from gateway.reactions.timers import Emission, Watched

SCHEDULER = ("system_scheduler", "event_scheduler")
"""Who a timer's event is by."""


def are_light(deployed: Deployed, emissions: Sequence[Emission]) -> bool:
    """Whether their schemas check them in a moment."""
    for each in emissions:
        declared = deployed.spec.aggregate_types.get(each.aggregate_type)
        event_type = None if declared is None else declared.events.get(each.event_type)
        if event_type is not None and not event_type.is_light(bytes(each.data)):
            return False
    return True


def why_refused(outcome: Outcome) -> str:
    """Why an append of a reaction is refused for good, in the words of what refused it."""
    match outcome:
        case Declined(refusal):
            return refusal.error
        case RuleViolated(error=error) | ImplicationRefused(error=error) | Quarantined(error=error):
            return error
        case NotUnique(path=path, aggregate_type=of, key=key):
            return f"{path}: {of} {key} has this value."
    return f"the outcome of the append was {type(outcome).__name__}"


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
    schema_work_max: int,
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
            SchemaWork(schema_work_max),
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
    items = tuple([_item(each) for each in watched])
    return Condition(items, after, mark) if items else None


def _item(watched: Watched) -> Item:
    own = f"{watched.aggregate_type}:{watched.key}"
    return Item(frozenset({(watched.aggregate_type, watched.event_type)}), frozenset({own}))


def append_of_saga(
    deployed: Deployed,
    stream: Stream,
    length: int,
    emissions: Sequence[Emission],
    said: tuple[str, Callable[[Sequence[Stream], Sequence[str]], bytes]],
    *,
    actor: tuple[str, str],
    correlation_id: bytes,
    causation_id: bytes,
    now_ms: int,
    event_bytes_max: int,
    schema_work_max: int,
) -> Append | str:
    """What a saga emits, and behind it the event of its own stream, all or none: the stream has `length`
    events before. `said` is that event's type, and makes its data. Or why there can be none."""
    cause, work = saga_cause(stream, length), SchemaWork(schema_work_max)
    rows: list[tuple[Stream, Event, tuple[str, ...]]] = []
    claims: list[Claim] = []
    paths: list[str] = []

    def event(number: int, event_type: str, data: bytes, revision: int = 1) -> Event:
        made = Event(
            derived_id(cause, number), event_type, *actor, None, None, correlation_id, causation_id,
            deployed.revision, now_ms, None, data,
        )  # fmt: skip
        return revised(made, revision)

    for n, emission in enumerate(emissions):
        declared = deployed.spec.aggregate_types.get(emission.aggregate_type)
        event_type = None if declared is None else declared.events.get(emission.event_type)
        if declared is None or event_type is None:
            return f"{emission.aggregate_type}.{emission.event_type} is no longer declared."
        data, event_id = bytes(emission.data), derived_id(cause, n)
        try:
            found = admitted(
                deployed,
                stream.tenant,
                declared,
                event_type,
                emission.id,
                data,
                event_id,
                event_bytes_max,
                work,
            )
            of_event = found.claims(n)
        except NotAdmitted as fault:
            return f"{emission.aggregate_type}.{emission.event_type} {fault.path}: {fault.error}"
        claims += of_event[0]
        paths += of_event[1]
        rows.append((found.stream, event(n, event_type.name, data, event_type.revision), found.tags))
    streams = [each for each, _, _ in rows]
    body = said[1](streams, [str(UUID(bytes=each.id)) for _, each, _ in rows])
    rows.append((stream, event(len(rows), said[0], body), ()))
    numbers: dict[Stream, int] = {}
    for each, _, _ in rows:
        numbers.setdefault(each, len(numbers))
    expected = [length if each == stream else ANY_LENGTH for each in numbers]
    tags = tuple([each for _, _, each in rows])
    spread = (
        Spread(tuple(numbers), tuple([numbers[each] for each, _, _ in rows])) if len(numbers) > 1 else None
    )
    return make_append(
        rows[0][0],
        tuple([each for _, each, _ in rows]),
        expected[0],
        make_retry(stream.tenant, None, (), b""),
        tags if any(tags) else (),
        spread,
        tuple(expected[1:]),
        tuple(claims),
        tuple(paths),
    )


def saga_cause(stream: Stream, length: int) -> bytes:
    """What the ids of a saga's events are made of: of its stream behind so many events."""
    return derived_id(UUID(stream.key).bytes, length)
