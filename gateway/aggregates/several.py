"""Appends to several aggregates, some with rules: judged on the states that they are appended to.

Owns: what such an append waits for. Each aggregate with rules is read, its events are judged, and the append
is handed to the log for the lengths that were judged; where another append was faster, it is judged again,
until its deadline. A rule refuses only what nothing else refuses: lengths come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from gateway.aggregates.folder import Folder, Handlers, Rules
from gateway.aside import Aside, Busy
from gateway.catalog.model import Deployed
from gateway.events import (
    ANOTHER_HISTORY,
    ANY_LENGTH,
    AT_LEAST_ONE,
    Append,
    Conflict,
    NotCommitted,
    Outcome,
    Recorded,
    RuleViolated,
    Stream,
)
from gateway.log.log import Log
from gateway.log.postgres import PostgresTrouble
from gateway.state import Folded
from gateway.state.rules import Violation, judge
from gateway.telemetry.metrics import Metrics

DeployedOf = Callable[[UUID], Deployed | None]
"""The spec by which a tenant's requests are checked."""

_NO_LENGTH: Final = 2**62
"""No stream is so long."""
_LATE: Final = NotCommitted("it was not sequenced in time; nothing was written")


@dataclass(frozen=True, slots=True)
class _Judged:
    """`pinned`: the length of each stream that was judged, by its number in the append; `violated`: which of
    them a rule refuses, and how."""

    pinned: dict[int, int]
    violated: tuple[int, RuleViolated] | None

    def refuses(self, conflict: Conflict) -> bool:
        """Whether the conflict confirms the length at which a rule refused."""
        violated = self.violated is not None and self.violated[0] == conflict.which
        return violated and self.pinned[conflict.which] == conflict.length


class RuledSeveral:
    def __init__(
        self,
        log: Log,
        deployed_of: DeployedOf,
        folder: Folder,
        aside: Aside,
        metrics: Metrics,
        deadline_s: float,
    ) -> None:
        self._log = log
        self._deployed_of = deployed_of
        self._folder = folder
        self._aside = aside
        self._metrics = metrics
        self._deadline_s = deadline_s

    async def append(self, append: Append) -> Outcome:
        """The outcome, soon after the append's deadline at the latest."""
        until = asyncio.get_running_loop().time() + self._deadline_s
        while True:
            deployed = self._deployed_of(UUID(bytes=append.stream.tenant))
            ruled = [] if deployed is None or not deployed.spec.ruled else _ruled(append, deployed)
            if deployed is None or not ruled:
                return await self._log.append(append)
            try:
                judged = await self._judge(append, ruled, deployed)
            except (PostgresTrouble, Busy):
                return NotCommitted("an aggregate with rules can't be read now")
            outcome = await self._log.append(_asking_for(append, judged))
            if not isinstance(outcome, Conflict) or outcome.which not in judged.pinned:
                return outcome
            if not _fits(_expected(append)[outcome.which], outcome.length):
                return outcome
            if judged.refuses(outcome):
                assert judged.violated is not None
                return judged.violated[1]
            self._metrics.judged_again.inc()
            if asyncio.get_running_loop().time() > until:
                return _LATE

    async def _judge(self, append: Append, ruled: list[int], deployed: Deployed) -> _Judged:
        """Raises PostgresTrouble and Busy."""
        pinned: dict[int, int] = {}
        violated: tuple[int, RuleViolated] | None = None
        for which in ruled:
            stream = append.streams[which]
            state = await self._folder.committed(stream, deployed)
            if not _fits(_expected(append)[which], state.length):
                pinned[which] = _NO_LENGTH  # it may have come to that length since, and is not judged at it
                continue
            pinned[which] = state.length
            numbers = _events_of(append, which)
            events = _recorded(append, stream, numbers, state.length)
            rules_of = Rules(deployed, stream.aggregate_type)
            handler_of = Handlers(deployed, stream.aggregate_type)
            events = handler_of.presented(events)
            work = partial(judge, state, events, rules_of, handler_of, self._folder.bytes_max, None)
            verdict: Folded | Violation = await self._aside.run(stream.tenant, work)
            if isinstance(verdict, Violation):
                event = numbers[verdict.event]
                if violated is None or event < violated[1].event:
                    refused = RuleViolated(event, verdict.rule, verdict.error, state.length)
                    violated = which, refused
        return _Judged(pinned, violated)


def _ruled(append: Append, deployed: Deployed) -> list[int]:
    """The streams of which an event has rules."""
    found = []
    for which, stream in enumerate(append.streams):
        rules_of = Rules(deployed, stream.aggregate_type)
        if any(rules_of(append.events[n].type) for n in _events_of(append, which)):
            found.append(which)
    return found


def _events_of(append: Append, which: int) -> list[int]:
    if append.spread is None:
        return list(range(len(append.events)))
    return [n for n, of in enumerate(append.spread.order) if of == which]


def _recorded(append: Append, stream: Stream, numbers: list[int], length: int) -> tuple[Recorded, ...]:
    return tuple([Recorded(stream, length + 1 + n, append.events[each]) for n, each in enumerate(numbers)])


def _expected(append: Append) -> tuple[int, ...]:
    return append.expected, *append.others


def _asking_for(append: Append, judged: _Judged) -> Append:
    """For the lengths that were judged; of what a rule refuses, for one that there never is."""
    expected = [judged.pinned.get(which, asked) for which, asked in enumerate(_expected(append))]
    if judged.violated is not None:
        expected[judged.violated[0]] = ANOTHER_HISTORY
    return msgspec.structs.replace(append, expected=expected[0], others=tuple(expected[1:]))


def _fits(expected: int, length: int) -> bool:
    return expected in (ANY_LENGTH, length) or (expected == AT_LEAST_ONE and length > 0)
