"""An event that a reaction appends: admitted as a client's, made under an id of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
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
from spec.model import AggregateType, EventType

SCHEDULER = ("system_scheduler", "event_scheduler")
"""The actor of a timer's event: type and id."""


class Origin(NamedTuple):
    """What all events of one append have in common, and the limits that they keep. `actor` is a type and an
    id, ids are the 16 bytes of UUIDs."""

    deployed: Deployed
    actor: tuple[str, str]
    correlation_id: bytes
    causation_id: bytes | None
    now_ms: int
    event_bytes_max: int
    schema_work_max: int


class _Made(NamedTuple):
    """An event with the stream that it is appended to; `paths` are those of its claims' values."""

    stream: Stream
    event: Event
    tags: tuple[str, ...] = ()
    claims: Sequence[Claim] = ()
    paths: Sequence[str] = ()


def are_light(deployed: Deployed, emissions: Sequence[Emission]) -> bool:
    """Whether their schemas check them in a moment."""
    for each in emissions:
        declared = _declared(deployed, each)
        if declared is not None and not declared[1].is_light(bytes(each.data)):
            return False
    return True


def why_refused(outcome: Outcome) -> str:
    """Why an append of a reaction is refused for good, in the words of what refused it."""
    match outcome:
        case Declined(refusal):
            return refusal.error
        case RuleViolated(error=error) | ImplicationRefused(error=error) | Quarantined(error=error):
            return error
        case NotUnique(path=path, holder=holder):
            return f"{path}: {holder} has this value."
    return f"the outcome of the append was {type(outcome).__name__}"


def append_of(
    origin: Origin, tenant: bytes, event_id: bytes, emission: Emission, condition: Condition | None
) -> Append | str:
    """The append, which is known again by its event's id; or why there can be none."""
    declared = _declared(origin.deployed, emission)
    if declared is None:
        return _undeclared(emission)
    work = SchemaWork(origin.schema_work_max)
    try:
        made = _made(origin, tenant, emission, declared, event_id, 0, work)
    except NotAdmitted as fault:
        return f"{fault.path}: {fault.error}"
    return make_append(
        made.stream,
        (made.event,),
        ANY_LENGTH,
        make_retry(tenant, None, (event_id,), event_identity(tenant, event_id)),
        (made.tags,) if made.tags else (),
        claims=tuple(made.claims),
        claim_paths=tuple(made.paths),
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
    origin: Origin,
    stream: Stream,
    length: int,
    emissions: Sequence[Emission],
    said: tuple[str, Callable[[Sequence[Stream], Sequence[str]], bytes]],
) -> Append | str:
    """What a saga emits, and behind it the event of its own stream, all or none: the stream has `length`
    events before. `said` is that event's type, and makes its data of the streams and ids of the others. Or
    why there can be none."""
    cause, work = saga_cause(stream, length), SchemaWork(origin.schema_work_max)
    made: list[_Made] = []
    for n, emission in enumerate(emissions):
        declared = _declared(origin.deployed, emission)
        if declared is None:
            return _undeclared(emission)
        try:
            made.append(_made(origin, stream.tenant, emission, declared, derived_id(cause, n), n, work))
        except NotAdmitted as fault:
            return f"{emission.aggregate_type}.{emission.event_type} {fault.path}: {fault.error}"
    event_type, data_of = said
    data = data_of([each.stream for each in made], [str(UUID(bytes=each.event.id)) for each in made])
    made.append(_Made(stream, _event(origin, derived_id(cause, len(made)), event_type, data)))
    return _together(made, stream, length)


def _together(made: Sequence[_Made], own: Stream, length: int) -> Append:
    """One append of all of these; the saga's `own` stream is to have `length` events before."""
    numbers: dict[Stream, int] = {}
    for each in made:
        numbers.setdefault(each.stream, len(numbers))
    expected = [length if each == own else ANY_LENGTH for each in numbers]
    spread = None
    if len(numbers) > 1:
        spread = Spread(tuple(numbers), tuple([numbers[each.stream] for each in made]))
    tags = tuple([each.tags for each in made])
    return make_append(
        made[0].stream,
        tuple([each.event for each in made]),
        expected[0],
        make_retry(own.tenant, None, (), b""),
        tags if any(tags) else (),
        spread,
        tuple(expected[1:]),
        tuple([claim for each in made for claim in each.claims]),
        tuple([path for each in made for path in each.paths]),
    )


def _declared(deployed: Deployed, emission: Emission) -> tuple[AggregateType, EventType] | None:
    of = deployed.spec.aggregate_types.get(emission.aggregate_type)
    event_type = None if of is None else of.events.get(emission.event_type)
    return None if of is None or event_type is None else (of, event_type)


def _undeclared(emission: Emission) -> str:
    return f"{emission.aggregate_type}.{emission.event_type} is no longer declared."


def _made(
    origin: Origin,
    tenant: bytes,
    emission: Emission,
    declared: tuple[AggregateType, EventType],
    event_id: bytes,
    n: int,
    work: SchemaWork,
) -> _Made:
    """Event number `n` of an append. Raises NotAdmitted."""
    data, event_type = bytes(emission.data), declared[1]
    found = admitted(
        origin.deployed, tenant, *declared, emission.id, data, event_id, origin.event_bytes_max, work
    )
    event = revised(_event(origin, event_id, event_type.name, data), event_type.revision)
    return _Made(found.stream, event, found.tags, *found.claims(n))


def _event(origin: Origin, event_id: bytes, event_type: str, data: bytes) -> Event:
    return Event(
        event_id, event_type, *origin.actor, None, None, origin.correlation_id, origin.causation_id,
        origin.deployed.revision, origin.now_ms, None, data,
    )  # fmt: skip


def saga_cause(stream: Stream, length: int) -> bytes:
    """What the ids of a saga's events are made of: of its stream behind so many events."""
    return derived_id(UUID(stream.key).bytes, length)
