"""A process's share of all followers: which tenants it holds, each leased in Postgres and kept by a worker.

Any number of processes may run one; a tenant whose process died is taken over when its lease is over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.follow.database import fetch
from gateway.follow.declarations import Declarations
from gateway.follow.events import Events
from gateway.follow.model import Build
from gateway.follow.output import Output
from gateway.follow.outputs import output_of
from gateway.follow.pressure import Pressure
from gateway.follow.recent import Recent
from gateway.follow.retention import PRUNED_MAX, prune
from gateway.follow.worker import CACHE_BYTES, Worker
from gateway.log.read.followers import Tapped
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.after_deploys import AfterDeploys
from gateway.relay.due import Due, taken
from gateway.relay.outbox import LostPlace, Outbox
from gateway.relay.relay import Listen
from gateway.relay.repeated import Repeated
from gateway.tasks import ended, set_within
from gateway.telemetry.metrics import Reading
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse_deployed

logger = logging.getLogger("sluice.follow")

LOOK_EVERY_S: Final = 0.3
LEASES_EVERY_S: Final = 1.0
"""Where nothing was declared: whether another process has given up a tenant."""
HEADS_EVERY_S: Final = 0.25
HEADS_PAUSE_S: Final = 0.005
READ_EVERY_S: Final = 5.0
SLICE_EVERY_S: Final = 0.5
PRUNE_EVERY_S: Final = 300.0
SLICE_ROWS: Final = 2000
"""Of a dropped build: some ten milliseconds of Postgres at a time."""
ACQUIRE_MAX: Final = 50
FAR_BEHIND: Final = 20_000
"""Positions of a partition behind which a worker looks for itself, of whichever tenant its events are."""
SPECS_KEPT: Final = 64
BUSY_S: Final = 0.5
AGAIN_S: Final = 1.0


class Runner:
    """`moved` is called with a tenant behind each transaction of its followers. `tapped` tells of commits of
    this process, if it is a gateway. AfterDeploys has `deployed`."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        outbox: Outbox,
        declarations: Declarations,
        lease_s: float,
        *,
        listen: Listen | None = None,
        deployed: Callable[[], object] | None = None,
        due: Due | None = None,
        moved: Callable[[bytes], None] = lambda _: None,
        tapped: Tapped | None = None,
    ) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._pool = pool
        self._outbox = outbox
        self._recent = None if tapped is None else Recent(tapped)
        self._events = Events(pool, outbox, recent=self._recent)
        self._declarations = declarations
        self._lease_s = lease_s
        self._listen = listen
        self._declaring = AfterDeploys(deployed)
        self._declares: asyncio.Task[bool] | None = None
        self._due = None if due is None else due.followers
        self._dropped = None if due is None else due.dropped_rows
        self._leases_at = 0.0
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._workers: dict[Worker, asyncio.Task[None]] = {}
        self._changes: dict[bytes, int] = {}
        self._specs: OrderedDict[tuple[bytes, bytes], Spec | Faults] = OrderedDict()
        """By tenant and digest: where Postgres lost commits, another spec may have the revision of one."""
        self._looked: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()
        self._some = asyncio.Event()
        """Set while there are workers."""
        self._woken_at = float("-inf")
        self._repeated = Repeated(logger)
        self._pressure = Pressure(self._loop.time)
        self._figures: dict[str, float] = {}

    async def start(self) -> None:
        for work, pause_s in (
            (self.look, LOOK_EVERY_S), (self._read, READ_EVERY_S), (self._slice, SLICE_EVERY_S),
            (self._prune, PRUNE_EVERY_S), (self._follow_heads, HEADS_EVERY_S),
        ):  # fmt: skip
            self._tasks.append(self._loop.create_task(self._repeated.run(work, pause_s)))

    async def stop(self) -> None:
        """Leases are given back."""
        tenants = {worker.tenant for worker in self._workers}
        await ended([*self._tasks, *self._workers.values()])
        if self._declares is not None:
            await ended([self._declares])
        if self._recent is not None:
            self._recent.hold(())
        for tenant in tenants:
            try:
                await fetch(self._pool, "let_go", PgUUID(tenant), self.owner)
            except PostgresTrouble:
                return

    def hurry(self, tenant: bytes) -> None:
        """Tells followers of this tenant, if this process keeps them, that a reader waits."""
        for worker in self._workers:
            if worker.tenant == tenant:
                worker.hurry()

    async def look(self) -> None:
        """Stores what specs declare, renews the leases of its tenants, and takes tenants that no process
        keeps."""
        declared = await self._declared()
        held = {worker.tenant: worker for worker in self._workers}
        if held:
            tenants = [PgUUID(each) for each in held]
            kept = await fetch(self._pool, "held", tenants, self.owner, self._lease_s)
            still = {row["tenant"].bytes: row["changes"] for row in kept}
            for tenant, worker in held.items():
                task = self._workers.get(worker)
                if task is None:
                    continue  # it has ended since
                if tenant not in still:
                    task.cancel()
                elif still[tenant] != self._changes.get(tenant):
                    self._changes[tenant] = still[tenant]
                    worker.changed()
        for worker in self._workers:
            worker.share()
        if declared or (self._loop.time() >= self._leases_at and taken(self._due)):
            rows = await fetch(self._pool, "acquire", self.owner, self._lease_s, ACQUIRE_MAX)
            for row in rows:
                self._take(row["tenant"].bytes, row["changes"])
            self._leases_at = self._loop.time() + (0.0 if rows else LEASES_EVERY_S)
            if rows and self._due is not None:
                self._due.set()  # there may be more
        if self._recent is not None:
            self._recent.hold(self._outbox.partition(worker.tenant) for worker in self._workers)

    async def _declared(self) -> bool:
        """Whether what specs declare was looked up. That is not waited for: to read some specs takes longer
        than leases last."""
        if self._declares is None:
            self._declares = self._loop.create_task(self._declaring.run(self._declarations.declare))
        if not (await asyncio.wait([self._declares], timeout=LOOK_EVERY_S))[0]:
            return False
        task, self._declares = self._declares, None
        return task.result()

    def _take(self, tenant: bytes, changes: int) -> None:
        self._changes[tenant] = changes
        worker = Worker(
            tenant, self._pool, self._events, self._output, self._moved, self._busy, self._is_pressed,
            self._cache_bytes, partial(self._passed, tenant),
        )  # fmt: skip
        task = self._loop.create_task(self._keep(worker))
        self._workers[worker] = task
        self._some.set()
        task.add_done_callback(lambda _: self._workers.pop(worker, None))

    async def _keep(self, worker: Worker) -> None:
        try:
            await worker.run()
        except LostPlace:
            logger.warning("followers_begin_again", extra={"tenant": str(UUID(bytes=worker.tenant))})
            await self._quietly(self._declarations.begin_again(UUID(bytes=worker.tenant)))
        except PostgresTrouble as trouble:
            self._repeated.failed(trouble)
        except Exception:
            logger.exception("task_restarted")
            await asyncio.sleep(AGAIN_S)
        await self._quietly(fetch(self._pool, "let_go", PgUUID(worker.tenant), self.owner))

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except PostgresTrouble as trouble:
            self._repeated.failed(trouble)

    async def _output(self, build: Build) -> Output | None:
        """None where its definition can't be read here: a newer release deployed it, or its tenant is being
        deleted."""
        spec = await self._spec(build.tenant, build.spec_rev)
        if spec is None:
            return None
        if isinstance(spec, Faults):
            place = f"{spec[0].pointer}: {spec[0].error}"
            why = f"Revision {build.spec_rev} of the spec can't be read here: {place}"
            told = {"tenant": str(UUID(bytes=build.tenant)), "follower": build.name, "reason": why}
            logger.error("follower_unusable", extra=told)
            return None
        return output_of(build, spec, self._events, self._pool)

    async def _spec(self, tenant: bytes, revision: int) -> Spec | Faults | None:
        """None where it was deleted, with its tenant."""
        rows = await fetch(self._pool, "spec", PgUUID(tenant), revision)
        if not rows:
            return None
        row = rows[0]
        known = self._specs.get((tenant, row["digest"]))
        if known is None:
            known = await asyncio.to_thread(parse_deployed, row["document"])
            self._specs[tenant, row["digest"]] = known
            if len(self._specs) > SPECS_KEPT:
                self._specs.popitem(last=False)
        return known

    def _cache_bytes(self) -> int:
        return CACHE_BYTES // max(len(self._workers), 1)

    def _passed(self, tenant: bytes) -> None:
        """What all followers here have folded is not held for them any more."""
        if self._recent is not None:
            p = self._outbox.partition(tenant)
            behind = [each.seq for each in self._workers if self._outbox.partition(each.tenant) == p]
            self._recent.forget(p, min(behind))

    def _busy(self) -> bool:
        """Whether events are being committed."""
        return self._loop.time() - self._woken_at < BUSY_S

    def _is_pressed(self) -> bool:
        """Whether this is a gateway that is given all that it can take."""
        return self._recent is not None and self._pressure()

    def _wake(self) -> None:
        self._woken_at = self._loop.time()
        self._woken.set()

    async def _follow_heads(self) -> None:
        """Tells workers of commits, once and as long as there are any."""
        await self._some.wait()
        with nullcontext() if self._listen is None else self._listen(self._wake):
            while self._workers:
                await self._tell_heads()
        self._some.clear()

    async def _tell_heads(self) -> None:
        if all(each.at_work for each in self._workers):
            await asyncio.sleep(HEADS_PAUSE_S)
            return
        for row in await fetch(self._pool, "heads"):
            if row["seq"] != self._looked.get(row["p"]):
                await self._tell(row["p"], row["seq"])
        await asyncio.sleep(HEADS_PAUSE_S)
        await set_within(self._woken, HEADS_EVERY_S)
        self._woken.clear()

    async def _tell(self, p: int, head: int) -> None:
        """Those that have events there since the last time."""
        workers = [each for each in self._workers if self._outbox.partition(each.tenant) == p]
        looked = self._looked.get(p)
        near = [each for each in workers if head - each.seq < FAR_BEHIND]
        if len(near) > 1 and looked is not None and 0 <= head - looked < FAR_BEHIND:
            tenants = [PgUUID(each.tenant) for each in near]
            arrived = {
                row["tenant"].bytes for row in await fetch(self._pool, "arrived", p, looked, head, tenants)
            }
            workers = [each for each in workers if each.tenant in arrived or each not in near]
        self._looked[p] = head  # not before Postgres has answered: it is asked again
        for each in workers:
            each.wake(head)

    async def _slice(self) -> None:
        """Deletes rows of dropped builds, some at a time, once there are any."""
        if self._dropped is not None:
            await self._dropped.wait()
        dropped = await fetch(self._pool, "dropped", 4)
        if self._dropped is not None and not dropped:
            self._dropped.clear()
        for row in dropped:
            sliced = 0
            for name in ("slice", "slice_sources"):
                sliced += len(await fetch(self._pool, name, row["id"], SLICE_ROWS))
            if not sliced:
                await fetch(self._pool, "end_dropped", row["id"])

    async def _prune(self) -> None:
        """Forgets what was deleted long ago, some rows at a time."""
        while True:
            if await prune(self._pool) < PRUNED_MAX:
                return
            await asyncio.sleep(SLICE_EVERY_S)

    async def _read(self) -> None:
        (every,) = await fetch(self._pool, "every_tenant")
        (furthest,) = await fetch(self._pool, "furthest_behind")
        self._figures = {**dict(every), "behind": furthest["events"]}

    def readings(self) -> Iterator[Reading]:
        """The status of the followers of all tenants, of all processes, some seconds ago."""
        yield Reading("sluice_followers_tenants", len(self._workers))
        for figure in ("building", "serving", "paused", "rows", "misfits", "behind"):
            yield Reading(f"sluice_followers_{figure}", self._figures.get(figure, 0))
