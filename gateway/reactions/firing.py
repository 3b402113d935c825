"""Fires the timers that are due, each by an append, and records the outcome.

Owns: how many are fired at a time, of all tenants and of one, so that a tenant whose appends wait keeps no
other's. A process holds on the timers that it is firing; those of one that died are fired by any other once
the lease is over. The lease keeps others from trying: that a timer fires once is in the id of its event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.admit.append import SCHEMA_WORK_MAX
from gateway.aggregates.judging import DeployedOf
from gateway.appends import Append, Appended
from gateway.catalog.model import Deployed
from gateway.follow.threads import making
from gateway.outcomes import ConditionFailed, NotCommitted, Outcome, OutcomeUnknown, Unchanged
from gateway.postgres.errors import PostgresTrouble
from gateway.reactions.database import connection, fetch, statement
from gateway.reactions.endings import Ending, Endings
from gateway.reactions.outputs import SCHEDULER, Origin, append_of, are_light, unless, why_refused
from gateway.reactions.timers import Emission, Watched
from gateway.relay.due import taken
from gateway.tasks import ended

logger = logging.getLogger("sluice.reactions")

FIRE_EVERY_S: Final = 0.2
MORE_S: Final = 0.05
"""To the next look while there is more than is fired at a time."""
DUE_AT_ONCE: Final = 200
"""Taken by one statement."""
FIRED_AT_ONCE: Final = 400
"""Of all tenants: what their events take is in memory."""
TENANT_FIRED_AT_ONCE: Final = 100
"""A tenant with as many gives way to others; one batch more may be its."""
AGAIN_S: Final = 1.0
"""Behind an append that was not committed, to the next timer of its tenant."""
REASON_CHARS_MAX: Final = 1_000

_emission_of = msgspec.json.Decoder(Emission).decode
_watched_of = msgspec.json.Decoder(tuple[Watched, ...]).decode

Submit = Callable[[Append], Awaitable[Outcome]]
Full = Callable[[], frozenset[bytes]]
"""Tenants whose timers wait: they store all they may, or are suspended."""


async def take_due(pool: asyncpg.Pool, most: int, lease_s: float, not_now: Sequence[PgUUID]) -> list[Any]:
    """Timers that are due, leased, of other tenants than those. Raises PostgresTrouble."""
    async with connection(pool) as conn, conn.transaction():
        await conn.execute("SET LOCAL enable_bitmapscan = off")
        return list(await conn.fetch(statement("due_schedules"), most, lease_s, not_now))


class Firing:
    """`submit` appends as for a client, with rules and all. `refresh` brings `deployed_of` up to date."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        deployed_of: DeployedOf,
        submit: Submit,
        event_bytes_max: int,
        full: Full,
        lease_s: float,
        refresh: Callable[[], Awaitable[None]],
        schema_work_max: int = SCHEMA_WORK_MAX,
        due: asyncio.Event | None = None,
    ) -> None:
        self._pool = pool
        self._refresh = refresh
        self._deployed_of = deployed_of
        self._submit = submit
        self._event_bytes_max, self._schema_work_max = event_bytes_max, schema_work_max
        self._full = full
        self._lease_s = lease_s
        self._due = due
        self._endings = Endings(pool)
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_since: dict[PgUUID, float] = {}
        """When the lease of each timer that is being fired began."""
        self._fired: Counter[bytes] = Counter()
        self._rests: dict[bytes, float] = {}

    async def run_once(self) -> None:
        """Takes what is due, once anything is, a batch at a time, until a batch is not full for another
        reason than that timers are being fired. Does not wait for their end. Raises PostgresTrouble."""
        if self._due is not None and not self._held_since:
            await self._due.wait()
        await self._hold_on()
        if not taken(self._due):
            return
        while True:
            most = min(DUE_AT_ONCE, FIRED_AT_ONCE - len(self._tasks))
            now = time.monotonic()
            due = await take_due(self._pool, most, self._lease_s, self._not_now()) if most else []
            for row in due:
                self._begin(row, now)
            if len(due) < most and not self._busy():
                return
            await asyncio.wait(self._tasks, timeout=MORE_S)
            await self._hold_on()

    async def stop(self) -> None:
        """Releases the timers that were not settled, so that other processes may fire them at once."""
        held = list(self._held_since)
        await ended(self._tasks)
        await self._endings.stop()
        try:
            await fetch(self._pool, "hold_schedules", held, 0.0)
        except PostgresTrouble:
            return

    async def _hold_on(self) -> None:
        """Renews the leases of which a third is over."""
        now = time.monotonic()
        old = [timer for timer, since in self._held_since.items() if now - since > self._lease_s / 3]
        if old:
            await fetch(self._pool, "hold_schedules", old, self._lease_s)
            self._held_since.update((timer, now) for timer in old if timer in self._held_since)

    def _not_now(self) -> list[PgUUID]:
        """Tenants whose timers wait."""
        now = time.monotonic()
        self._rests = {tenant: until for tenant, until in self._rests.items() if until > now}
        return [PgUUID(tenant) for tenant in {*self._busy(), *self._rests, *self._full()}]

    def _busy(self) -> list[bytes]:
        """Tenants that have as many fired as may be."""
        return [tenant for tenant, count in self._fired.items() if count >= TENANT_FIRED_AT_ONCE]

    def _begin(self, row: Any, since: float) -> None:
        tenant = row["tenant"].bytes
        self._fired[tenant] += 1
        self._held_since[row["id"]] = since
        task = asyncio.create_task(self._one(tenant, row))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, tenant: bytes, row: Any) -> None:
        try:
            await self._fire(tenant, row)
        except PostgresTrouble:
            self._rests[tenant] = time.monotonic() + AGAIN_S  # it is another's once the lease is over
        except Exception:
            logger.exception("task_restarted")
        finally:
            self._held_since.pop(row["id"], None)
            self._fired[tenant] -= 1
            if not self._fired[tenant]:
                del self._fired[tenant]

    async def _fire(self, tenant: bytes, row: Any) -> None:
        """Fires a timer, and notes what became of it; what is not settled is fired again. Raises
        PostgresTrouble."""
        timer = row["id"].bytes
        deployed = self._deployed_of(UUID(bytes=tenant))
        if deployed is None:
            await self._put_off(tenant, row, settled=True)
            return
        trigger = row["trigger_id"]
        emission = _emission_of(row["emit"])
        origin = Origin(
            deployed,
            SCHEDULER,
            row["correlation_id"].bytes,
            None if trigger is None else trigger.bytes,
            time.time_ns() // 1_000_000,
            self._event_bytes_max,
            self._schema_work_max,
        )
        condition = unless(_watched_of(row["cancel_on"]), row["seq"], bytes(row["mark"]))
        make = partial(append_of, origin, tenant, timer, emission, condition)
        append = await making(len(row["emit"]), make, light=are_light(deployed, (emission,)))
        if isinstance(append, str):
            await self._park(tenant, row, deployed, append)
            return
        outcome = await self._submit(append)
        match outcome:
            case Appended() | Unchanged():
                await self._end(row, "fired", None, timer)
            case ConditionFailed():
                await self._end(row, "cancelled", "an event that cancels it was committed first")
            case NotCommitted() | OutcomeUnknown():
                await self._put_off(tenant, row, settled=isinstance(outcome, NotCommitted))
            case _:
                await self._park(tenant, row, deployed, why_refused(outcome))

    async def _park(self, tenant: bytes, row: Any, deployed: Deployed, reason: str) -> None:
        """Once the newest spec refuses it: an older one may lack what the timer appends."""
        await self._refresh()
        if self._deployed_of(UUID(bytes=tenant)) is not deployed:
            await self._put_off(tenant, row, settled=True)
        else:
            await self._end(row, "parked", reason)

    async def _put_off(self, tenant: bytes, row: Any, *, settled: bool) -> None:
        """`settled`: this time nothing was appended, nor will be."""
        self._rests[tenant] = time.monotonic() + AGAIN_S
        await fetch(self._pool, "put_off_schedule", row["id"], AGAIN_S, settled)

    async def _end(self, row: Any, state: str, reason: str | None, fired: bytes | None = None) -> None:
        cut = None if reason is None else reason[:REASON_CHARS_MAX]
        event = None if fired is None else PgUUID(fired)
        await self._endings.note(Ending(row["id"], state, cut, event))
        if state == "parked":
            told = {"tenant": str(row["tenant"]), "schedule": str(row["id"]), "reason": cut}
            logger.warning("schedule_parked", extra=told)
