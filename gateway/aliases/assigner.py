"""Gives names to new aggregates, in batches, behind the commit of their first events.

Owns the tasks that do it, at most one a tenant in this gateway. Every gateway looks: that two of them find
the same aggregates costs one of them a try (writer.py), never a number. An append's own transaction knows
nothing of it, so a counter is no hot row; what is found is what is committed, in the order of the commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from uuid import UUID

from gateway.aliases.kinds import Namer, ProjectNamer, is_root, namers_of
from gateway.aliases.projects import ProjectKeys
from gateway.aliases.store import Found, Snapshot, Store
from gateway.aliases.writer import NotWritten, Writer
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.log.log import Log
from gateway.names.changes import Change, Give, Given
from gateway.partitions import partition_of
from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import ended

logger = logging.getLogger("sluice.registry")

LOOK_EVERY_S: Final = 0.25
"""Between looks whether anything was committed, for aggregates for which no client waits."""
AGGREGATES_MAX: Final = 2000
"""Named in one append: a few hundred kilobytes, so that it is no long wait for others."""
PASSED_OVER_MAX: Final = 10_000
"""Positions of a partition that a look which found nothing may read again. Past them, it is noted how far it
came: each note is a write, and to read so many positions takes some ms."""
_AT_ONCE: Final = 4
"""Tenants looked after at a time: each needs a connection of the pool that reads share."""
_RETRY_S: Final = 0.5


class _Lookout:
    """What is known of one tenant. `seen`: where its partition stood, in `epoch`, when all was named, by
    `declared`."""

    __slots__ = ("declared", "epoch", "seen", "task", "waiting")

    def __init__(self) -> None:
        self.seen = 0
        self.epoch = -1
        self.declared = ""
        self.task: asyncio.Task[None] | None = None
        self.waiting: list[asyncio.Future[None]] = []


class Assigner:
    def __init__(
        self,
        log: Log,
        catalog: Catalog,
        store: Store,
        writer: Writer,
        projects: ProjectKeys | None = None,
    ) -> None:
        self._projects = projects
        self._log = log
        self._catalog = catalog
        self._store = store
        self._writer = writer
        self._lookouts: dict[UUID, _Lookout] = {}
        self._serving: Mapping[UUID, Deployed] = {}
        self._declaring: tuple[UUID, ...] = ()
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def named(self, stream: Stream, timeout_s: float) -> list[Found]:
        """The names of an aggregate whose first event is committed, once it has them; what there is by then
        where that takes longer. Raises PostgresTrouble."""
        tenant = UUID(bytes=stream.tenant)
        lookout = self._lookouts.setdefault(tenant, _Lookout())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lookout.waiting.append(done)
        self._begin(tenant, lookout)
        await asyncio.wait((done,), timeout=timeout_s)
        done.cancel()
        return await self._store.aliases_of(stream)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks at all tenants now and then, until it is left."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            tasks = [lookout.task for lookout in self._lookouts.values() if lookout.task is not None]
            await ended([looking, *tasks])

    async def _look(self) -> None:
        while True:
            try:
                await self._look_once()
            except PostgresTrouble as trouble:
                logger.info("alias_scan_failed", extra={"reason": str(trouble)})
            except Exception:
                logger.exception("task_restarted")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look_once(self) -> None:
        """Begins with each tenant that has new aggregates, or whose spec declares other names than before."""
        moved: dict[UUID, tuple[_Lookout, int]] = {}
        for tenant in self._tenants():
            lookout = self._lookouts.setdefault(tenant, _Lookout())
            stands = self._log.committed_seq(tenant.bytes)
            epoch = self._log.epoch(tenant.bytes)
            if lookout.declared != _declared(self._namers(tenant)) or lookout.epoch != epoch:
                self._begin(tenant, lookout)
            elif lookout.seen < stands:
                moved[tenant] = lookout, stands
        if moved:
            begun = await self._store.begun({tenant: each.seen for tenant, (each, _) in moved.items()})
            for tenant, (lookout, stands) in moved.items():
                if tenant in begun:
                    self._begin(tenant, lookout)
                else:
                    lookout.seen = max(lookout.seen, stands)

    def _tenants(self) -> tuple[UUID, ...]:
        """Those whose specs declare names."""
        serving = self._catalog.serving
        if serving is not self._serving:
            self._serving = serving
            self._declaring = tuple([each for each, deployed in serving.items() if namers_of(deployed.spec)])
        return self._declaring

    def _namers(self, tenant: UUID) -> tuple[Namer, ...]:
        deployed = self._catalog.deployed(tenant)
        return () if deployed is None else namers_of(deployed.spec)

    # -- one tenant

    def _begin(self, tenant: UUID, lookout: _Lookout) -> None:
        if lookout.task is None:
            lookout.task = asyncio.create_task(self._work(tenant, lookout))

    async def _work(self, tenant: UUID, lookout: _Lookout) -> None:
        """Until all is named that was committed before the last one began to wait."""
        try:
            more = True
            while more or lookout.waiting:
                waiting, lookout.waiting = lookout.waiting, []
                try:
                    async with self._turn:
                        more = await self._name_some(tenant, lookout)
                except (PostgresTrouble, NotWritten) as trouble:
                    told = {"tenant": str(tenant), "reason": str(trouble)}
                    logger.warning("alias_assignment_failed", extra=told)
                    more = True
                    await asyncio.sleep(_RETRY_S)
                if more:
                    lookout.waiting += [each for each in waiting if not each.done()]
                else:
                    _release(waiting)
        except Exception:
            logger.exception("names_failed", extra={"tenant": str(tenant)})
            await asyncio.sleep(_RETRY_S)
        finally:
            lookout.task = None
            _release(lookout.waiting)
            lookout.waiting = []

    async def _name_some(self, tenant: UUID, lookout: _Lookout) -> bool:
        """Names the next aggregates; whether there may be more."""
        deployed = self._catalog.deployed(tenant)
        namers = () if deployed is None else namers_of(deployed.spec)
        if deployed is None or not namers or self._catalog.resting(tenant):
            return False
        epoch = self._log.epoch(tenant.bytes)
        p = partition_of(tenant.bytes, self._log.instance.partitions)
        round_ = _Round(tenant.bytes, p, deployed, self._projects)
        await self._writer.write(tenant.bytes, round_.plan, spec_rev=deployed.revision)
        if round_.moved:
            await self._store.note_scan(tenant.bytes, round_.reached, round_.declared, deployed.revision)
        if round_.complete:
            lookout.seen, lookout.epoch, lookout.declared = round_.reached, epoch, round_.declared
        return not round_.complete


class _Round:
    """One look at a tenant's new aggregates."""

    def __init__(self, tenant: bytes, p: int, deployed: Deployed, projects: ProjectKeys | None) -> None:
        self._tenant = tenant
        self._p = p
        self._revision = deployed.revision
        self._namers = namers_of(
            deployed.spec, *(() if projects is None else (partial(projects.keys_of, deployed=deployed),))
        )
        self.declared = _declared(self._namers)
        self.reached = 0
        self.complete = False
        self.moved = False

    async def plan(self, at: Snapshot) -> Sequence[Change]:
        scan = await at.scanned(self._p)
        if scan.spec_rev > self._revision:  # this gateway follows the catalog behind others: theirs to do
            self.reached, self.complete, self.moved = scan.head, True, False
            return ()
        start = scan.seq if scan.declared == self.declared else 0
        created = await at.created(
            start, {each for namer in self._namers for each in namer.types}, AGGREGATES_MAX
        )
        self.complete = len(created) < AGGREGATES_MAX
        self.reached = scan.head if self.complete else created[-1][0]
        # Also where no aggregate is of its types, but not for a few events: the next look begins behind them.
        self.moved = (
            bool(created) or scan.declared != self.declared or self.reached - scan.seq >= PASSED_OVER_MAX
        )
        changes: list[Change] = []
        for namer in self._namers:
            types, wants = namer.types, namer.wants
            nameless = [
                (aggregate_type, key)
                for _, aggregate_type, key, kinds in created
                if aggregate_type in types and wants(kinds)
            ]
            names = await namer.name(at, nameless)
            if (
                len(names) < len(nameless)
                and not isinstance(namer, ProjectNamer)
                and _exhausted(nameless, names)
            ):
                told = {
                    "tenant": str(UUID(bytes=self._tenant)),
                    "reason": f"{namer.declared} has no names left",
                }
                logger.error("names_exhausted", extra=told)
            changes.append(Give(tuple(names)))
        return changes


def _exhausted(nameless: Sequence[tuple[str, str]], names: Sequence[Given]) -> bool:
    """Whether an aggregate that is to have a name got none."""
    named = {(each.aggregate_type, each.key) for each in names}
    return any(is_root(key) and (name, key) not in named for name, key in nameless)


def _declared(namers: Sequence[Namer]) -> str:
    return "; ".join([namer.declared for namer in namers])


def _release(waiting: Sequence[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)
