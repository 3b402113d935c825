"""Timers as values: the event that one appends, the events that cancel it, and the id by which it is set
once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import msgspec

from gateway.admit.query import UNIX_SECONDS_MAX, UNIX_SECONDS_MIN, rfc_3339
from gateway.derived_ids import id_of
from gateway.follow.model import Event
from gateway.follow.threads import Steps, Turn
from gateway.state.budget import Misfit
from gateway.state.implications import Unfit, emit_at, text_of, view_of
from gateway.state.predicates import Where
from gateway.state.templates import View, value_of
from gateway.state.values import plain
from spec.identifiers import canonicalize
from spec.implications import Implication, Schedule
from spec.model import Spec

_DOMAIN: Final = b"sluice/schedule/1"
_MS: Final = 1_000.0
_TIMER_LOOKS: Final = 5  # what a short one takes, in tests of items


_TIMER_BYTES: Final = 500  # of one without its data, or of what cancels it, rounded up


class Emission(msgspec.Struct, frozen=True):
    """`id` is None for a new aggregate."""

    aggregate_type: str
    id: str | None
    event_type: str
    data: msgspec.Raw


class Watched(msgspec.Struct, frozen=True):
    """Events that cancel: of one type, of one aggregate."""

    aggregate_type: str
    key: str
    event_type: str


class Timer(msgspec.Struct, frozen=True):
    """One of `delay_s` (from the commit of its trigger) and `at_s` (Unix) is set."""

    id: bytes
    trigger: Event
    delay_s: float | None
    at_s: float | None
    emission: Emission
    cancel_on: tuple[Watched, ...]

    @property
    def size(self) -> int:
        """Memory that it takes, about."""
        return _TIMER_BYTES + len(memoryview(self.emission.data)) + _TIMER_BYTES * len(self.cancel_on)


class Faulty(msgspec.Struct, frozen=True):
    """A timer that can't be set."""

    trigger: Event
    path: str
    error: str

    @property
    def event(self) -> str:
        return str(UUID(bytes=self.trigger.recorded.event.id))

    def told(self) -> str:
        """Which event, where in the spec, and why."""
        of, event_type = self.trigger.recorded.stream.aggregate_type, self.trigger.recorded.event.type
        return f"{of}.{event_type} {self.event}, {self.path}: {self.error}"


def timer_id(cause: bytes, rule: str) -> bytes:
    """16 bytes, a UUIDv5 of the rule and the event that caused it."""
    return id_of(_DOMAIN + cause + rule.encode())


def timers_of(
    event: Event,
    state_json: bytes,
    implications: Sequence[Implication],
    spec: Spec,
    event_bytes_max: int,
    turn: Turn,
) -> Steps[list[Timer | Faulty]]:
    """What the event sets, on the state of its aggregate after it; all of it within one budget."""
    found: list[Timer | Faulty] = []
    view = view_of(event.recorded, state_json, turn.budget)
    for n, each in enumerate(implications):
        if not isinstance(each.what, Schedule):
            continue
        yield
        turn.budget.work(_TIMER_LOOKS)
        path = f"implications[{n}]"
        try:
            if each.condition is not None and not Where(view).true(each.condition):
                continue
        except Misfit as misfit:
            found.append(Faulty(event, f"{path}.condition", str(misfit)))
            continue
        found.append(_timer(event, each.what, path, view, spec, event_bytes_max))
    return found


def _timer(
    event: Event, schedule: Schedule, path: str, view: View, spec: Spec, event_bytes_max: int
) -> Timer | Faulty:
    emitted = emit_at(schedule.emit, view, f"{path}.schedule.emit")
    if isinstance(emitted, Unfit):
        return Faulty(event, emitted.path, emitted.error)
    if len(emitted.data) > event_bytes_max:
        why = f"`data` is {len(emitted.data)} bytes; the limit is {event_bytes_max}."
        return Faulty(event, f"{path}.schedule.emit.data", why)
    delay_s = at_s = None
    if schedule.delay_ms is not None:
        delay_s = schedule.delay_ms / _MS
    else:
        assert schedule.at is not None
        try:
            node = value_of(schedule.at, view)
        except Misfit as misfit:
            return Faulty(event, f"{path}.schedule.at", str(misfit))
        at_s = None if node is None else time_of(plain(node))
        if at_s is None:
            return Faulty(event, f"{path}.schedule.at", "This is not a time in RFC 3339 or in Unix seconds.")
    watched = []
    for n, watch in enumerate(schedule.cancel_on):
        place = f"{path}.schedule.cancel_on[{n}].id"
        key = text_of(watch.id, view, place)
        if isinstance(key, Unfit):
            return Faulty(event, key.path, key.error)
        canonical = canonicalize(key, spec.singletons)
        if canonical is None:
            return Faulty(event, place, "This is not an identifier.")
        watched.append(Watched(watch.aggregate_type, canonical, watch.event_type))
    emit = schedule.emit
    identifier = emitted.id
    if identifier is not None:  # an invalid one is refused when the timer fires
        identifier = canonicalize(identifier, spec.singletons) or identifier
    emission = Emission(emit.aggregate_type, identifier, emit.event_type, msgspec.Raw(emitted.data))
    return Timer(timer_id(event.recorded.event.id, path), event, delay_s, at_s, emission, tuple(watched))


def time_of(value: object) -> float | None:
    """Unix seconds of a time in RFC 3339, or of a number of them; None for what is neither, and for a time
    that has no year of four digits in UTC."""
    if isinstance(value, str):
        found = rfc_3339(value)
        seconds = None if found is None else found / 1_000_000
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        seconds = float(value) if 0 <= value <= UNIX_SECONDS_MAX + 1 else None
    else:
        seconds = None
    # A float of the year 9999 rounds its last microseconds up.
    return seconds if seconds is not None and UNIX_SECONDS_MIN <= seconds < UNIX_SECONDS_MAX + 1 else None
