"""A process's share of all reactions: it sets timers as their triggers commit, and fires those that are due.

Owns: whose events it looks at (leased in Postgres, one process a tenant), how far it has looked (moved with
the timers that it set, in one transaction), and what becomes of a timer. Each output is an append under an id
made of the rule and its cause: it happens once, whatever dies in between.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.aggregates.folder import Folder
from gateway.appends import Append
from gateway.aside import Busy
from gateway.catalog.catalog import Catalog
from gateway.follow.events import Events
from gateway.follow.model import Event
from gateway.follow.threads import folding, taking
from gateway.outcomes import NotCommitted, Outcome
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.reactions.coordinator import Coordinator
from gateway.reactions.database import Unreadable, connection, fetch, statement
from gateway.reactions.firing import FIRE_EVERY_S, REASON_CHARS_MAX, Firing, Full
from gateway.reactions.retention import FORGET_EVERY_S, forget
from gateway.reactions.specs import Specs
from gateway.reactions.timers import Faulty, Timer, timers_of
from gateway.relay.due import Due, taken
from gateway.relay.outbox import LostPlace, Outbox
from gateway.relay.position import Place
from gateway.relay.relay import Listen
from gateway.relay.repeated import Repeated
from gateway.tasks import ended
from gateway.telemetry.metrics import Reading
from spec.sagas import SAGA_TYPE

logger = logging.getLogger("sluice.reactions")

TENANTS_MAX: Final = 50
"""That one process looks after at a time. Where there are more, they take turns, every LOOK_EVERY_S."""
LOOK_EVERY_S: Final = 0.25
LEASES_EVERY_S: Final = 1.0
"""Where nothing is held or was declared: whether another process has given up a tenant."""
FOLLOWED_S: Final = 5.0
"""A tenant with more to look at gives way to others after so long."""
TENANTS_AT_ONCE: Final = 8
"""Whose events are looked at, each a page of at most 4 MiB. One that waits lets the others go on."""
AGAIN_S: Final = 1.0
LEFT_S: Final = 10.0
"""A tenant with a spec that this process can't read is left to others for so long."""
TIMERS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the timers that a page of events sets, those that are held until its place is written, and those of one
event more."""
COUNT_EVERY_S: Final = 10.0
COUNT_RESTS: Final = 100.0
"""The next count waits for so many times what one took: a million timers take 0.4 s of Postgres."""
COUNT_REST_MAX_S: Final = 120.0

_encode = msgspec.json.Encoder().encode

Submit = Callable[[Append], Awaitable[Outcome]]


class Reactor:
    """`submit` appends as for a client, with rules and all. `full` has the tenants that store all they may,
    or are suspended: their timers and sagas wait. What has ended is kept for `retention_s`. Another process
    takes over what was not held on for `lease_s`."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        outbox: Outbox,
        catalog: Catalog,
        folder: Folder,
        submit: Submit,
        event_bytes_max: int,
        listen: Listen,
        full: Full,
        retention_s: float,
        lease_s: float,
        schema_work_max: int,
        due: Due,
    ) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._pool = pool
        self._outbox = outbox
        self._events = Events(pool, outbox)
        self._catalog = catalog
        self._specs = Specs(pool, catalog)
        self._folder = folder
        self._event_bytes_max = event_bytes_max
        self._submit = submit
        self._full = full
        self._firing = Firing(
            pool,
            catalog.deployed,
            self._append,
            event_bytes_max,
            full,
            lease_s,
            catalog.refresh,
            schema_work_max,
            due.timers,
        )
        self._due = due
        self._retention_s = retention_s
        self._lease_s = lease_s
        self.coordinator = Coordinator(
            pool, self._append, self._specs.of_revision, event_bytes_max, schema_work_max
        )
        self._listen = listen
        self._woken = asyncio.Event()
        self._hearing = False
        self._ends = ExitStack()  # of hearing
        self._declared: object = None
        self._leases_at = 0.0
        self._counts: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._following: dict[bytes, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(TENANTS_AT_ONCE)
        self._delayed: set[bytes] = set()
        self._left: dict[bytes, float] = {}
        """Tenants that another process may have, and until when."""
        self._caught_up: dict[bytes, datetime] = {}
        self._repeated = Repeated(logger)

    async def _append(self, append: Append) -> Outcome:
        """As a client's request is refused: the tenant may rest, or be gone, since this was begun."""
        if append.stream.tenant in self._full():
            return NotCommitted("the tenant is suspended, or stores all it may")
        return await self._submit(append)

    async def start(self, *, at_work: bool = True) -> None:
        """Where it is not at work, it only declares and counts what waits for other processes."""
        loops: list[tuple[Callable[[], Awaitable[object]], float]] = [(self._count, COUNT_EVERY_S)]
        if at_work:
            loops += [
                (self._look, LOOK_EVERY_S),  # declares, too
                (self._firing.run_once, FIRE_EVERY_S),
                (self._forget, FORGET_EVERY_S),
            ]
        else:
            loops.append((self._declare, LEASES_EVERY_S))
        for work, pause_s in loops:
            self._tasks.append(asyncio.create_task(self._again(work, pause_s)))

    async def stop(self) -> None:
        await ended(self._tasks)
        self._hear(of_commits=False)
        await ended(self._following.values())
        await self._firing.stop()
        try:
            await fetch(self._pool, "let_go_reacting", self.owner)
        except PostgresTrouble:
            return

    def readings(self) -> Iterator[Reading]:
        for state in ("pending", "parked"):
            yield Reading("sluice_schedules", self._counts.get(state, 0), (state,))
        yield Reading("sluice_schedules_late_seconds", self._counts.get("late_s", 0))
        yield Reading("sluice_schedules_not_set", self._counts.get("not_set", 0))
        yield Reading("sluice_sagas_stuck", self._counts.get("stuck", 0))

    async def _again(self, work: Callable[[], Awaitable[object]], pause_s: float) -> None:
        is_due = self._woken.is_set if work == self._look else None
        wakes = self._due.timers if work == self._firing.run_once else None
        await self._repeated.run(work, pause_s, is_due, wakes)

    async def _count(self) -> None:
        begun = time.monotonic()
        (row,) = await fetch(self._pool, "count_schedules")
        self._counts = dict(row)
        await asyncio.sleep(rest_after(time.monotonic() - begun))

    async def _forget(self) -> None:
        await forget(self._pool, self._retention_s)

    # ---- setting timers ----

    async def _look(self) -> None:
        """Declares tenants whose specs set timers, holds its share of them, and looks at their events: each
        tenant's in a task of its own, so that one whose appends wait does not keep the others."""
        self._woken.clear()
        declared = await self._declare()
        leases_due = time.monotonic() >= self._leases_at and taken(self._due.reactions)
        if not (declared or self._hearing or leases_due):
            return
        self._leases_at = time.monotonic() + LEASES_EVERY_S
        caught_up, self._caught_up = self._caught_up, {}
        seen = [PgUUID(tenant) for tenant in caught_up], list(caught_up.values())
        now = time.monotonic()
        self._left = {tenant: until for tenant, until in self._left.items() if until > now}
        left = [PgUUID(tenant) for tenant in self._left]
        held = await fetch(self._pool, "hold_reacting", self.owner, self._lease_s, TENANTS_MAX, *seen, left)
        self._hear(of_commits=bool(held))
        for row in held:
            tenant = row["tenant"].bytes
            if tenant not in self._following and tenant not in self._full():
                task = asyncio.create_task(self._follow_one(tenant, row))
                self._following[tenant] = task
                task.add_done_callback(lambda _, tenant=tenant: self._following.pop(tenant))  # type: ignore[misc]
        if self._following:
            await asyncio.wait(self._following.values(), timeout=LOOK_EVERY_S)

    def _hear(self, *, of_commits: bool) -> None:
        """A process without tenants hears of none: an announcement costs its sender and all that hear it."""
        if of_commits and not self._hearing:
            self._ends.enter_context(self._listen(self._woken.set))
        elif not of_commits:
            self._ends.close()
        self._hearing = of_commits

    async def _declare(self) -> bool:
        """Whether what is deployed has changed."""
        serving = self._catalog.serving
        if serving is self._declared:
            return False
        tenants = [tenant for tenant, each in serving.items() if each.reading.reacts]
        if tenants:
            places = [self._outbox.partition(tenant.bytes) for tenant in tenants]
            await fetch(self._pool, "declare_reacting", tenants, places)
        self._declared = serving
        return True

    async def _follow_one(self, tenant: bytes, row: Any) -> None:
        """What can't be done now is tried again from the place that was written last."""
        try:
            async with self._room:
                await self._follow(tenant, row)
            self._delayed.discard(tenant)
        except (PostgresTrouble, Busy) as trouble:
            if isinstance(trouble, Unreadable):
                self._left[tenant] = time.monotonic() + LEFT_S
            if tenant not in self._delayed:
                told = {"tenant": str(UUID(bytes=tenant)), "reason": str(trouble)}
                logger.warning("reactions_delayed", extra=told)
            self._delayed.add(tenant)
            await asyncio.sleep(AGAIN_S)
        except Exception:
            logger.exception("task_restarted")
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, tenant: bytes, row: Any) -> None:
        """Up to the newest event, a page at a time, as long as the lease holds."""
        p, after, since = row["p"], Place(row["seq"], bytes(row["mark"])), row["caught_up_at"]
        until = time.monotonic() + FOLLOWED_S
        deployed = await self._specs.serving(tenant)
        gone: set[str] = set()
        while time.monotonic() < until:
            types = {*deployed.reading.aggregate_types, *gone, SAGA_TYPE}
            try:
                page = await self._events.page(tenant, p, after, types)
            except LostPlace:
                before, after, since = after, Place(0, bytes(4)), None
                if not await self._move(tenant, before, after):
                    return
                continue
            if page.reached.seq <= after.seq:
                break
            newest = max([each.recorded.event.spec_rev for each in page.events], default=0)
            if newest > deployed.revision:
                deployed = await self._specs.serving(tenant, newest)
                continue  # once more, with the data of types that are new
            more = {each.recorded.stream.aggregate_type for each in page.events} - types
            if more:  # of specs before: once more, with their data
                gone |= more
                continue
            timers = await self._timers(tenant, page.events, since)
            rows = await self.coordinator.look(tenant, page.events)
            if not await self._move(tenant, after, page.reached, timers, since, rows):
                return
            after = page.reached
            if page.caught_up:
                break
        else:
            return
        self._caught_up[tenant] = row["at"]  # the page was read behind it
        await self.coordinator.late(tenant, row["at"])

    async def _timers(
        self, tenant: bytes, events: Sequence[Event], since: datetime | None
    ) -> list[Timer | Faulty]:
        """What these events set and can't set, each by the spec that it was appended under; what is too much
        to be held is set already: a timer that is set again is the same."""
        found: list[Timer] = []
        faulty: list[Timer | Faulty] = []
        size = 0
        for event in events:
            await taking(1)
            event_type = await self._specs.type_of(tenant, event.recorded)
            if event_type is None or not event_type.schedules:
                continue
            deployed = await self._specs.serving(tenant)
            stream, version = event.recorded.stream, event.recorded.version
            state = (await self._folder.at(stream, deployed, version)).data_json
            work = partial(
                timers_of, event, state, event_type.implications, deployed.reading, self._event_bytes_max
            )
            read = len(event.recorded.event.payload or b"") + len(state)
            for timer in await folding(1, read, work):
                if isinstance(timer, Faulty):
                    faulty.append(timer)
                    told = {"tenant": str(UUID(bytes=tenant)), "event_id": timer.event, "path": timer.path}
                    logger.warning("schedule_not_set", extra={**told, "reason": timer.error})
                else:
                    found.append(timer)
                    size += timer.size
            if size > TIMERS_BYTES_MAX:
                await fetch(self._pool, "add_schedules", *_columns(tenant, found, since))
                found, size = [], 0
        return [*faulty, *found]

    async def _move(
        self,
        tenant: bytes,
        before: Place,
        after: Place,
        found: Sequence[Timer | Faulty] = (),
        since: datetime | None = None,
        sagas: Sequence[tuple[object, ...]] = (),
    ) -> bool:
        """Timers, sagas and place in one transaction; False where another process has moved it. `since`: when
        what set the timers could not be seen yet."""
        timers = [each for each in found if isinstance(each, Timer)]
        faulty = [each for each in found if isinstance(each, Faulty)]
        last = faulty[-1].told()[:REASON_CHARS_MAX] if faulty else None
        async with connection(self._pool) as conn, conn.transaction():
            moved = await conn.fetchval(
                statement("move_reacting"), PgUUID(tenant), self.owner, before.seq, after.seq, after.mark,
                len(faulty), last,
            )  # fmt: skip
            if moved is None:
                return False
            if timers:
                await conn.execute(statement("add_schedules"), *_columns(tenant, timers, since))
            if sagas:
                await conn.executemany(statement("put_saga"), sagas)
        return True


def rest_after(took_s: float) -> float:
    """How long the next count waits beyond COUNT_EVERY_S, in seconds."""
    return min(COUNT_RESTS * took_s, COUNT_REST_MAX_S)


def _columns(tenant: bytes, timers: Sequence[Timer], since: datetime | None) -> tuple[object, ...]:
    triggers = [each.trigger for each in timers]
    streams = [each.recorded.stream for each in triggers]
    return (
        [PgUUID(each.id) for each in timers],
        PgUUID(tenant),
        [PgUUID(each.recorded.event.id) for each in triggers],
        [each.aggregate_type for each in streams],
        [each.key for each in streams],
        [each.recorded.event.type for each in triggers],
        [each.place.seq for each in triggers],
        [each.place.mark for each in triggers],
        [each.delay_s for each in timers],
        [each.at_s for each in timers],
        [_encode(each.emission) for each in timers],
        [_encode(each.cancel_on) for each in timers],
        [PgUUID(each.recorded.event.correlation_id) for each in triggers],
        since,
    )


async def head_of(outbox: Outbox, shares: Shares, tenant: bytes) -> tuple[int, bytes]:
    """Where the tenant's partition ends: seq and mark. Raises PostgresTrouble."""
    rows = await fetch(shares.of(tenant), "head", outbox.partition(tenant))
    return (rows[0]["seq"], bytes(rows[0]["mark"])) if rows else (0, bytes(4))
