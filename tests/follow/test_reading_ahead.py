"""A build reads the next page of events while one is folded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

import asyncpg

from gateway.config import Config
from gateway.follow.declarations import Declarations
from gateway.follow.events import APPEND_EVENTS_MAX, Events, Page
from gateway.follow.model import Build, Changes, Event
from gateway.follow.output import NeverAhead
from gateway.follow.row_cache import RowCache
from gateway.follow.worker import Worker
from gateway.log.epoch.settling import settling_without_log
from gateway.log.postgres import Postgres
from gateway.relay.outbox import Outbox
from gateway.relay.position import Place
from gateway.tasks import ended
from tests.bench.projections import FILL
from tests.follow.conftest import SPEC
from tests.support.accounts import open_account
from tests.support.calls import DEADLINE_S, until

EVENTS = APPEND_EVENTS_MAX + 300
"""More than a page of those below."""


class Noted(Events):
    """Says when a page behind the first one is asked for."""

    later: asyncio.Event

    async def page(self, tenant: bytes, p: int, after: Place, types: Collection[str]) -> Page:
        if after.seq:
            self.later.set()
        return await super().page(tenant, p, after, types)


class Folds(NeverAhead):
    """Folds nothing, and its first page only once the second one was asked for."""

    types = frozenset(("order",))
    reads_back = False
    holds_states = False

    def __init__(self, later: asyncio.Event) -> None:
        self._later = later
        self.pages: list[int] = []

    def bound(self, bytes_max: int) -> None:
        pass

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        self.pages.append(len(events))
        async with asyncio.timeout(DEADLINE_S):
            await self._later.wait()
        return Changes((), 0, 0, ())


async def test_the_next_page_is_asked_for_while_one_is_folded(config: Config, pool: asyncpg.Pool) -> None:
    account = await open_account(pool, SPEC)
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, instance.partitions, settling.stands)
        tenant = UUID(account.id)
        await pool.execute(FILL, outbox.partition(tenant.bytes), tenant, EVENTS, 10)
        await Declarations(pool, outbox).declare()
        events = Noted(pool, outbox, events_max=APPEND_EVENTS_MAX + 1)
        events.later = asyncio.Event()
        output = Folds(events.later)

        async def output_of(_: Build) -> Folds:
            return output

        async def serving() -> bool:
            query = "SELECT bool_and(state = 'serving') FROM follower WHERE tenant = $1"
            return bool(await pool.fetchval(query, tenant))

        task = asyncio.create_task(
            Worker(tenant.bytes, pool, events, output_of, lambda _: None, lambda: False).run()
        )
        try:
            await until(serving)
        finally:
            await ended([task])
    assert len(output.pages) == 4  # two, each for a list and a projection
    assert sum(output.pages) == 2 * EVENTS
