"""Events to state: a pure fold by the handlers of the spec.

Owns: what an aggregate's state is after its events, and which of them did not fit their handler.
Must not know: where events come from, how a state is kept or shown.

Each operation stands for itself: one that does not fit changes nothing and is reported, and the others of the
same event apply. An erased event (no payload) counts but changes nothing. Values that no operation reaches
into come back as they were sent, to the byte: digits, escapes, order, blanks. Names of fields, and what is
opened to change something inside, come back in their plainest spelling.

A state that an event leaves longer than it may be is no state any more: it is `{}`, and stays so whatever
follows, with the version of that event. The events go on being counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never, cast

import msgspec

from gateway.events import Event, Joined, Recorded
from gateway.state.budget import OPERATIONS_A_LOOK, STATE_BYTES_MAX, Budget, Misfit, TooLarge
from gateway.state.draft import FIELDS_MAX, Draft
from gateway.state.operations import apply
from gateway.state.templates import View
from gateway.state.upcast import Present
from gateway.state.values import Fields, Node, decode_fields, encode, read, read_objects
from spec import handlers
from spec.handlers import DEFAULT_HANDLER, Handler, Operation

FOLD_REVISION: Final = 1
"""Of what a fold makes of handlers and events: one more with each change of that, so that states which were
kept before count no longer."""

ERRORS_KEPT_MAX = 20
"""Errors that a state carries: enough to see what is wrong, little beside the state itself."""

_FOLDED_BYTES = 400  # a Folded with its numbers, rounded up
_ERROR_BYTES = 500  # a HandlerError with its sentence, generously


@dataclass(frozen=True, slots=True)
class HandlerError:
    """One operation that did not fit: `operation` is its index in the handler of `event_type`, `error` a
    sentence, which begins with the place where the operation is within that one. The rest of the event's
    operations did apply."""

    version: int
    event_type: str
    operation: int
    error: str


class Folded(msgspec.Struct, frozen=True, gc=False):
    """A state, never changed: `fold` makes the next one. `errors` are the last ERRORS_KEPT_MAX, oldest first,
    of `errors_total`. `too_large_at` is the version with which the state became longer than it may be."""

    length: int
    created_at_ms: int | None
    updated_at_ms: int | None
    errors: tuple[HandlerError, ...]
    errors_total: int
    data_json: bytes
    too_large_at: int | None = None

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        return _FOLDED_BYTES + len(self.data_json) + _ERROR_BYTES * len(self.errors)


EMPTY = Folded(0, None, None, (), 0, b"{}")


_LIGHT_US: Final = 4_000
"""Folds that are expected to take longer don't run where everything else waits for them."""

_FIELD_BYTES: Final = len('"":0,')  # of the shortest one

_SIMPLE_MAX: Final = 8  # operations

AT_ONCE_LOOKS: Final = 1_000
"""Tests that a fold makes where everything else waits for it: under 10 ms. It ends by TakesLong then, however
little was expected of its handler."""


def _merge_us(before: int, events: int, data: int = 0) -> int:
    """About how long so many events take whose data merge into a state, in microseconds: `before` and `data`
    are the bytes of the state and of the events."""
    return before // 500 + 4 * events + data // 100


def is_light(before: Folded, events: Sequence[Recorded], handler_of: Callable[[str], Handler]) -> bool:
    """Whether `fold` takes under 10 ms, by a bound that needs no look into the values."""
    size = len(before.data_json)
    expected_us = _merge_us(size, len(events))
    if expected_us > _LIGHT_US:
        return False
    if all(handler_of(kind) is DEFAULT_HANDLER for kind in {each.event.type for each in events}):
        return expected_us + sum([len(each.event.payload or b"") for each in events]) // 100 <= _LIGHT_US
    values = 0
    for n, recorded in enumerate(events):
        payload = recorded.event.payload or b""
        size += len(payload)
        expected_us += len(payload) // 100
        handler = handler_of(recorded.event.type)
        for operation in () if handler is DEFAULT_HANDLER else handler:
            expected_us += 10 + size // 1000
            if scans := _scans(operation):
                values = values or _values(before.data_json, events[:n])
                expected_us += 4 * scans * (values + payload.count(b","))
        if values:
            values += 1 + payload.count(b",")
        if expected_us > _LIGHT_US:
            return False
    return True


def _values(state_json: bytes, events: Sequence[Recorded]) -> int:
    """A bound on the items that lists of the state have after the events."""
    return 1 + state_json.count(b",") + sum(1 + (each.event.payload or b"").count(b",") for each in events)


def _scans(operation: Operation) -> int:
    """How often it looks at every item of a list, about; what it does to one counts as several."""
    match operation:
        case (
            handlers.Set()
            | handlers.Merge()
            | handlers.Append()
            | handlers.Increment()
            | handlers.Decrement()
            | handlers.SetAt()
            | handlers.MergeAt()
            | handlers.RemoveAt()
            | handlers.IncrementAt()
        ):
            return 0
        case handlers.Remove(_, where):
            return 0 if where is None else 1
        case handlers.AppendUnique() | handlers.Upsert() | handlers.Filter():
            return 1
        case handlers.Map(_, _, do) | handlers.UpdateWhere(_, _, _, do):
            return 4 + sum(5 + _scans(each) for each in do)
        case handlers.Conditional(_, then, otherwise):
            return sum(map(_scans, then + otherwise))
        case handlers.Let(_, do):
            return sum(map(_scans, do))
        case _:
            assert_never(operation)


def is_simple(handler: Handler) -> bool:
    """Whether it is folded in some microseconds where neither state nor data are large."""
    return len(handler) <= _SIMPLE_MAX and all(
        _scans(each) == 0 and not isinstance(each, handlers.Conditional | handlers.Let) for each in handler
    )


def merged(
    before: Folded,
    events: Sequence[Recorded],
    handler_of: Callable[[str], Handler],
    bytes_max: int = STATE_BYTES_MAX,
    *,
    admitted: bool = False,
) -> Folded | None:
    """What `fold` makes of events that do no more than merge their data, of their present revision, where
    that is light and surely fits; in half the time. None: `is_light` and `fold` are to judge. `admitted`:
    these are events as the edge let them in, not as they may have been changed where they are
    stored."""
    for kind in {each.event.type for each in events}:
        if handler_of(kind) is not DEFAULT_HANDLER:
            return None
    payloads = [each.event.payload for each in events]
    if before.too_large_at is not None or not all(payloads):
        return None
    texts = cast(list[bytes], payloads)
    old, new = len(before.data_json), sum(map(len, texts))
    if old + new > bytes_max or _merge_us(old, len(texts), new) > _LIGHT_US:
        return None
    objects = read_objects(texts, admitted=admitted)
    if not objects:
        return None
    fields = decode_fields(before.data_json)
    if len(fields) + sum(map(len, objects)) > FIELDS_MAX:
        return None
    for each in objects:
        fields.update(each)
    first, last = events[0].event.recorded_at_ms, events[-1].event.recorded_at_ms
    return Folded(
        before.length + len(texts),
        first if before.created_at_ms is None else before.created_at_ms,
        last,
        before.errors,
        before.errors_total,
        encode(fields),
    )


def merged_joined(joined: Joined, bytes_max: int = STATE_BYTES_MAX) -> Folded | None:
    """What `merged` makes of the first events of a stream, of which no more is known than a merge takes."""
    size = len(joined.data)
    if size > bytes_max or _merge_us(0, joined.count, size) > _LIGHT_US:
        return None
    objects = read_objects(joined.data.split(b"\0"))
    if not objects or len(objects) != joined.count:
        return None
    if size > FIELDS_MAX * _FIELD_BYTES and sum(map(len, objects)) > FIELDS_MAX:
        return None
    fields, *others = objects
    for each in others:
        fields.update(each)
    return Folded(joined.count, joined.first_at_ms, joined.last_at_ms, (), 0, encode(fields))


def fold(
    before: Folded,
    events: Iterable[Recorded],
    handler_of: Callable[[str], Handler],
    go_on: Callable[[], bool] | None = None,
    bytes_max: int = STATE_BYTES_MAX,
    at_once: int | None = None,
    present: Present | None = None,
) -> Folded:
    """The state after `events`, which follow on those of `before`, oldest first; or after as many of them as
    it takes until `go_on`, asked after each, says no. `handler_of` takes an event type; `present` brings
    events of earlier revisions to the present one. Total: raises nothing for any bytes that are stored, but
    TakesLong where `at_once` bounds the tests of all events together.

    The same for every way to cut a stream into calls.
    """
    return fold_within(before, events, handler_of, Budget(bytes_max, at_once), go_on, present)


def fold_within(
    before: Folded,
    events: Iterable[Recorded],
    handler_of: Callable[[str], Handler],
    budget: Budget,
    go_on: Callable[[], bool] | None = None,
    present: Present | None = None,
) -> Folded:
    """The same within a budget that several folds share: what may be done at once, all of them together."""
    folding = Folding(before, handler_of, budget.bytes_max, present)
    for recorded in events:
        folding.add(recorded, budget)
        if go_on is not None and not go_on():
            break
    return folding.folded()


class Folding:
    """A state while events are folded into it, with what `fold` takes. After TakesLong it is none any
    more."""

    __slots__ = (
        "_before",
        "_created",
        "_draft",
        "_handler_of",
        "_handlers",
        "_length",
        "_misfits",
        "_present",
        "_updated",
        "too_large_at",
    )

    def __init__(
        self,
        before: Folded,
        handler_of: Callable[[str], Handler],
        bytes_max: int,
        present: Present | None = None,
    ) -> None:
        self._before = before
        self._draft = Draft(decode_fields(before.data_json), len(before.data_json), bytes_max)
        self._misfits = _Misfits()
        self._length, self._created, self._updated = before.length, before.created_at_ms, before.updated_at_ms
        self.too_large_at = before.too_large_at
        self._handler_of = handler_of
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._present = present

    @property
    def size_at_most(self) -> int:
        """Of the state as JSON; so many bytes of events it keeps from being freed, about."""
        return self._draft.size_at_most

    @property
    def fields(self) -> Fields:
        """Those of the state."""
        return self._draft.fields

    def merged(self, length: int, at_ms: int, size: int) -> None:
        """Events up to this length, the last of which was recorded then, were merged into `fields` by others:
        `size` bytes of data, so few that they surely fit."""
        self._length, self._updated = length, at_ms
        self._draft.size_at_most += size

    def _handler(self, event_type: str) -> tuple[Handler, bool]:
        """And whether it is the one that most types have."""
        handler = self._handler_of(event_type)
        found = self._handlers[event_type] = handler, handler == DEFAULT_HANDLER
        return found

    def add(self, recorded: Recorded, budget: Budget) -> None:
        """The next event. Raises TakesLong."""
        if not self._changed_by(recorded.event):
            return
        if self._present is not None:
            self._misfits.recorded = recorded
            recorded = self._present(recorded, self._misfits.add_at, budget)
        self._apply(recorded, read(recorded.event.payload or b""), budget)

    def add_read(self, recorded: Recorded, data: Node, budget: Budget) -> None:
        """The same of one that is of its type's present revision, and whose data were read before."""
        if self._changed_by(recorded.event):
            self._apply(recorded, data, budget)

    def _changed_by(self, event: Event) -> bool:
        """Counts it; whether it may change anything."""
        self._length += 1
        self._updated = event.recorded_at_ms
        if self._created is None:
            self._created = event.recorded_at_ms
        return event.payload is not None and self.too_large_at is None

    def _apply(self, recorded: Recorded, data: Node | None, budget: Budget) -> None:
        event, draft = recorded.event, self._draft
        handler, merges = self._handlers.get(event.type) or self._handler(event.type)
        if merges and type(data) is dict and draft.surely_takes(data, len(event.payload or b"")):
            draft.fields.update(data)  # what nearly every event does, ten times as fast
        elif not _applied(handler, draft, recorded, data, budget, self._misfits):
            self.too_large_at = recorded.version
            draft.fields.clear()

    def folded(self) -> Folded:
        """The state after these events."""
        before, misfits = self._before, self._misfits
        return Folded(
            self._length,
            self._created,
            self._updated,
            (*before.errors, *misfits.last)[-ERRORS_KEPT_MAX:] if misfits.total else before.errors,
            before.errors_total + misfits.total,
            encode(self._draft.fields),
            self.too_large_at,
        )


@dataclass(slots=True)
class _Misfits:
    """`recorded` and `operation` are the present ones."""

    last: deque[HandlerError] = field(default_factory=lambda: deque(maxlen=ERRORS_KEPT_MAX))
    total: int = 0
    recorded: Recorded | None = None
    operation: int = 0

    def add(self, error: str) -> None:
        assert self.recorded is not None
        version, event_type = self.recorded.version, self.recorded.event.type
        self.last.append(HandlerError(version, event_type, self.operation, error))
        self.total += 1

    def add_at(self, operation: int, error: str) -> None:
        self.operation = operation
        self.add(error)


def _applied(
    handler: Handler,
    draft: Draft,
    recorded: Recorded,
    data: Node | None,
    budget: Budget,
    misfits: _Misfits,
) -> bool:
    """Whether the state is no longer than it may be."""
    budget.looks = 0
    if len(handler) >= OPERATIONS_A_LOOK:
        budget.work(len(handler) // OPERATIONS_A_LOOK)
    misfits.recorded = recorded
    view = None if data is None else View.of(recorded, data, draft.fields, budget)
    for misfits.operation, operation in enumerate(handler):
        try:
            if view is None:
                raise Misfit("The event's data can't be read; compare it with the backup.")
            apply(operation, draft, view, misfits.add)
        except TooLarge:
            return False
        except Misfit as misfit:
            misfits.add(str(misfit))
    return not draft.is_too_large()
