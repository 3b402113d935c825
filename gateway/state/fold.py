"""Events to state: a pure fold by the handlers of the spec.

Owns: what an aggregate's state is after its events, and which of them did not fit their handler.
Must not know: where events come from, how a state is kept or shown.

Each operation stands alone: one that does not fit changes nothing and is reported, and the others of the same
event apply. An erased event (no payload) counts but changes nothing. Values that no operation reaches into
come back as they were sent, to the byte: digits, escapes, order, blanks. Names of fields, and what is opened
to change something inside, come back in their plainest spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.events import Recorded
from gateway.state.budget import STATE_BYTES_MAX, Budget, Misfit
from gateway.state.draft import Draft
from gateway.state.operations import apply
from gateway.state.templates import View
from gateway.state.values import Node, decode_fields, encode, read
from spec.handlers import DEFAULT_HANDLER, AppendUnique, Handler, Remove

ERRORS_KEPT_MAX = 20
"""Errors that a state carries: enough to see what is wrong, little beside the state itself."""

_FOLDED_BYTES = 400  # a Folded with its numbers, rounded up
_ERROR_BYTES = 500  # a HandlerError with its sentence, generously


@dataclass(frozen=True, slots=True)
class HandlerError:
    """One operation that did not fit: `operation` is its index in the handler of `event_type`, `error` a
    sentence. The rest of the event's operations did apply."""

    version: int
    event_type: str
    operation: int
    error: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A state, never changed: `fold` makes the next one. `errors` are the last ERRORS_KEPT_MAX, oldest first,
    of `errors_total`."""

    length: int
    created_at_ms: int | None
    updated_at_ms: int | None
    errors: tuple[HandlerError, ...]
    errors_total: int
    data_json: bytes

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        return _FOLDED_BYTES + len(self.data_json) + _ERROR_BYTES * len(self.errors)


EMPTY = Folded(0, None, None, (), 0, b"{}")


_LIGHT_US: Final = 4_000
"""Folds that are expected to take longer don't run where everything else waits for them."""


def is_light(before: Folded, events: Sequence[Recorded], handler_of: Callable[[str], Handler]) -> bool:
    """Whether `fold` takes under 10 ms, by a bound that needs no look into the values."""
    size = len(before.data_json)
    expected_us = size // 500 + 4 * len(events)
    if expected_us > _LIGHT_US:
        return False
    values = 0
    for n, recorded in enumerate(events):
        payload = recorded.event.payload or b""
        size += len(payload)
        expected_us += len(payload) // 100
        handler = handler_of(recorded.event.type)
        for operation in () if handler is DEFAULT_HANDLER else handler:
            expected_us += 10 + size // 1000
            if isinstance(operation, Remove | AppendUnique):
                values = values or _values(before.data_json, events[:n])
                expected_us += 4 * (values + payload.count(b","))
        if values:
            values += 1 + payload.count(b",")
        if expected_us > _LIGHT_US:
            return False
    return True


def _values(state_json: bytes, events: Sequence[Recorded]) -> int:
    """A bound on the items that lists of the state have after the events."""
    return 1 + state_json.count(b",") + sum(1 + (each.event.payload or b"").count(b",") for each in events)


def fold(
    before: Folded,
    events: Iterable[Recorded],
    handler_of: Callable[[str], Handler],
    go_on: Callable[[], bool] | None = None,
    bytes_max: int = STATE_BYTES_MAX,
) -> Folded:
    """The state after `events`, which follow on those of `before`, oldest first; or after as many of them as
    it takes until `go_on`, asked after each, says no. `handler_of` takes an event type. Total: raises nothing
    for any bytes that are stored.

    The same for every way to cut a stream into calls.
    """
    draft = Draft(decode_fields(before.data_json), len(before.data_json), bytes_max)
    errors: list[HandlerError] = []
    length, created, updated = before.length, before.created_at_ms, before.updated_at_ms
    for recorded in events:
        event = recorded.event
        length += 1
        updated = event.recorded_at_ms
        if created is None:
            created = updated
        if event.payload is None:
            continue
        handler = handler_of(event.type)
        data = read(event.payload)
        if (
            handler == DEFAULT_HANDLER
            and isinstance(data, dict)
            and draft.surely_takes(data, len(event.payload))
        ):
            draft.fields.update(data)  # what nearly every event does, ten times as fast
        else:
            errors += _applied(handler, draft, recorded, data)
        if go_on is not None and not go_on():
            break
    return Folded(
        length,
        created,
        updated,
        (*before.errors, *errors)[-ERRORS_KEPT_MAX:] if errors else before.errors,
        before.errors_total + len(errors),
        encode(draft.fields),
    )


def _applied(handler: Handler, draft: Draft, recorded: Recorded, data: Node | None) -> list[HandlerError]:
    errors: list[HandlerError] = []
    view = None if data is None else View.of(recorded, data, draft.fields, Budget(draft.bytes_max))
    for index, operation in enumerate(handler):
        try:
            if view is None:
                raise Misfit("The event's data can't be read; compare it with the backup.")
            apply(operation, draft, view)
        except Misfit as misfit:
            errors.append(HandlerError(recorded.version, recorded.event.type, index, str(misfit)))
    return errors
