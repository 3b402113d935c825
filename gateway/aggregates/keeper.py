"""Keeps the states of long streams: behind appends and reads, and again where handlers have changed.

Owns: which stream is due, and that one thing is done at a time, beside everything else. Nothing waits for it,
and what is not kept in time is folded by its reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

from gateway.aggregates.folder import Folder
from gateway.aggregates.kept import FOLD_EVERY, FOLD_HELD_EVERY, KeptStates
from gateway.aside import Busy
from gateway.catalog.model import Deployed
from gateway.events import Event, Stream
from gateway.log.entries import SequencedAppend
from gateway.log.log import Log
from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import ended

logger = logging.getLogger("sluice.kept")

DUE_MAX: Final = 10_000
"""Streams that wait for their state to be kept; beyond, the oldest is left to its next events."""
CLAIMED_S: Final = 600.0
"""So long no other gateway folds a stream that this one has begun with."""
LOOK_EVERY_S: Final = 1.0
SECOND_LOOK_S: Final = 15.0
"""After a deployment: by then no gateway keeps states by the handlers of before."""
_AGAIN_S: Final = 1.0


class Keeper:
    """`serving` are the specs of all tenants; another object after each change."""

    def __init__(
        self, log: Log, folder: Folder, kept: KeptStates, serving: Callable[[], Mapping[UUID, Deployed]]
    ) -> None:
        self._log = log
        self._folder = folder
        self._kept = kept
        self._serving = serving
        self._recent = folder.recent
        self._due: dict[Stream, int | None] = {}  # with a version that is committed
        self._work = asyncio.Event()
        self._known: Mapping[UUID, Deployed] = {}
        self._looks: dict[UUID, list[float]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hears of every commit of this gateway, until it is left."""
        with ExitStack() as taps:
            for p in range(self._log.instance.partitions):
                taps.enter_context(self._log.followers.tapped(p, self._committed))
            tasks = [asyncio.create_task(loop()) for loop in (self._keep_due, self._remake)]
            try:
                yield
            finally:
                await ended(tasks)

    def due(self, stream: Stream, version: int | None = None) -> None:
        """Its state is kept soon, up to `version`; None: as far as it goes."""
        self._due[stream] = version
        if len(self._due) > DUE_MAX:
            del self._due[next(iter(self._due))]
        self._work.set()

    def _committed(self, placed: Sequence[SequencedAppend]) -> None:
        for each in placed:
            if each.spread is None:
                stream, first, events = each.stream, each.first_version, each.events
                every = FOLD_HELD_EVERY if self._recent.add(stream, first, events) else FOLD_EVERY
                last = (first + len(events) - 1) // every * every
                if last >= first:
                    self._due_at(stream, last, events[last - first + 1 :])
            else:
                for (stream, version), event in zip(each.places(), each.events, strict=True):
                    held = self._recent and self._recent.add(stream, version, (event,))
                    if version % (FOLD_HELD_EVERY if held else FOLD_EVERY) == 0:
                        self._due_at(stream, version, ())

    def _due_at(self, stream: Stream, version: int, after: Sequence[Event]) -> None:
        """Its state at the version is folded soon, and the next one from what is committed meanwhile: from
        `after` on, which follow the version."""
        if self._recent.begin(stream, version + 1):
            self._recent.add(stream, version + 1, after)
        self.due(stream, version)

    def _deployed(self, stream: Stream) -> Deployed | None:
        """None where no state of it can be read."""
        deployed = self._serving().get(UUID(bytes=stream.tenant))
        if deployed is None or stream.aggregate_type not in deployed.spec.aggregate_types:
            return None
        return deployed

    async def _keep_due(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._due:
                stream = next(iter(self._due))
                version = self._due.pop(stream)
                if (deployed := self._deployed(stream)) is not None:
                    await self._keep(stream, deployed, version)

    async def _keep(self, stream: Stream, deployed: Deployed, version: int | None = None) -> bool:
        try:
            await self._folder.keep_up(stream, deployed, version)
        except (PostgresTrouble, Busy):
            await asyncio.sleep(_AGAIN_S)
            return False
        except Exception:
            logger.exception("task_restarted")
            await asyncio.sleep(_AGAIN_S)
            return False
        return True

    # -- handlers that have changed

    async def _remake(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._look(loop.time())
                for tenant, times in list(self._looks.items()):
                    if times[0] <= loop.time():
                        times.pop(0)
                        if not times:
                            del self._looks[tenant]
                        await self._remake_all(tenant)
            except PostgresTrouble:
                pass  # the watch tells of it
            except Exception:
                logger.exception("task_restarted")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, now: float) -> None:
        """Which tenants' handlers may be others than their kept states have."""
        serving, known = self._serving(), self._known
        if serving is known:
            return
        changed = [tenant for tenant, deployed in serving.items() if known.get(tenant) is not deployed]
        for tenant in await self._kept.kept_of(changed):
            self._looks[tenant] = [now, now + SECOND_LOOK_S] if known else [now]
        self._known = serving

    async def _remake_all(self, tenant: UUID) -> None:
        """What is stale of the tenant's, one stream after another. Raises PostgresTrouble."""
        while (deployed := self._serving().get(tenant)) is not None:
            stream = await self._kept.claim(tenant.bytes, deployed, CLAIMED_S)
            if stream is None:
                return
            if await self._keep(stream, deployed) and self._serving().get(tenant) is deployed:
                await self._kept.drop_stale(stream, deployed)
