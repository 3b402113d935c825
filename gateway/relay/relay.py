"""The relay: a process's share of all subscriptions, delivered.

Owns: which subscriptions this process holds. Each is leased in Postgres; one whose relay died is taken over
when its lease is over. Any number of relays may run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from gateway.catalog.secrets import SecretsOf
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.relay import database
from gateway.relay.after_deploys import AfterDeploys
from gateway.relay.cursor import Overtaken
from gateway.relay.database import Subscribed, fetch, subscribed
from gateway.relay.delivery_worker import DeliveryPolicy, DeliveryWorker
from gateway.relay.due import taken
from gateway.relay.named import EventNames
from gateway.relay.outbox import Outbox
from gateway.relay.repeated import Repeated
from gateway.relay.standing import OfKind, standing_by_kind
from gateway.relay.subscriptions import Subscriptions, usable
from gateway.relay.targets.table import target_of
from gateway.tasks import ended, set_within
from gateway.telemetry.metrics import Metrics, Reading
from spec.subscriptions import Subscription as Declared
from spec.targets.form import Sent
from spec.targets.table import KINDS

logger = logging.getLogger("sluice.relay")

LOOK_EVERY_S: Final = 0.3  # for subscriptions that are new, changed, or left behind by a relay that died
HEADS_EVERY_S: Final = 0.25  # for commits that were not announced
HEADS_PAUSE_S: Final = 0.005  # commits that come closer together are looked at together
ACQUIRE_MAX: Final = 50
READ_EVERY_S: Final = 5.0
READ_SHARE: Final = 0.02  # of a core of Postgres, at most: a reading that takes longer comes less often
FORGET_EVERY_S: Final = 60.0
FORGET_MAX: Final = 10_000
FORGET_PAUSE_S: Final = 0.2  # between two of these: Postgres has other work
STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The settings of a relay: seconds and counts."""

    inflight: int = 16
    lease_s: float = 6.0
    attempts_retention_s: float = 7 * 86_400.0
    allow_private: bool = False


Listen = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""While inside, the call given is called whenever something may have been committed, here or elsewhere."""


class Relay:
    """`secrets_of` has the secrets that subscriptions name; `clock` gives Unix seconds, if not Postgres' own
    decides when a delivery is due and a subscription has failed for too long. AfterDeploys has `deployed`,
    Due `due`."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        outbox: Outbox,
        subscriptions: Subscriptions,
        secrets_of: SecretsOf,
        terms: RelayOptions,
        metrics: Metrics,
        names: EventNames,
        *,
        listen: Listen | None = None,
        deployed: Callable[[], object] | None = None,
        due: asyncio.Event | None = None,
        clock: Callable[[], float] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._pool, self._shares = pool, Shares(pool, spare=1)
        self._outbox = outbox
        self._subscriptions = subscriptions
        self._secrets_of = secrets_of
        self._terms = terms
        self._metrics, self._names = metrics, names
        self._listen = listen
        self._declaring = AfterDeploys(deployed)
        self._due = due
        self._clock, self._chance = clock, chance
        self._loop = asyncio.get_running_loop()
        self._couriers: dict[DeliveryWorker, asyncio.Task[None]] = {}
        self._unusable: set[int] = set()
        self._standings: list[OfKind] = []
        self._read_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._repeated = Repeated(logger)
        self._woken = asyncio.Event()
        self._some = asyncio.Event()
        """Set while there are couriers."""

    async def start(self) -> None:
        for loop, pause_s, wakes in (
            (self.look, LOOK_EVERY_S, self._due), (self._read, READ_EVERY_S, None),
            (self._forget, FORGET_EVERY_S, None), (self._follow_heads, HEADS_EVERY_S, None),
        ):  # fmt: skip
            self._tasks.append(self._loop.create_task(self._repeated.run(loop, pause_s, wakes=wakes)))

    async def stop(self) -> None:
        """Deliveries under way end, STOP_S later at most; leases are released."""
        await ended(self._tasks)
        for courier in self._couriers:
            courier.stop()
        if self._couriers:
            await asyncio.wait(self._couriers.values(), timeout=STOP_S)
        await ended(self._couriers.values())

    async def look(self) -> None:
        """Stores the subscriptions that specs declare, releases those that were changed, and leases those
        that no relay delivers."""
        declared = await self._declaring.run(self._subscriptions.declare)
        couriers = [*self._couriers]
        if couriers:
            rows = await fetch(self._pool, "held", [each.of.id for each in couriers], self.owner)
            held = {row["id"]: row["moves"] for row in rows}
            for courier in couriers:
                if courier.of.id not in held:  # it ended, is another relay's, or its tenant is suspended
                    courier.stop()
                elif held[courier.of.id] != courier.moves:
                    courier.doubt()
        if not (taken(self._due) or declared):
            return
        rows = await fetch(self._pool, "acquire", self.owner, self._terms.lease_s, ACQUIRE_MAX)
        for each in map(subscribed, rows):
            try:
                await self._take(each)
            except PostgresTrouble:
                raise
            except Exception as bug:  # it keeps no other from being delivered
                await self._tell_unusable(each, f"This is a bug of the relay: {type(bug).__name__}.", bug)

    async def _take(self, of: Subscribed) -> None:
        environ = self._secrets_of(await database.name_of(self._pool, of.tenant))
        read = usable(of, environ)
        if not isinstance(read, Declared):
            await self._tell_unusable(of, f"{read.pointer}: {read.error}")
            return  # its lease keeps others from looking at it all the time
        self._unusable.discard(of.id)
        async with database.connection(self._pool) as conn:
            waiting = await database.stragglers(conn, of.id)
            clock = self._clock or _running_from(await database.now(conn))
        private, unix = self._terms.allow_private, self._clock or time.time
        making = partial(target_of, read, environ, allow_private=private, clock=unix)
        target = await asyncio.to_thread(making)  # certificates are read
        courier = DeliveryWorker(
            self._shares.of(of.tenant), self._outbox, of, waiting, target, self._pace(read), self._metrics,
            self._names,
            clock=clock, chance=self._chance,
        )  # fmt: skip
        task = self._loop.create_task(self._deliver(courier))
        self._couriers[courier] = task
        self._some.set()
        task.add_done_callback(lambda _: self._couriers.pop(courier, None))

    async def _tell_unusable(self, of: Subscribed, why: str, bug: Exception | None = None) -> None:
        if of.id not in self._unusable:
            self._unusable.add(of.id)
            told = {"tenant": str(UUID(of.tenant)), "subscription": of.name, "reason": why}
            logger.error("subscription_unusable", extra=told, exc_info=bug)
        await fetch(self._pool, "note_why", of.id, why)

    def _pace(self, read: Declared) -> DeliveryPolicy:
        assert isinstance(read.target, Sent), "a pull subscription is not sent"
        return DeliveryPolicy(read.target.retry_s, self._terms.inflight, self._terms.lease_s)

    async def _deliver(self, courier: DeliveryWorker) -> None:
        try:
            await courier.run()
        except Overtaken:
            return
        except PostgresTrouble as trouble:
            self._repeated.failed(trouble)
        except Exception:
            logger.exception("task_restarted")

    async def _follow_heads(self) -> None:
        """Tells couriers of commits, once and as long as there are any."""
        await self._some.wait()
        with nullcontext() if self._listen is None else self._listen(self._woken.set):
            while self._couriers:
                await self._tell_heads()
        self._some.clear()

    async def _tell_heads(self) -> None:
        heads = {row["p"]: row["seq"] for row in await fetch(self._pool, "heads")}
        for courier in self._couriers:
            courier.notice(heads[courier.of.p])
        await asyncio.sleep(HEADS_PAUSE_S)
        await set_within(self._woken, HEADS_EVERY_S)
        self._woken.clear()

    async def _forget(self) -> None:
        """Ends what was kept long enough, so many at a time, until a time ends fewer."""
        while True:
            keep_s = self._terms.attempts_retention_s
            (ended,) = await fetch(self._pool, "forget_attempts", keep_s, FORGET_MAX)
            if ended["count"] < FORGET_MAX:
                return
            await asyncio.sleep(FORGET_PAUSE_S)

    async def _read(self) -> None:
        if self._loop.time() < self._read_at:
            return
        began = self._loop.time()
        try:
            self._standings = await standing_by_kind(self._pool)
        finally:
            ended = self._loop.time()
            self._read_at = ended + (ended - began) / READ_SHARE

    def readings(self) -> Iterator[Reading]:
        """How all subscriptions of the instance stand, whichever relay delivers them, as of some seconds
        ago."""
        yield Reading("sluice_relay_subscriptions", len(self._couriers))
        standings = {each.kind: each for each in self._standings}
        for kind in KINDS:
            of_kind = standings.get(kind, OfKind(kind))
            yield Reading("sluice_relay_lag_events", of_kind.lag_events, (kind,))
            yield Reading("sluice_relay_lag_seconds", of_kind.lag_s, (kind,))
            yield Reading("sluice_relay_retrying", of_kind.retrying, (kind,))
            yield Reading("sluice_relay_parked", of_kind.parked, (kind,))
            yield Reading("sluice_relay_disabled", of_kind.disabled, (kind,))


def _running_from(now: float) -> Callable[[], float]:
    """A clock that showed `now` just now, and that no change of this machine's time steps."""
    time_of_loop = asyncio.get_running_loop().time
    begun = time_of_loop()
    return lambda: now + time_of_loop() - begun
