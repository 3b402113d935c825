"""Appends that rules or implications concern, judged on the states that they are appended to.

Owns: what such an append waits for. Each aggregate that has them is read, the events are judged (implied.py),
and the append is handed to the log for the lengths that were judged; where another append was faster, it is
judged again, until its deadline. A rule refuses only what nothing else refuses: lengths come first.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from gateway.aggregates.folder import Folder
from gateway.aggregates.implied import BeingRemoved, Judged, Judging, RecordWanted, SchemaWork
from gateway.aggregates.judging import DeployedOf, judges
from gateway.aggregates.placing import Placing
from gateway.aggregates.record_before import record_before
from gateway.appends import ANOTHER_HISTORY, Append, fits
from gateway.aside import Aside, Busy
from gateway.catalog.model import Deployed, tenant_of
from gateway.events import Stream
from gateway.log.log import Log
from gateway.outcomes import Conflict, NotCommitted, Outcome
from gateway.postgres.errors import PostgresTrouble
from gateway.state import AT_ONCE_LOOKS, TakesLong
from gateway.telemetry.metrics import Metrics

_AT_ONCE_BYTES: Final = 16 * 1024
"""Of events and states that are judged where everything else waits; more is judged beside the loop."""
_LATE: Final = NotCommitted("it was not sequenced in time; nothing was written")


class RuledSeveral:
    def __init__(
        self,
        log: Log,
        placing: Placing,
        deployed_of: DeployedOf,
        folder: Folder,
        aside: Aside,
        metrics: Metrics,
        deadline_s: float,
        event_bytes_max: int,
        schema_work_max: int,
    ) -> None:
        self._schema_work_max = schema_work_max
        self._event_bytes_max = event_bytes_max
        self._locks: WeakValueDictionary[Stream, asyncio.Lock] = WeakValueDictionary()
        self._log = log
        self._placing = placing
        self._deployed_of = deployed_of
        self._folder = folder
        self._aside = aside
        self._metrics = metrics
        self._deadline_s = deadline_s

    def at_once(self, append: Append, deployed: Deployed) -> Append | None:
        """What the log is asked for, with all that is implied, where that takes no look at a state. None: it
        takes one, or is refused. The append implies events, has several aggregates, or a condition."""
        if (append.spread is not None or append.condition is not None) and not is_judged(append, deployed):
            return append
        if append.size_bytes >= _AT_ONCE_BYTES:
            return None
        judging = self._judging(append, deployed)
        try:
            judged = judging.run(AT_ONCE_LOOKS)
        except (TakesLong, BeingRemoved):
            return None
        if not isinstance(judged, Judged) or judged.pinned or judged.refused is not None:
            return None
        return judged.append

    async def append(self, append: Append) -> Outcome:
        """The outcome, soon after the append's deadline at the latest."""
        deployed = self._deployed_of(tenant_of(append.stream.tenant))
        if deployed is None or not is_judged(append, deployed):
            return await self._placing.append(append)  # which needs no turn: the log takes many at once
        until = asyncio.get_running_loop().time() + self._deadline_s
        turn = _Turn(self._locks)
        try:
            async with asyncio.timeout(self._deadline_s) as within:
                await turn.take(append.stream)
                while True:
                    outcome = await self._once(append, within)
                    if not isinstance(outcome, Stream):
                        return outcome
                    self._metrics.judged_again.inc()
                    if asyncio.get_running_loop().time() > until:
                        return _LATE
                    await turn.take(outcome)
        except TimeoutError:  # while it waited for its turn: nothing of it was on its way
            return _LATE
        finally:
            turn.end()

    async def _once(self, append: Append, within: asyncio.Timeout) -> Outcome | Stream:
        """The outcome; or the stream in which another append was faster, or the append's own where the spec
        was."""
        deployed = self._deployed_of(tenant_of(append.stream.tenant))
        if deployed is None or not is_judged(append, deployed):
            within.reschedule(None)
            return await self._placing.append(append)
        try:
            judged = await self._judge(append, deployed)
        except (PostgresTrouble, Busy):
            return NotCommitted("an aggregate with rules or implications can't be read now")
        except BeingRemoved:
            return NotCommitted("a deployment may be removing what it implies")
        if self._deployed_of(tenant_of(append.stream.tenant)) is not deployed:
            return append.stream  # other rules may hold since then, and other events be implied
        until = within.when()
        within.reschedule(None)  # the log has a deadline of its own, and its outcome is the truth
        outcome = await self._placing.append(_asking_for(judged))
        within.reschedule(until)
        if not isinstance(outcome, Conflict) or outcome.which not in judged.pinned:
            confirmed = judged.refused is not None and _asked_in_vain(append, outcome)
            return judged.refused if judged.refused is not None and confirmed else outcome
        if outcome.which < len(append.streams):
            if not fits(append.lengths[outcome.which], outcome.length):
                return outcome
            if _refuses(judged, outcome):
                assert judged.violated is not None
                return judged.violated[1]
            if judged.refused is not None and outcome.length == judged.pinned[outcome.which]:
                return judged.refused
        return judged.append.streams[outcome.which]

    def _judging(self, append: Append, deployed: Deployed) -> Judging:
        work = SchemaWork(self._schema_work_max)
        return Judging(append, deployed, self._folder.bytes_max, self._event_bytes_max, work=work)

    async def _judge(self, append: Append, deployed: Deployed) -> Judged:
        """Raises PostgresTrouble, Busy and BeingRemoved."""
        judging = self._judging(append, deployed)
        light = True  # once it is not, it is judged beside the loop from the beginning to the end
        while True:
            size = append.size_bytes + sum([each.size_bytes for each in judging.states.values()])
            light = light and size < _AT_ONCE_BYTES and not judging.states.keys() - append.streams
            judged = None
            if light:
                try:
                    judged = judging.run(AT_ONCE_LOOKS)
                except TakesLong:
                    light = False
            if judged is None:
                judged = await self._aside.run(append.stream.tenant, judging.run)
            if isinstance(judged, Judged):
                return judged
            if isinstance(judged, RecordWanted):
                length, last = await record_before(self._log, judged.stream)
                judging.records[judged.stream] = (length, None if last is None else last.record)
                continue
            judging.states[judged] = await self._folder.committed(judged, deployed)


class _Turn:
    """Appends to one stream, and those that met each other in another one, go on one after the other: all at
    once, each would overtake the others again and again. An append holds one lock at a time, so no two wait
    for each other."""

    def __init__(self, locks: WeakValueDictionary[Stream, asyncio.Lock]) -> None:
        self._locks = locks
        self._held: asyncio.Lock | None = None

    async def take(self, stream: Stream) -> None:
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = asyncio.Lock()
        if lock is self._held:
            return
        self.end()
        await lock.acquire()
        self._held = lock

    def end(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


def is_judged(append: Append, deployed: Deployed) -> bool:
    """Whether an event of it has rules or implications."""
    if not judges(deployed.reading):
        return False
    for n, event in enumerate(append.events):
        stream = append.stream if append.spread is None else append.spread.stream_of(n)
        declared = deployed.reading.aggregate_types.get(stream.aggregate_type)
        found = None if declared is None else declared.events.get(event.type)
        if found is not None and (found.rules or found.implies):
            return True
    return False


def _refuses(judged: Judged, conflict: Conflict) -> bool:
    """Whether the conflict confirms the length at which a rule refused."""
    violated = judged.violated is not None and judged.violated[0] == conflict.which
    return violated and judged.pinned[conflict.which] == conflict.length


def _asked_in_vain(append: Append, outcome: Outcome) -> bool:
    """Whether it conflicts with nothing but the length that there never is."""
    if not isinstance(outcome, Conflict) or outcome.which != len(append.streams) - 1:
        return False
    return fits(append.lengths[-1], outcome.length)


def _asking_for(judged: Judged) -> Append:
    """For the lengths that were judged; of what is refused, for one that there never is: of the last stream,
    where what an event implies is refused, so that a conflict of each one before it is found first."""
    append = judged.append
    expected = [judged.pinned.get(which, asked) for which, asked in enumerate(append.lengths)]
    if judged.violated is not None:
        expected[judged.violated[0]] = ANOTHER_HISTORY
    if judged.refused is not None:
        expected[-1] = ANOTHER_HISTORY
    return msgspec.structs.replace(append, expected=expected[0], others=tuple(expected[1:]))
