"""Events as the present spec sees them: data of an earlier revision of their type, brought to it in steps.

Pure. What is stored is never changed: folds see what this makes, and so does who asks to read it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from gateway.events import Recorded
from gateway.state.budget import STATE_BYTES_MAX, Budget, Misfit
from gateway.state.draft import Draft
from gateway.state.operations import apply
from gateway.state.templates import COPIED_BYTES, View
from gateway.state.values import DATA_DEPTH_MAX, encode, read
from spec.handlers import Handler, Root
from spec.model import EventType, Spec

Report = Callable[[int, str], None]
"""Takes what of a step did not fit: its place in the step, and a sentence."""


class Present(Protocol):
    """Brings an event to its present revision; see `upcast`."""

    def __call__(
        self, recorded: Recorded, report: Report = ..., budget: Budget | None = ..., /
    ) -> Recorded: ...


_EVENT_LOOKS = 8  # what reading and writing the data of one takes, in tests of items


def is_old(recorded: Recorded, declared: EventType | None) -> bool:
    return (
        declared is not None
        and recorded.event.revision < declared.revision
        and recorded.event.payload is not None
    )


def _nothing(_operation: int, _sentence: str) -> None:
    pass


def upcast(
    recorded: Recorded,
    declared: EventType | None,
    report: Report = _nothing,
    budget: Budget | None = None,
) -> Recorded:
    """The event with its data as the type declares them now; itself where they are already, or where they
    can't be read. An operation that does not fit the data changes nothing. Raises TakesLong, where the budget
    bounds what is done at once."""
    if declared is None or not is_old(recorded, declared):
        return recorded
    text, event = recorded.event.payload, recorded.event
    assert text is not None
    fields = read(text)
    if not isinstance(fields, dict):
        if any(declared.upcasts[event.revision - 1 :]):
            report(0, f"upcast of revision {event.revision}: The data is not an object.")
        return recorded
    draft = Draft(fields, len(text), STATE_BYTES_MAX, DATA_DEPTH_MAX)
    budget = budget or Budget()
    for revision in range(event.revision, declared.revision):
        said, step = partial(_said, report, revision), declared.upcasts[revision - 1]
        budget.work(_EVENT_LOOKS + 3 * len(step) + len(text) // COPIED_BYTES)
        _step(step, recorded, draft, budget, said)
    brought = msgspec.structs.replace(event, payload=encode(draft.fields))
    return Recorded(recorded.stream, recorded.version, brought)


def presenting(spec: Spec) -> Present | None:
    """What brings the events of a spec to their present revision; None where all are of it."""
    revised = any(each.revised for each in spec.aggregate_types.values())
    return partial(_presented, spec) if revised else None


def _presented(
    spec: Spec, recorded: Recorded, report: Report = _nothing, budget: Budget | None = None
) -> Recorded:
    return upcast(recorded, declared_in(spec, recorded), report, budget)


def declared_in(spec: Spec, recorded: Recorded) -> EventType | None:
    found = spec.aggregate_types.get(recorded.stream.aggregate_type)
    return None if found is None else found.events.get(recorded.event.type)


def _said(report: Report, revision: int, operation: int, sentence: str) -> None:
    report(operation, f"upcast of revision {revision}: {sentence}")


def _step(step: Handler, recorded: Recorded, draft: Draft, budget: Budget, report: Report) -> None:
    budget.looks = 0
    for index, operation in enumerate(step):
        view = View(recorded, None, {Root.DATA: draft.fields, Root.STATE: draft.fields}, budget)
        try:
            apply(operation, draft, view, partial(report, index))
        except Misfit as misfit:
            report(index, str(misfit))
