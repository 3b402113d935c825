"""A saga as a state machine: its next append, by its state and an event. Pure.

Each event of its stream holds the whole state after it, so the newest one is enough to go on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw

from gateway.derived_ids import id_of
from gateway.events import Event, Recorded, Stream
from gateway.reactions.timers import Emission
from gateway.state.budget import Budget, Misfit
from gateway.state.implications import Unfit, emit_at
from gateway.state.predicates import Where
from gateway.state.templates import COPIED_BYTES, View
from gateway.state.values import encode, read
from gateway.stored_extra import guarded, split
from spec.handlers import Root
from spec.sagas import SAGA_TYPE, Saga

COORDINATOR: Final = ("system_saga", "saga_coordinator")
COMPENSATOR: Final = ("system_saga", "saga_compensator")

_DOMAIN: Final = b"sluice/saga/1"
_NULL: Final = Raw(b"null")


class Said(msgspec.Struct, frozen=True):
    """An event, as the state of a saga holds it."""

    id: str
    aggregate_type: str
    key: str
    type: str
    data: Raw


class Emitted(msgspec.Struct, frozen=True):
    """What a step emitted, and the event that it awaited, once that came."""

    id: str
    aggregate_type: str
    key: str
    type: str
    awaited: Said | None = None


class Metadata(msgspec.Struct, frozen=True):
    """Of a trigger, beside its actor and its correlation id: for paths into `$.metadata`. `target` is a type
    and an id."""

    recorded_at_ms: int = 0
    target: tuple[str, str] | None = None
    causation_id: str | None = None
    extra: Raw = _NULL


class State(msgspec.Struct, frozen=True):
    """`state` is running, completed, compensated, stuck or abandoned; `step` the number of the newest one.
    What earlier releases began has no `metadata`."""

    saga: str
    state: str
    spec_rev: int
    trigger: Said
    actor: tuple[str, str]
    correlation_id: str
    step: int = -1
    steps: dict[str, Emitted] = {}
    reason: str | None = None
    metadata: Metadata = Metadata()

    @property
    def emitted(self) -> Emitted | None:
        """Of the newest step."""
        return list(self.steps.values())[-1] if self.steps else None

    @property
    def size(self) -> int:
        """Bytes of the events' data."""
        came = [each.awaited.data for each in self.steps.values() if each.awaited is not None]
        return sum([len(memoryview(each)) for each in (self.trigger.data, self.metadata.extra, *came)])


class Turn(msgspec.Struct, frozen=True):
    """`emissions` are appended with an event of the saga, of type `said`; `step` is named where it emits."""

    said: str
    after: State
    emissions: tuple[Emission, ...] = ()
    step: str | None = None
    actor: tuple[str, str] = COORDINATOR

    @property
    def size(self) -> int:
        """Bytes of data, of the state and of what it emits."""
        return self.after.size + sum([len(memoryview(each.data)) for each in self.emissions])


decode_state = msgspec.json.Decoder(State).decode


def saga_id(name: str, trigger: bytes) -> bytes:
    """16 bytes, a UUIDv5 of the rule and the event that caused it."""
    return id_of(_DOMAIN + name.encode() + trigger)


def said_of(recorded: Recorded, event_id: str) -> Said:
    stream, event = recorded.stream, recorded.event
    return Said(event_id, stream.aggregate_type, stream.key, event.type, Raw(event.payload or b"null"))


def begun(saga: Saga, spec_rev: int, trigger: Recorded, event_id: str, correlation_id: str) -> State:
    event, said = trigger.event, said_of(trigger, event_id)
    actor = (event.actor_type, event.actor_id)
    metadata = _metadata_of(event)
    return State(saga.name, "running", spec_rev, said, actor, correlation_id, metadata=metadata)


def _metadata_of(event: Event) -> Metadata:
    target = None if event.target_type is None else (event.target_type, event.target_id or "")
    cause = None if event.causation_id is None else str(UUID(bytes=event.causation_id))
    return Metadata(event.recorded_at_ms, target, cause, Raw(split(event.extra)[0] or _NULL))


def next_turn(saga: Saga, state: State, budget: Budget) -> Turn:
    """Behind the newest step, whose event came or which awaits none. Raises TakesLong."""
    number = state.step + 1
    if number == len(saga.steps):
        return Turn("_was_completed", msgspec.structs.replace(state, state="completed"))
    step, view = saga.steps[number], _view(state, budget)
    try:
        if step.condition is not None and not Where(view).true(step.condition):
            return failed(saga, state, f"The condition of step {step.name} does not hold.", budget)
    except Misfit as misfit:
        why = f"The condition of step {step.name} can't be judged: {misfit}"
        return failed(saga, state, why, budget)
    found = emit_at(step.emit, view, f"steps[{number}].emit")
    if isinstance(found, Unfit):
        return failed(saga, state, f"{found.path}: {found.error}", budget)
    emission = Emission(step.emit.aggregate_type, found.id, step.emit.event_type, Raw(found.data))
    after = msgspec.structs.replace(state, step=number)
    return Turn("_step_was_emitted", after, (emission,), step.name)


def awaited(saga: Saga, state: State, event: Said) -> State:
    """The event came that the newest step waited for."""
    name = saga.steps[state.step].name
    emitted = msgspec.structs.replace(state.steps[name], awaited=event)
    return msgspec.structs.replace(state, steps={**state.steps, name: emitted})


def failed(saga: Saga, state: State, reason: str, budget: Budget) -> Turn:
    """The emitted events are compensated, the last first; or the saga is stuck. Its budget begins again.
    Raises TakesLong."""
    view, emissions = _view(state, budget), []
    for step in reversed(saga.steps):
        if step.name in state.steps and step.compensate is not None:
            found = emit_at(step.compensate, view, f"{step.name}.compensate")
            if isinstance(found, Unfit):
                return stuck(state, f"{reason} {found.path}: {found.error}")
            of = step.compensate
            emissions.append(Emission(of.aggregate_type, found.id, of.event_type, Raw(found.data)))
    after = msgspec.structs.replace(state, state="compensated", reason=reason)
    return Turn("_was_compensated", after, tuple(emissions), actor=COMPENSATOR)


def stuck(state: State, reason: str) -> Turn:
    return Turn("_was_stuck", msgspec.structs.replace(state, state="stuck", reason=reason))


def with_emitted(turn: Turn, streams: Sequence[Stream], ids: Sequence[str]) -> State:
    """The state with where the step's event is."""
    if turn.step is None:
        return turn.after
    emission, stream = turn.emissions[0], streams[0]
    emitted = Emitted(ids[0], stream.aggregate_type, stream.key, emission.event_type)
    return msgspec.structs.replace(turn.after, steps={**turn.after.steps, turn.step: emitted})


def _view(state: State, budget: Budget) -> View:
    budget.looks = 0
    budget.work(1 + state.size // COPIED_BYTES)
    trigger, steps, metadata = state.trigger, state.steps, state.metadata
    target_type, target_id = metadata.target or (None, None)
    correlation = UUID(state.correlation_id).bytes
    cause = None if metadata.causation_id is None else UUID(metadata.causation_id).bytes
    event = Event(
        bytes(16), trigger.type, *state.actor, target_type, target_id, correlation, cause, state.spec_rev,
        metadata.recorded_at_ms, guarded(bytes(metadata.extra)), bytes(trigger.data),
    )  # fmt: skip
    recorded = Recorded(Stream(bytes(16), trigger.aggregate_type, trigger.key), 1, event)
    came = {name: each.awaited for name, each in steps.items() if each.awaited is not None}
    previous = list(came.values())[-1] if came else None
    data = read(bytes(trigger.data))
    roots = {
        Root.DATA: _NULL if data is None else data,
        "$prev": _NULL if previous is None else Raw(encode(previous)),
        "$steps": Raw(encode(came)),
    }
    return View(recorded, event.payload, roots, budget)


def stream_of(tenant: bytes, key: str) -> Stream:
    return Stream(tenant, SAGA_TYPE, key)
