"""Delivers the events of one subscription after its cursor, each aggregate in its own order.

Owns: order, concurrency and retries of a subscription that this relay holds. The cursor stands behind all
that is settled: confirmed, or left to a straggler. An event that fails makes its aggregate a straggler, which
is tried again by its own schedule while the others go on. Must not know what a target is.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from asyncpg.pgproto.pgproto import UUID

from gateway.network import asker
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share
from gateway.relay import database, subscriptions
from gateway.relay.cursor import Aggregate, Changed, Cursor
from gateway.relay.database import Attempt, RetryEntry, Subscribed
from gateway.relay.named import EventNames
from gateway.relay.outbox import Entry, LostPlace, Outbox, entry_bytes
from gateway.relay.schedule import FAILING_S_MAX, delay_s
from gateway.relay.subscriptions import POSITION_LOST, position_lost, tell_disabled, too_many_parked
from gateway.relay.targets.contract import (
    SEND_TIMEOUT_S,
    Confirmed,
    Failed,
    Gone,
    Message,
    Outcome,
    Target,
    plainly,
    word_of,
)
from gateway.tasks import set_within
from gateway.telemetry.metrics import Metrics
from spec.identifiers import uuid_text

logger = logging.getLogger("sluice.relay")

WINDOW_EVENTS: Final = 1000  # read ahead of the cursor; bounds memory, and what is sent again after a crash
WINDOW_BYTES: Final = 4 * 1024 * 1024
STRAGGLERS_MAX: Final = 10_000  # tried again: then nothing new is begun until some have caught up
STRAGGLER_EVENTS: Final = 10  # read at a time of an aggregate that catches up
SLOW_S: Final = 1.0  # a delivery that takes longer holds neither the cursor nor a place for another
SLOW_SHARE: Final = 4  # of deliveries and of stragglers at work there are so many times as many at most
BROKEN_AFTER: Final = 50  # failures in a row: from then on one new aggregate at a time finds out
PROBE_EVERY_S: Final = 5.0
TROUBLE_PAUSE_S: Final = 0.2
STOP_S: Final = 3.0
HAND_OVER_S: Final = 0.3  # for deliveries under way when a person has changed the subscription


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The limits of a worker. `retry_s` is the schedule; `inflight` deliveries run at once, in addition to
    slow ones."""

    retry_s: Sequence[float]
    inflight: int = 16
    lease_s: float = 6.0


@dataclass(slots=True)
class _InFlight:
    entry: Entry
    number: int
    begun: float
    at: float
    task: asyncio.Task[Outcome]


class DeliveryWorker:
    """`clock` gives Unix seconds, `chance` a number from 0 to 1."""

    def __init__(
        self,
        pool: Share,
        outbox: Outbox,
        of: Subscribed,
        waiting: Sequence[RetryEntry],
        target: Target,
        pace: DeliveryPolicy,
        metrics: Metrics,
        names: EventNames,
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.of = of
        self._pool, self._outbox, self._target, self._pace = pool, outbox, target, pace
        self._metrics, self._names = metrics, names
        self._clock, self._chance = clock, chance
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._cursor = Cursor(pool, of, pace.lease_s)
        # What is read of each aggregate, and which of them have nothing under way.
        self._caught_up = False
        self._lanes: dict[Aggregate, deque[Entry]] = {}
        self._ready: deque[Aggregate] = deque()
        self._flights: dict[Aggregate, _InFlight] = {}
        # Those that wait, and when they are due.
        self._stragglers = {each.aggregate: each for each in waiting}
        self._due = [(each.due_at, each.aggregate) for each in waiting if each.state == "retrying"]
        heapq.heapify(self._due)
        self._parked = sum(each.state == "parked" for each in waiting)
        self._failures = 0
        self._probe_at = 0.0

    def notice(self, head: int) -> None:
        """The subscription's partition stands at `head`."""
        if head > self._cursor.read.seq and self._caught_up:
            self._caught_up = False
            self._wake.set()

    @property
    def moves(self) -> int:
        """As it knows them."""
        return self._cursor.moves

    def doubt(self) -> None:
        """A client may have changed the subscription: checks that now."""
        self._cursor.doubt()
        self._wake.set()

    def stop(self) -> None:
        """Begins no new delivery; `run` returns once those under way have ended, STOP_S later at most."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Until stopped, disabled or changed. Raises Overtaken, and PostgresTrouble once the lease may be
        over."""
        asker.set(self.of.tenant.hex())
        try:
            while not self._stopping and self._cursor.state == "active":
                await self._patiently(self.step)
                await self._wait()
            await self._finish()
        except Changed:
            await self._hand_over()
        finally:
            flying = [flight.task for flight in self._flights.values()]
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
            await self._target.close()

    async def step(self) -> int:
        """Records the deliveries that have ended, begins new ones, and moves the cursor if it is due. Returns
        the number of deliveries under way."""
        await self._land()
        if self._cursor.state == "active":
            await self._fill()
            await self._take_due()
            self._begin()
            self._overtake_slow()
        if self._cursor.move_in_s <= 0:
            await self._cursor.move(self._stragglers, holding=self._cursor.state == "active")
        return len(self._flights)

    async def _patiently(self, work: Callable[[], Awaitable[int]]) -> None:
        """A Postgres that is away for a moment is waited for, as long as the lease lasts: what was confirmed
        meanwhile need not be sent again."""
        try:
            await work()
        except PostgresTrouble:
            if not self._cursor.lease_lasts(2 * TROUBLE_PAUSE_S):
                raise
            await asyncio.sleep(TROUBLE_PAUSE_S)
        except LostPlace as lost:
            self._disable(position_lost(lost), POSITION_LOST)

    async def _wait(self) -> None:
        if self._cursor.state != "active":
            return
        left = self._cursor.move_in_s
        if self._due and self._room > 0:
            left = min(left, self._due[0][0] - self._clock())
        if self._ready and self._places > 0:
            left = min(left, self._probe_at - self._loop.time())
        if self._flights:
            left = min(left, SLOW_S)
        await set_within(self._wake, max(left, 0.001))
        self._wake.clear()

    async def _finish(self) -> None:
        if self._flights:
            await asyncio.wait([flight.task for flight in self._flights.values()], timeout=STOP_S)
        await self._land()
        await self._cursor.move(self._stragglers, holding=False)

    async def _hand_over(self) -> None:
        """What became of deliveries counts for the relay that continues from here; a delivery that is still
        under way counts as failed, although it may have arrived."""
        if self._flights:
            await asyncio.wait([flight.task for flight in self._flights.values()], timeout=HAND_OVER_S)
        await self._land()
        for aggregate, flight in self._flights.items():
            self._leave(aggregate, flight)
        await self._cursor.hand_over(self._stragglers)

    # -- what is begun

    async def _fill(self) -> None:
        if (
            self._caught_up
            or self._cursor.open_events > WINDOW_EVENTS // 2
            or len(self._stragglers) - self._parked >= STRAGGLERS_MAX
            or self._held_bytes() >= WINDOW_BYTES // 2
        ):
            return
        stretch = await self._outbox.stretch(
            self.of.p, self.of.filter, self._cursor.read, WINDOW_EVENTS // 2, WINDOW_BYTES // 2
        )
        self._cursor.read, self._caught_up = stretch.reached, stretch.caught_up
        if not self._caught_up:
            self._wake.set()
        for entry in stretch.entries:
            aggregate = _aggregate(entry)
            if aggregate in self._stragglers:
                continue  # it comes to it by itself
            self._cursor.begin(entry.place)
            if aggregate not in self._lanes:
                self._lanes[aggregate] = deque()
                self._ready.append(aggregate)
            self._lanes[aggregate].append(entry)

    def _held_bytes(self) -> int:
        """Of the main line; stragglers have a bound of their own, and hold up no other."""
        lanes = (lane for aggregate, lane in self._lanes.items() if aggregate not in self._stragglers)
        return sum(entry_bytes(entry) for lane in lanes for entry in lane)

    async def _take_due(self) -> None:
        now = self._clock()
        while self._due and self._due[0][0] <= now and self._room > 0:
            due_at, aggregate = self._due[0]
            await self._take_up(aggregate, due_at)  # Postgres may fail: until it is read, it stays due
            heapq.heappop(self._due)

    @property
    def _room(self) -> int:
        """How many more stragglers may be taken up: a read each, and its events are held."""
        return SLOW_SHARE * self._pace.inflight - sum(each in self._stragglers for each in self._lanes)

    async def _take_up(self, aggregate: Aggregate, due_at: float) -> None:
        straggler = self._stragglers.get(aggregate)
        if straggler is None or straggler.due_at != due_at or straggler.state != "retrying":
            return  # an older entry of it
        if aggregate in self._lanes:
            return
        lane = deque(await self._behind(aggregate, straggler.version))
        if lane or self._caught_up:
            self._lanes[aggregate] = lane
            self._next(aggregate)
        else:  # what it waits at may be what the main line has not passed over yet
            later = replace(straggler, due_at=self._clock() + SLOW_S)
            self._stragglers[aggregate] = later
            heapq.heappush(self._due, (later.due_at, aggregate))

    @property
    def _places(self) -> int:
        """How many more deliveries may begin. One that hangs keeps no place, or a few would hold up all."""
        since = self._loop.time() - SLOW_S
        slow = sum(flight.begun < since for flight in self._flights.values())
        most = self._pace.inflight
        return min(most + slow, SLOW_SHARE * most) - len(self._flights)

    def _begin(self) -> None:
        tried, places = len(self._ready), self._places
        while self._ready and tried and places > 0:
            tried -= 1
            aggregate = self._ready.popleft()
            straggler = self._stragglers.get(aggregate)
            if straggler is None and not self._may_begin():
                self._ready.append(aggregate)
                continue
            entry = self._lanes[aggregate][0]
            task = self._loop.create_task(self._send(entry))
            task.add_done_callback(lambda _: self._wake.set())
            places -= 1
            number = 1 if straggler is None else straggler.attempts + 1
            self._flights[aggregate] = _InFlight(entry, number, self._loop.time(), self._clock(), task)

    def _may_begin(self) -> bool:
        """Whether a new aggregate's first delivery is begun: not many, while nothing arrives."""
        now = self._loop.time()
        if self._failures >= BROKEN_AFTER:
            if now < self._probe_at:
                return False
            self._probe_at = now + PROBE_EVERY_S
        return True

    async def _send(self, entry: Entry) -> Outcome:
        """An attempt that ends in a bug is one that failed: it is logged, and made again by its schedule."""
        try:
            outcome = await self._target.send(await self._parcel(entry))
            return outcome if isinstance(outcome, Confirmed) else replace(outcome, why=plainly(outcome.why))
        except PostgresTrouble:
            return Failed("Postgres does not answer, so the aliases of the aggregate are unknown.")
        except Exception as bug:
            told = {"subscription": self.of.name, "tenant": str(UUID(self.of.tenant))}
            logger.exception("delivery_error", extra=told)
            return Failed(f"This is a bug of the relay: {type(bug).__name__}.")

    async def _parcel(self, entry: Entry) -> Message:
        """Raises PostgresTrouble."""
        (outgoing,) = await self._names.outgoing(self.of, (entry,))
        stream, event = entry.recorded.stream, entry.recorded.event
        return Message(uuid_text(event.id), stream.aggregate_type, outgoing.key, event.type, outgoing.body)

    def _overtake_slow(self) -> None:
        """A receiver that hangs holds up only its own aggregate."""
        now = self._loop.time()
        for aggregate, flight in self._flights.items():
            if aggregate not in self._stragglers and now - flight.begun > SLOW_S:
                self._leave(aggregate, flight)

    def _leave(self, aggregate: Aggregate, flight: _InFlight) -> None:
        """A relay that reads what is written now tries it again, but not before this attempt must be over."""
        before = self._stragglers.get(aggregate)
        attempts, error = (0, None) if before is None else (before.attempts, before.error)
        due_at = flight.at + SEND_TIMEOUT_S
        self._straggle(aggregate, flight.entry, "retrying", attempts, due_at, error)
        self._lanes[aggregate] = deque((flight.entry,))  # what is behind it is read again then

    # -- what has ended

    async def _land(self) -> None:
        for aggregate, flight in [each for each in self._flights.items() if each[1].task.done()]:
            outcome = flight.task.result()
            if isinstance(outcome, Confirmed):
                await self._top_up(aggregate)
            del self._flights[aggregate]
            self._landed(aggregate, flight, outcome)

    async def _top_up(self, aggregate: Aggregate) -> None:
        """More of an aggregate that catches up, before the last that was read of it is done with: a Postgres
        that fails here leaves all as it was."""
        lane = self._lanes[aggregate]
        if aggregate in self._stragglers and len(lane) == 1:
            lane.extend(await self._behind(aggregate, lane[0].recorded.version + 1))

    async def _behind(self, aggregate: Aggregate, version: int) -> list[Entry]:
        """What the main line has passed over of an aggregate, from a version on."""
        async with database.connection(self._pool) as conn:
            return await database.next_of_aggregate(
                conn, self.of, aggregate, version, self._cursor.read.seq, STRAGGLER_EVENTS
            )

    def _landed(self, aggregate: Aggregate, flight: _InFlight, outcome: Outcome) -> None:
        entry, now = flight.entry, self._clock()
        self._note(flight, outcome, now)
        match outcome:
            case Confirmed():
                self._failures, self._cursor.failing_since, self._cursor.confirmed_at = 0, None, now
                self._lanes[aggregate].popleft()
                if aggregate not in self._stragglers:
                    self._cursor.settle((entry.place.seq,))
                self._next(aggregate)
            case Failed(why, _, _, retry_after_s):
                self._failures += 1
                self._cursor.failing_since = self._cursor.failing_since or now
                wait_s = delay_s(self._pace.retry_s, flight.number, self._chance(), retry_after_s)
                state = "parked" if wait_s is None else "retrying"
                self._straggle(aggregate, entry, state, flight.number, now + (wait_s or 0.0), why)
                del self._lanes[aggregate]
                if wait_s is None:
                    self._parked += 1
                    told = {"subscription": self.of.name, "tenant": str(UUID(self.of.tenant))}
                    event_id = uuid_text(entry.recorded.event.id)
                    logger.warning("delivery_parked", extra={**told, "event_id": event_id, "reason": why})
                    if self._parked >= subscriptions.PARKED_MAX:
                        self._disable(too_many_parked())
                if now - self._cursor.failing_since >= FAILING_S_MAX:
                    self._disable("Every delivery has failed for 5 days.")
            case Gone(why):
                self._straggle(aggregate, entry, "retrying", flight.number, now, why)
                del self._lanes[aggregate]
                self._disable(why)
            case impossible:
                assert_never(impossible)

    def _next(self, aggregate: Aggregate) -> None:
        """The first of its lane is to be sent. The main line has it again where there is none."""
        straggler, lane = self._stragglers.get(aggregate), self._lanes[aggregate]
        if lane:
            if straggler is not None:
                self._stand_at(straggler, lane[0])
            self._ready.append(aggregate)
            return
        del self._lanes[aggregate]
        if straggler is not None:
            del self._stragglers[aggregate]
            self._cursor.change(aggregate)

    def _stand_at(self, straggler: RetryEntry, entry: Entry) -> None:
        if straggler.event_id != entry.recorded.event.id:  # confirmed, or skipped
            now, event_id = self._clock(), entry.recorded.event.id
            self._stragglers[straggler.aggregate] = replace(
                straggler, version=entry.recorded.version, event_id=event_id, attempts=0, due_at=now,
                since=now, error=None,
            )  # fmt: skip
            self._cursor.change(straggler.aggregate)

    def _straggle(
        self, aggregate: Aggregate, entry: Entry, state: str, attempts: int, due_at: float, error: str | None
    ) -> None:
        recorded, before = entry.recorded, self._stragglers.get(aggregate)
        since = self._clock() if before is None or before.attempts == 0 else before.since
        self._stragglers[aggregate] = RetryEntry(
            *aggregate, recorded.version, recorded.event.id, state, attempts, due_at, since, error
        )
        self._cursor.change(aggregate)
        if state == "retrying":
            heapq.heappush(self._due, (due_at, aggregate))
        if before is None:  # what was read of it is the straggler's from now on
            self._cursor.settle(each.place.seq for each in self._lanes[aggregate])

    def _note(self, flight: _InFlight, outcome: Outcome, now: float) -> None:
        word = word_of(outcome)
        self._metrics.delivered(self.of.kind, word)
        error = None if isinstance(outcome, Confirmed) else outcome.why
        took_ms = int((self._loop.time() - flight.begun) * 1000)
        self._cursor.tried(
            Attempt(
                flight.entry.recorded.event.id, flight.number, flight.at, took_ms, word, outcome.status,
                error, outcome.response,
            )
        )  # fmt: skip

    def _disable(self, why: str, code: str | None = None) -> None:
        self._cursor.state, self._cursor.why, self._cursor.why_code = "disabled", why, code
        tell_disabled(self.of, why)


def _aggregate(entry: Entry) -> Aggregate:
    return entry.recorded.stream.aggregate_type, entry.recorded.stream.key
