"""Changes names: decides on a snapshot, appends what was decided under the version that it saw, applies it.

Owns the order of these steps. The append decides: of two writers that saw the same version one is faster, and
the other decides again on what there is then. A writer that dies in between leaves either nothing, or an
event that the next one applies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from uuid_utils import uuid7

from gateway.aggregates.placing import Placing
from gateway.aliases.store import Snapshot, Store
from gateway.appends import Append, Appended, make_append, make_retry, request_digest
from gateway.events import Event, Stream
from gateway.log.log import Log
from gateway.names.changes import STREAM_TYPE, Change, to_events
from gateway.outcomes import Conflict, Outcome
from spec.identifiers import GLOBAL

logger = logging.getLogger("sluice.registry")

WRITE_S: Final = 10.0
"""For one change with all its tries; each lost try is one that another writer won."""
ACTOR_TYPE: Final = "system_names"
ASSIGNING: Final = "event_scheduler"
IMPORTING: Final = "test_data_importer"

Plan = Callable[[Snapshot], Awaitable[Sequence[Change]]]
"""What is to change, by what it sees; called again for each try. No changes: nothing is appended."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was decided, and how many events the tenant's stream of names has since then."""

    changes: tuple[Change, ...]
    version: int


class NotWritten(Exception):
    """It may yet be committed; the next try decides on what there is then."""


def stream_of(tenant: bytes) -> Stream:
    return Stream(tenant, STREAM_TYPE, GLOBAL)


class Writer:
    def __init__(self, log: Log | Placing, store: Store) -> None:
        self._log = log
        self._store = store
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """To a stream of names, which no spec declares."""
        return self._log.append(append)

    async def write(
        self, tenant: bytes, plan: Plan, *, spec_rev: int = 0, actor_id: str = ASSIGNING
    ) -> Written:
        """Carries out what the plan says, all or nothing; it is committed and in the tables on return.

        Raises PostgresTrouble and NotWritten, and whatever the plan raises: nothing was appended then.
        """
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        loop = asyncio.get_running_loop()
        until = loop.time() + WRITE_S
        while True:
            async with turn:  # of this gateway only one at a time: they would only make each other lose
                await self._store.sync(tenant)
                async with self._store.snapshot(tenant) as at:
                    version, changes = at.version, tuple(await plan(at))
                if not any(change.names for change in changes):
                    return Written((), version)
                append = _append(tenant, version, changes, spec_rev, actor_id)
                outcome = await self._log.append(append)
                if isinstance(outcome, Appended):
                    await self._store.sync(tenant)
                    return Written(changes, outcome.length)
            if not isinstance(outcome, Conflict):
                raise NotWritten(f"names were not written: {outcome}")
            if loop.time() > until:
                raise NotWritten(f"other writers were faster for {WRITE_S:g} s")


def _append(tenant: bytes, version: int, changes: Sequence[Change], spec_rev: int, actor_id: str) -> Append:
    now_ms, correlation_id = time.time_ns() // 1_000_000, uuid7().bytes
    events = tuple(
        [
            Event(
                id=uuid7().bytes,
                type=event_type,
                actor_type=ACTOR_TYPE,
                actor_id=actor_id,
                target_type=None,
                target_id=None,
                correlation_id=correlation_id,
                causation_id=None,
                spec_rev=spec_rev,
                recorded_at_ms=now_ms,
                extra=None,
                payload=payload,
            )
            for event_type, payload in to_events(changes)
        ]
    )
    digest = request_digest(f"/{STREAM_TYPE}/{GLOBAL}", events[0].id, version)
    return make_append(stream_of(tenant), events, version, make_retry(tenant, None, (), digest))
