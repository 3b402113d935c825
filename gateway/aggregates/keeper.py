"""Keeps the states of long streams: behind appends and reads, and again where handlers have changed.

Owns: which stream is due, and that one thing is done at a time, beside everything else. Nothing waits for it,
and what is not kept in time is folded by its reader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

from gateway.aggregates.folder import Folder
from gateway.aggregates.kept import FOLD_EVERY, FOLD_HELD_EVERY, KEEP_EVERY, KeptStates
from gateway.aggregates.running import Place
from gateway.aside import Busy
from gateway.catalog.model import Deployed
from gateway.events import Event, Stream
from gateway.log.entries import SequencedAppend
from gateway.log.log import Log
from gateway.postgres.errors import PostgresTrouble
from gateway.state import Folded
from gateway.tasks import ended

logger = logging.getLogger("sluice.kept")

DUE_MAX: Final = 10_000
"""Streams that wait for their state to be kept; beyond, the oldest is left to its next events."""
CLAIMED_S: Final = 600.0
"""So long no other gateway folds a stream that this one has begun with."""
LOOK_EVERY_S: Final = 1.0
SECOND_LOOK_S: Final = 15.0
"""After a deployment: by then no gateway keeps states by the handlers of before."""
AT_ONCE_S: Final = 0.001
"""So long what has not merged is folded behind a commit; the rest is a moment later."""
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
        self._running = folder.running
        self._due: dict[Stream, int | None] = {}  # with a version that is committed
        # States to be kept, each with the epoch of its history.
        self._made: dict[Stream, tuple[Deployed, Folded, int]] = {}
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
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
                if self._later is not None:
                    self._later.cancel()

    def due(self, stream: Stream, version: int | None = None) -> None:
        """Its state is kept soon, up to `version`; None: as far as it goes."""
        self._due[stream] = version
        if len(self._due) > DUE_MAX:
            del self._due[next(iter(self._due))]
        self._work.set()

    def _committed(self, placed: Sequence[SequencedAppend]) -> None:
        for part in self._running.merge(placed):
            self._add(*part)
        if self._running.behind and self._later is None:
            self._fold_on()

    def _add(self, stream: Stream, first: int, events: Sequence[Event]) -> None:
        followed = self._running.add(stream, first, events)
        if stream in self._running.behind:
            return
        every = FOLD_HELD_EVERY if followed else FOLD_EVERY
        version = (first + len(events) - 1) // every * every
        if version >= first:  # folded soon, and then the state follows what is committed meanwhile
            if self._running.begin(stream, version + 1):
                self._running.add(stream, version + 1, events[version - first + 1 :])
            self.due(stream, version)

    def _fold_on(self) -> None:
        """What was committed is folded into states that run: for a moment, and the rest a moment later."""
        running, self._later = self._running, None
        ends = time.monotonic() + AT_ONCE_S
        while running.behind:
            if time.monotonic() > ends:
                self._later = asyncio.get_running_loop().call_later(AT_ONCE_S, self._fold_on)
                return
            stream = next(iter(running.behind))
            published = running.fold_on(stream)
            if published is not None:
                self._publish(*published)
            elif stream not in running:
                self.due(stream)

    def _publish(self, place: Place, rewound: int, folded: Folded) -> None:
        stream, revision, _ = place
        deployed = self._deployed(stream)
        if deployed is None or deployed.revision != revision:
            self._running.drop(stream)
            return
        self._folder.kept.put(place, folded)
        if folded.length % KEEP_EVERY == 0 and len(self._made) < DUE_MAX:
            self._made[stream] = deployed, folded, rewound
            self._work.set()

    def _deployed(self, stream: Stream) -> Deployed | None:
        """None where no state of it can be read."""
        deployed = self._serving().get(UUID(bytes=stream.tenant))
        if deployed is None or stream.aggregate_type not in deployed.reading.aggregate_types:
            return None
        return deployed

    async def _keep_due(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._due or self._made:
                if self._made:
                    stream, made = self._made.popitem()
                    if not await self._tried(self._kept.keep(stream, *made)):
                        self.due(stream)
                    continue
                stream = next(iter(self._due))
                version = self._due.pop(stream)
                if (deployed := self._deployed(stream)) is not None:
                    await self._tried(self._folder.keep_up(stream, deployed, version))

    async def _tried(self, work: Awaitable[None]) -> bool:
        try:
            await work
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
        while True:
            try:
                await self._look(self._loop.time())
                for tenant, times in list(self._looks.items()):
                    if times[0] <= self._loop.time():
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
            if (
                await self._tried(self._folder.keep_up(stream, deployed))
                and self._serving().get(tenant) is deployed
            ):
                await self._kept.drop_stale(stream, deployed)
