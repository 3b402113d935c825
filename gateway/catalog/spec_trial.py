"""Real history folded by a spec that is not deployed: what it would refuse, and which states it would change.
Stores nothing.

Owns: how much of what it finds is kept. Reads page by page, without a transaction: events that come meanwhile
are folded by both specs alike, or not seen.
"""

from __future__ import annotations

import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.catalog.database import statement
from gateway.catalog.spec_use import recorded_of
from gateway.events import Recorded, Stream
from gateway.json_values import decode_data
from gateway.state import EMPTY, STATE_BYTES_MAX, Folded, HandlerError, declared_in, fold, presenting, upcast
from gateway.state.values import plain, raw, spelled
from spec.differences import Difference, differences
from spec.handlers import DEFAULT_HANDLER, Handler
from spec.model import Spec

SHOWN_MAX: Final = 20
"""Of each kind of finding, the first; all are counted."""
DIFFERENCES_SHOWN_MAX: Final = 20
"""Of one state."""
_encode = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that the new schema would refuse, once its data are brought to the present revision. `path` is
    within the event: `data.total`."""

    stream: Stream
    version: int
    event_type: str
    path: str
    error: str


@dataclass(frozen=True, slots=True)
class ChangedState:
    """`too_large_at`: it has none, since it is larger than a state may be."""

    stream: Stream
    length: int
    diff: tuple[Difference, ...]
    too_large_at: int | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    stream: Stream
    error: HandlerError


@dataclass(slots=True)
class Trial:
    """What was found; `undeclared` counts events of types that the new spec does not have."""

    events: int = 0
    aggregates: int = 0
    whole: bool = True
    undeclared: int = 0
    refused: int = 0
    first_refused: list[RefusedEvent] = field(default_factory=list)
    changed: int = 0
    first_changed: list[ChangedState] = field(default_factory=list)
    misfits: int = 0
    first_misfits: list[Unfit] = field(default_factory=list)
    largest_state_bytes: int = 0
    seconds: float = 0.0
    memory_bytes: int = 0


def told(trial: Trial) -> dict[str, object]:
    """As JSON has it; values may be Decimals."""
    return {
        "events": trial.events,
        "aggregates": trial.aggregates,
        "whole": trial.whole,
        "undeclared": trial.undeclared,
        "refused": {
            "count": trial.refused,
            "first": [
                {
                    "aggregate_type": each.stream.aggregate_type, "key": each.stream.key,
                    "version": each.version, "event_type": each.event_type, "path": each.path,
                    "error": each.error,
                }
                for each in trial.first_refused
            ],
        },
        "states": {
            "differ": trial.changed,
            "first": [
                {
                    "aggregate_type": each.stream.aggregate_type, "key": each.stream.key,
                    "length": each.length, "too_large_at": each.too_large_at,
                    "diff": [one.as_json() for one in each.diff],
                }
                for each in trial.first_changed
            ],
        },
        "misfits": {
            "count": trial.misfits,
            "first": [
                {
                    "aggregate_type": each.stream.aggregate_type, "key": each.stream.key,
                    "version": each.error.version, "event_type": each.error.event_type,
                    "operation": each.error.operation, "error": each.error.error,
                }
                for each in trial.first_misfits
            ],
        },
        "largest_state_bytes": trial.largest_state_bytes,
        "seconds": round(trial.seconds, 3),
        "memory_bytes": trial.memory_bytes,
    }  # fmt: skip


Run = Callable[[Callable[[], None]], Awaitable[None]]
"""Calls what it is given, once, somewhere."""


async def _here(work: Callable[[], None]) -> None:
    work()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a trial may take. `run` has events of one aggregate folded at a time, `until` is of the monotonic
    clock, `value_chars_max` cuts each value that a difference shows."""

    page_events: int = 200
    bytes_max: int = STATE_BYTES_MAX
    until: float | None = None
    value_chars_max: int | None = None
    run: Run = _here


@dataclass(slots=True)
class _Side:
    """A spec, and the state of the present aggregate by it."""

    spec: Spec
    bytes_max: int
    folded: Folded = EMPTY

    def fold(self, events: Sequence[Recorded]) -> None:
        handler_of = partial(_handler, self.spec, events[0].stream.aggregate_type)
        self.folded = fold(
            self.folded, events, handler_of, bytes_max=self.bytes_max, present=presenting(self.spec)
        )


def _handler(spec: Spec, aggregate_type: str, event_type: str) -> Handler:
    declared = spec.aggregate_types.get(aggregate_type)
    found = None if declared is None else declared.events.get(event_type)
    return DEFAULT_HANDLER if found is None else found.handler


async def history_length(conn: Any, tenant_id: UUID, types: Sequence[str]) -> int:
    return int(await conn.fetchval(statement("history_length"), tenant_id, list(types)))


async def tried(
    conn: Any,
    tenant_id: UUID,
    deployed: Spec | None,
    spec: Spec,
    types: Sequence[str],
    limit: int | None,
    advance: Callable[[int], None],
    bounds: Bounds = Bounds(),
) -> Trial:
    """Folds the events of these aggregate types, at most `limit` of them, by both specs. `advance` is told of
    events as they are done. Where time is over, the trial is not whole."""
    begun, trial = time.monotonic(), Trial()
    sides = [_Side(each, bounds.bytes_max) for each in (spec, deployed) if each is not None]
    folding = _Folding(sides, trial, bounds.value_chars_max)
    async for events in _history(conn, tenant_id, types, limit, trial, bounds.page_events):
        await bounds.run(partial(folding.take, events))
        advance(len(events))
        if bounds.until is not None and time.monotonic() >= bounds.until:
            trial.whole = False
            break
    await bounds.run(folding.conclude)
    trial.seconds = time.monotonic() - begun
    trial.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return trial


@dataclass(slots=True)
class _Folding:
    """Both states of the aggregate whose events come; the first side is the new spec's."""

    sides: list[_Side]
    trial: Trial
    value_chars_max: int | None
    stream: Stream | None = None

    def take(self, events: Sequence[Recorded]) -> None:
        """Events of one aggregate, behind those before."""
        stream, trial = events[0].stream, self.trial
        if stream != self.stream:
            self.conclude()
        self.stream = stream
        for each in events:
            _judge(self.sides[0].spec, each, trial)
        before = self.sides[0].folded.errors_total
        for side in self.sides:
            side.fold(events)
        _keep_misfits(stream, self.sides[0].folded, before, trial)
        trial.events += len(events)

    def conclude(self) -> None:
        """What is left of an aggregate is compared."""
        if self.stream is not None:
            _conclude(self.stream, self.sides, self.trial, self.value_chars_max)


async def _history(
    conn: Any, tenant_id: UUID, types: Sequence[str], limit: int | None, trial: Trial, page_events: int
) -> AsyncIterator[Sequence[Recorded]]:
    """Events of one aggregate at a time, in their order; of a long one several times."""
    left = 2**62 if limit is None else limit
    for aggregate_type in types:
        key, version = "", 0
        while True:
            rows = await conn.fetch(
                statement("history_page"), tenant_id, aggregate_type, key, version, min(page_events, left + 1)
            )
            if len(rows) > left:
                trial.whole, rows = False, rows[:left]
            left -= len(rows)
            some: list[Recorded] = []
            for row in rows:
                recorded = recorded_of(tenant_id, aggregate_type, row)
                if some and some[-1].stream != recorded.stream:
                    yield some
                    some = []
                some.append(recorded)
            if some:
                yield some
            if not trial.whole:
                return
            if len(rows) < page_events:
                break
            key, version = rows[-1]["aggregate_id"], rows[-1]["version"]


def _judge(spec: Spec, recorded: Recorded, trial: Trial) -> None:
    declared = declared_in(spec, recorded)
    if declared is None:
        trial.undeclared += 1
        return
    payload = upcast(recorded, declared).event.payload
    if payload is None:
        return
    violation = declared.violation(decode_data(payload))
    if violation is None:
        return
    trial.refused += 1
    if len(trial.first_refused) < SHOWN_MAX:
        path = violation.under("data")
        trial.first_refused.append(
            RefusedEvent(recorded.stream, recorded.version, declared.name, path, violation.message)
        )


def _keep_misfits(stream: Stream, folded: Folded, before: int, trial: Trial) -> None:
    count = folded.errors_total - before
    trial.misfits += count
    room = SHOWN_MAX - len(trial.first_misfits)
    trial.first_misfits += [Unfit(stream, each) for each in folded.errors[-count:][:room] if count]


def _conclude(stream: Stream, sides: list[_Side], trial: Trial, value_chars_max: int | None) -> None:
    """Compares the two states of an aggregate, and begins again."""
    now = sides[0].folded
    was = sides[1].folded if len(sides) > 1 else None
    trial.aggregates += 1
    trial.largest_state_bytes = max(trial.largest_state_bytes, len(now.data_json))
    if was is not None and _differ(was, now):
        trial.changed += 1
        if len(trial.first_changed) < SHOWN_MAX:
            found = () if now.too_large_at is not None else _differences(was, now)
            if value_chars_max is not None:
                found = tuple(_cut(each, value_chars_max) for each in found)
            trial.first_changed.append(ChangedState(stream, now.length, found, now.too_large_at))
    for side in sides:
        side.folded = EMPTY


def _cut(each: Difference, chars_max: int) -> Difference:
    """A value that is longer as JSON is the beginning of that, a string."""

    def short(value: object) -> object:
        text = _encode(value).decode()
        return value if len(text) <= chars_max else f"{text[:chars_max]}…"

    return Difference(each.kind, each.pointer, short(each.was), short(each.now))


def _differ(was: Folded, now: Folded) -> bool:
    if was.too_large_at != now.too_large_at:
        return True
    return was.data_json != now.data_json and _plain(was, spelled) != _plain(now, spelled)


def _differences(was: Folded, now: Folded) -> tuple[Difference, ...]:
    """Where there are none to be told, as of texts in another order, the whole."""
    one, other = _plain(was, lambda value: value), _plain(now, lambda value: value)
    found = differences(one, other)[:DIFFERENCES_SHOWN_MAX]
    return found or (Difference("changed", "", one, other),)


def _plain(folded: Folded, of: Callable[[object], Any]) -> Any:
    return of(plain(raw(msgspec.Raw(folded.data_json))))
