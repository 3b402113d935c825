"""Appends that rules judge, each on the very state that it is appended to.

Owns: what an append of an aggregate type with rules waits for, and its refusal by a rule. An append that its
rules take is handed to the log for the length that it was judged at, so it is appended to that state or not
at all; where another append was faster it is judged again, until its deadline. A refusal is told only by a
state that was the committed one after the append came, and only where the append was not committed before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Final

import msgspec

from gateway.aggregates import judging
from gateway.aggregates.folder import Folder, Rules
from gateway.aggregates.judging import DeployedOf
from gateway.aggregates.lane import Asked, Lane
from gateway.aggregates.placing import Placing
from gateway.aggregates.several import RuledSeveral
from gateway.appends import ANOTHER_HISTORY, Append, fits
from gateway.aside import Aside, Busy
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.log.append.pending import APPEND_BYTES, Link, Waiter
from gateway.log.log import Log
from gateway.outcomes import Conflict, NotCommitted, Outcome, OutcomeUnknown, RuleViolated
from gateway.postgres.errors import PostgresTrouble
from gateway.state import Folded
from gateway.state.rules import Violation
from gateway.telemetry.metrics import Metrics
from gateway.together import AT_A_TIME_S, Together

logger = logging.getLogger("sluice.rules")

LANES_MAX: Final = 1_000
"""Aggregates whose last state is at hand although nothing is on its way to them."""
IDLE_STATE_BYTES_MAX: Final = 32 * 1024
"""A larger state is not held for the next append; it may be among the states that are kept anyway."""
STATES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the states at hand; while there are more, no further one is read."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of the appends that wait to be judged."""
_AGAIN_S: Final = 0.1
_EXPIRE_EVERY_S: Final = 0.25

_LATE: Final = NotCommitted("it was not sequenced in time; nothing was written")
_FULL: Final = NotCommitted("too many appends are waiting on this gateway")
_FAILED: Final = NotCommitted("something failed inside the gateway; nothing was written")


class Ruled:
    """Appends as the log does, and all that rules don't judge by the log itself."""

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
        self._log = log
        self._placing = placing
        self._deployed_of = deployed_of
        self._folder = folder
        self._aside = aside
        self._metrics = metrics
        self._deadline_s = deadline_s
        self.several = RuledSeveral(
            log, placing, deployed_of, folder, aside, metrics, deadline_s, event_bytes_max, schema_work_max
        )
        self._loop = asyncio.get_running_loop()
        self._lanes: OrderedDict[Stream, Lane] = OrderedDict()
        self._together = Together(self._take_now)
        self._settled: list[Asked] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._numbers = 0
        self._states_bytes = 0
        self._waiting_bytes = 0

    # -- what the rest of the gateway calls

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """The outcome, at the latest when the append's deadline has passed."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self.append_each(append.stream.tenant, ((append, future),))
        return future

    def append_each(self, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """As the log's."""
        deployed = judging.spec_of_tenant(self._deployed_of, tenant)
        if deployed is None:
            self._placing.append_each(tenant, asked)
            return
        plain: list[tuple[Append, Waiter]] = []
        for append, waiter in asked:
            whole = self._whole(append, waiter, deployed)
            if whole is not None:
                plain.append((whole, waiter))
        self._placing.append_each(tenant, plain)

    def take(self, append: Append, waiter: Waiter, deployed: Deployed) -> None:
        """The same of one, by the tenant's spec of this moment; judged with others that come now."""
        self._together.add((append, waiter, deployed), self._loop)

    def _take_now(self, asked: tuple[Append, Waiter, Deployed]) -> None:
        append, waiter, deployed = asked
        try:
            whole = self._whole(append, waiter, deployed)
            if whole is not None:
                self._placing.append_each(append.stream.tenant, ((whole, waiter),))
        except Exception:  # the log may have it
            logger.exception("rules_not_judged")
            if not waiter.done():
                waiter.set_result(OutcomeUnknown(append.append_id))

    def _whole(self, append: Append, waiter: Waiter, deployed: Deployed) -> Append | None:
        """What the log is asked for; None where that has to wait, for which it is taken on."""
        if append.spread is not None or append.condition is not None or judging.implies(append, deployed):
            whole = self.several.at_once(append, deployed)
            if whole is None:
                self._take_several(append, waiter)
            return whole
        if judging.is_ruled(append.stream, deployed):
            self._take(append, waiter, deployed)
            return None
        return append

    def _take_several(self, append: Append, waiter: Waiter) -> None:
        async def settle() -> None:
            outcome: Outcome = OutcomeUnknown(append.append_id)
            try:
                outcome = await self.several.append(append)
            except Exception:
                logger.exception("rules_not_judged")
            finally:
                if not waiter.done():
                    waiter.set_result(outcome)

        task = self._loop.create_task(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, append: Append, waiter: Waiter, deployed: Deployed) -> None:
        stream = append.stream
        rules_of = Rules(deployed, stream.aggregate_type)
        ruled = any(rules_of(each.type) for each in append.events)
        lane = self._lanes.get(stream)
        if lane is None and (not ruled or judging.is_first(append, deployed, self._folder.bytes_max)):
            self._placing.append_each(stream.tenant, ((append, waiter),))
            return
        if ruled and self._waiting_bytes > WAITING_BYTES_MAX:
            self._tell(waiter, _FULL)
            return
        if lane is None:
            lane = self._lanes[stream] = Lane(stream, self._folder.place(stream, deployed), self._note)
        now = self._loop.time()
        self._numbers += 1
        asked = Asked(lane, append, waiter, self._numbers, (now, now + self._deadline_s), ruled)
        if ruled:
            lane.waiting.append(asked)
            self._waiting_bytes += append.size_bytes + APPEND_BYTES
            self._go_on(lane)
        else:
            self._pass_on(lane, asked, deployed)

    # -- one aggregate

    def _go_on(self, lane: Lane) -> None:
        """Judges what waits, as far as that can be done at once."""
        ends = self._loop.time() + AT_A_TIME_S
        while lane.waiting and not lane.busy:
            deployed = judging.spec_of_stream(self._deployed_of, lane.stream)
            asked, now = lane.waiting[0], self._loop.time()
            if now > ends:  # others have their turn
                self._loop.call_soon(self._go_on, lane)
                return
            if asked.deadline <= now or asked.waiter.done():
                self._answer(lane, asked, _LATE)
                continue
            if deployed is None:  # its type has no rules any more
                self._leave(lane)
                self._placing.append_each(lane.stream.tenant, ((asked.append, asked.waiter),))
                continue
            if lane.place != (place := self._folder.place(lane.stream, deployed)):
                lane.reset(place)
            if lane.tip is None:
                if not lane.under_way:
                    self._begin(lane, self._read(lane, deployed))
                break
            if not self._step(lane, lane.tip, asked, deployed):
                break
        self._expire_later(lane)
        if lane.idle:
            self._rest(lane)

    def _step(self, lane: Lane, tip: Folded, asked: Asked, deployed: Deployed) -> bool:
        """Judges the first that waits; False where that has to wait for something."""
        append = asked.append
        if not fits(append.expected, tip.length):
            if lane.under_way and not 0 <= append.expected < lane.base.length:
                return False
            self._leave(lane)
            self._probe(asked, None)
            return True
        if not lane.room:
            return False
        judged, lane.judged = lane.judged, None
        if judged is not None and judged[0] is tip and judged[1] is asked:
            return self._decide(lane, tip, asked, judged[2], deployed)
        verdict = judging.at_once(tip, asked.recorded(tip.length), deployed, self._folder.bytes_max)
        if verdict is None:
            self._begin(lane, self._judge_aside(lane, tip, asked, deployed))
            return False
        return self._decide(lane, tip, asked, verdict, deployed)

    def _decide(
        self, lane: Lane, tip: Folded, asked: Asked, verdict: Folded | Violation, deployed: Deployed
    ) -> bool:
        if isinstance(verdict, Folded):
            self._leave(lane)
            append = msgspec.structs.replace(asked.append, expected=tip.length)
            self._hand(lane, asked, append, verdict)
            return True
        lane.judged = (tip, asked, verdict)
        if lane.under_way:
            return False
        if lane.current < asked.came:
            self._begin(lane, self._read(lane, deployed))
            return False
        lane.judged = None
        self._leave(lane)
        violated = RuleViolated(verdict.event, verdict.rule, verdict.error, tip.length)
        if asked.append.chosen:
            self._probe(asked, violated)
        else:
            self._tell(asked.waiter, violated)
        return True

    def _pass_on(self, lane: Lane, asked: Asked, deployed: Deployed) -> None:
        """One without rules: it waits for nothing, and others may be judged on the state that it leaves."""
        tip = lane.tip
        if tip is not None and lane.room and lane.place == self._folder.place(lane.stream, deployed):
            after = judging.at_once(tip, asked.recorded(tip.length), deployed, self._folder.bytes_max)
            if after is not None:
                assert isinstance(after, Folded)  # it has no rules
                self._hand(lane, asked, asked.append, after)
                return
        lane.tip = None  # others are judged on what is read then
        self._placing.append_each(lane.stream.tenant, ((asked.append, asked.waiter),))

    def _hand(self, lane: Lane, asked: Asked, append: Append, after: Folded) -> None:
        link = lane.hand(asked, after, self._loop.time())
        self._placing.append_linked(append, asked, link, asked.deadline)

    def _probe(self, asked: Asked, violated: RuleViolated | None) -> None:
        """Is never appended: tells whether it was, or what its length would conflict with."""
        asked.probing, asked.violated = True, violated
        asked.lane.probes += 1
        append = msgspec.structs.replace(asked.append, expected=ANOTHER_HISTORY)
        self._log.append_linked(append, asked, Link(0), asked.deadline)

    # -- beside the loop

    def _begin(self, lane: Lane, work: Coroutine[None, None, None]) -> None:
        lane.busy = True
        task = self._loop.create_task(self._run(lane, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: Lane, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except (PostgresTrouble, Busy):
            await asyncio.sleep(_AGAIN_S)
        except Exception:
            logger.exception("rules_not_judged")
            while lane.waiting:
                self._answer(lane, lane.waiting[0], _FAILED)
        finally:
            lane.busy = False
        self._go_on(lane)

    async def _read(self, lane: Lane, deployed: Deployed) -> None:
        if self._states_bytes > STATES_BYTES_MAX:
            raise Busy("The states that rules read use all memory that they may.")
        began = self._loop.time()
        place = lane.place
        state = await self._folder.committed(lane.stream, deployed, lane.base)
        if lane.place == place and not lane.under_way:
            lane.read(state, began)
            self._count(lane, state.size_bytes)

    async def _judge_aside(self, lane: Lane, tip: Folded, asked: Asked, deployed: Deployed) -> None:
        place = lane.place
        work = partial(judging.judgement, tip, asked.recorded(tip.length), deployed, self._folder.bytes_max)
        verdict = await self._aside.run(lane.stream.tenant, work)
        if lane.place == place:
            lane.judged = (tip, asked, verdict)

    # -- from the log

    def _note(self, asked: Asked) -> None:
        """It has its outcome. What follows is done soon, for all that have theirs by then."""
        if not self._settled:
            self._loop.call_soon(self._settle)
        self._settled.append(asked)

    def _settle(self) -> None:
        settled, self._settled = self._settled, []
        for asked in settled:
            if asked.probing:
                self._probed(asked)
            else:
                self._handed(asked)
        for lane in {asked.lane: None for asked in settled}:
            if lane.waiting:
                self._go_on(lane)
            elif lane.idle:
                self._rest(lane)

    def _handed(self, asked: Asked) -> None:
        lane, outcome = asked.lane, asked.outcome
        assert outcome is not None
        lane.over(asked)
        if type(outcome) is Conflict and asked.ruled:
            self._take_back(lane, asked)
        else:
            self._tell_outcome(asked.waiter, outcome)

    def _probed(self, asked: Asked) -> None:
        lane, outcome, violated = asked.lane, asked.outcome, asked.violated
        assert outcome is not None
        lane.probes -= 1
        if type(outcome) is not Conflict or not fits(asked.append.expected, outcome.length):
            self._tell_outcome(asked.waiter, outcome)
        elif violated is not None:
            self._tell(asked.waiter, violated)
        else:  # it has come to that length since
            lane.tip = None
            self._take_back(lane, asked)

    def _take_back(self, lane: Lane, asked: Asked) -> None:
        self._waiting_bytes += asked.append.size_bytes + APPEND_BYTES
        lane.take_back(asked)
        self._metrics.judged_again.inc()

    # -- bounds

    def _leave(self, lane: Lane) -> None:
        """The first waits no more."""
        asked = lane.waiting.popleft()
        self._waiting_bytes -= asked.append.size_bytes + APPEND_BYTES

    def _answer(self, lane: Lane, asked: Asked, outcome: Outcome) -> None:
        self._leave(lane)
        self._tell(asked.waiter, outcome)

    def _tell(self, waiter: Waiter, outcome: Outcome) -> None:
        """What the log has not counted."""
        if not waiter.done():
            waiter.set_result(outcome)
            self._metrics.told(outcome)

    def _tell_outcome(self, waiter: Waiter, outcome: Outcome) -> None:
        if not waiter.done():
            waiter.set_result(outcome)

    def _count(self, lane: Lane, size: int) -> None:
        self._states_bytes += size - lane.size
        lane.size = size

    def _rest(self, lane: Lane) -> None:
        """Nothing is on its way: the state is kept for reads, and here if it is small."""
        if lane.tip is not None:
            self._folder.kept.put(lane.place, lane.base)
        if lane.tip is None or lane.tip.size_bytes > IDLE_STATE_BYTES_MAX:
            self._drop(lane)
            return
        self._count(lane, lane.tip.size_bytes)
        self._lanes.move_to_end(lane.stream)
        if len(self._lanes) > LANES_MAX:
            oldest = next(iter(self._lanes.values()))
            if oldest.idle:
                self._drop(oldest)

    def _drop(self, lane: Lane) -> None:
        if self._lanes.get(lane.stream) is lane:
            del self._lanes[lane.stream]
            self._count(lane, 0)

    def _expire_later(self, lane: Lane) -> None:
        if lane.waiting and self._timer is None:
            self._timer = self._loop.call_later(_EXPIRE_EVERY_S, self._expire)

    def _expire(self) -> None:
        """Answers what has waited too long."""
        self._timer, now = None, self._loop.time()
        for lane in [each for each in self._lanes.values() if each.waiting]:
            while lane.waiting and lane.waiting[0].deadline <= now:
                self._answer(lane, lane.waiting[0], _LATE)
            self._expire_later(lane)
