"""Events to state: a pure fold by the handlers of the spec.

Owns: what an aggregate's state is after its events, and which of them did not fit their handler.
Must not know: where events come from, how a state is kept or shown.

Each operation stands alone: one that does not fit changes nothing and is reported, and the others of the same
event apply. An erased event (no payload) counts but changes nothing. Values that no operation reaches into
come back as they were sent, to the byte: digits, escapes, order, blanks. Names of fields, and what is opened
to change something inside, come back in their plainest spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.events import Recorded
from gateway.state.draft import Draft
from gateway.state.operations import apply
from gateway.state.templates import Misfit, View
from gateway.state.values import Node, decode_fields, encode, read
from spec.handlers import DEFAULT_HANDLER, Handler

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


def fold(before: Folded, events: Iterable[Recorded], handler_of: Callable[[str], Handler]) -> Folded:
    """The state after `events`, which follow on those of `before`, oldest first. `handler_of` takes an event
    type. Total: raises nothing for any bytes that are stored.

    The same for every way to cut a stream into calls.
    """
    draft = Draft(decode_fields(before.data_json), len(before.data_json))
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
        if handler == DEFAULT_HANDLER and isinstance(data, dict) and draft.surely_holds(len(event.payload)):
            draft.fields.update(data)  # what nearly every event does, ten times as fast
        else:
            errors += _applied(handler, draft, recorded, data)
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
    for index, operation in enumerate(handler):
        try:
            if data is None:
                raise Misfit("The event's data can't be read; compare it with the backup.")
            apply(operation, draft, View(recorded, data, draft.fields))
        except Misfit as misfit:
            errors.append(HandlerError(recorded.version, recorded.event.type, index, str(misfit)))
    return errors
