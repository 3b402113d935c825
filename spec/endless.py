"""Sagas that would begin themselves again without end: by a step's event, or by what follows from that."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from spec.implications import Emit, Schedule
from spec.model import Spec
from spec.sagas import Saga, Step

_Name = tuple[str, str]
"""Aggregate type and event type."""


@dataclass(frozen=True, slots=True)
class Endless:
    """`pointer` is that of a step's `emit`, with which the circle leaves the saga; `chain` begins and ends
    with the trigger."""

    pointer: str
    chain: tuple[str, ...]

    @property
    def text(self) -> str:
        return (
            f"The saga begins itself again without end: {' → '.join(self.chain)}. A `condition` of a step "
            "or of an implication, or a rule of an event, can end that."
        )


class _Arrow(NamedTuple):
    """`saga` is None where the event is implied."""

    source: _Name
    saga: str | None
    emit: Emit

    @property
    def to(self) -> _Name:
        return self.emit.aggregate_type, self.emit.event_type


def endless_sagas(spec: Spec) -> Iterator[Endless]:
    """At most one circle of each saga, and each circle once. One in which something may end or delay a round
    does not count: a condition, a rule, a unique value, a timer, a compensation, an awaited event that
    nothing in the spec emits."""
    arrows = list(_arrows(spec))
    into: dict[_Name, list[_Arrow]] = {}
    for arrow in arrows:
        into.setdefault(arrow.to, []).append(arrow)
    found: set[frozenset[str]] = set()
    for saga in spec.sagas.values():
        ahead = _towards(saga.trigger, into)
        first = next((each for each in arrows if each.saga == saga.name and each.to in ahead), None)
        if first is None:
            continue
        circle = [first]
        while circle[-1].to != saga.trigger:
            circle.append(ahead[circle[-1].to])
        places = frozenset([each.emit.pointer for each in circle])
        if places not in found:
            found.add(places)
            yield Endless(first.emit.pointer, tuple(_told(circle)))


def _towards(end: _Name, into: dict[_Name, list[_Arrow]]) -> dict[_Name, _Arrow]:
    """For each event that leads to `end`, the first arrow of a shortest way; for `end`, of one back to it."""
    ahead: dict[_Name, _Arrow] = {}
    left = deque([end])
    while left:
        for arrow in into.get(left.popleft(), ()):
            if arrow.source not in ahead:
                ahead[arrow.source] = arrow
                left.append(arrow.source)
    return ahead


def _told(circle: list[_Arrow]) -> Iterator[str]:
    yield ".".join(circle[0].source)
    for each in circle:
        if each.saga is not None:
            yield f"saga {each.saga}"
        yield ".".join(each.to)


def _arrows(spec: Spec) -> Iterator[_Arrow]:
    """What leads from event to event, whatever their data and states are."""
    for of in spec.aggregate_types.values():
        for event_type in of.events.values():
            for each in event_type.implications:
                sure = each.condition is None and not isinstance(each.what, Schedule)
                if sure and not _may_refuse(spec, each.emit):
                    yield _Arrow((of.name, event_type.name), None, each.emit)
    emitted = _emitted(spec)
    for saga in spec.sagas.values():
        for step in _sure_steps(spec, saga, emitted):
            yield _Arrow(saga.trigger, saga.name, step.emit)


def _sure_steps(spec: Spec, saga: Saga, emitted: frozenset[_Name]) -> Iterator[Step]:
    for step in takewhile(
        lambda each: each.condition is None and not _may_refuse(spec, each.emit), saga.steps
    ):
        yield step
        if (wait := step.awaited) is not None and not any(
            (wait.aggregate_type, each) in emitted for each in wait.event_types if each not in step.fail_on
        ):
            return


def _may_refuse(spec: Spec, emit: Emit) -> bool:
    event_type = spec.aggregate_types[emit.aggregate_type].events[emit.event_type]
    return bool(event_type.rules or event_type.claims)


def _emitted(spec: Spec) -> frozenset[_Name]:
    """The events that the spec itself can bring about; timers bring them later."""
    events = (event for of in spec.aggregate_types.values() for event in of.events.values())
    implied = (
        each.emit for event in events for each in event.implications if not isinstance(each.what, Schedule)
    )
    steps = (step.emit for saga in spec.sagas.values() for step in saga.steps)
    return frozenset([(each.aggregate_type, each.event_type) for each in (*implied, *steps)])
