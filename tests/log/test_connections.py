"""However long commits wait, a gateway holds a fixed number of Postgres' connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import asyncpg
import pytest

from gateway.appends import Appended
from gateway.outcomes import Outcome
from tests.log.conftest import PARTITIONS, OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import Place, append, lane, new_stream, until
from tests.support.servers import Servers

POOL = 4
# A commit and its stand-in for each partition, and for what is helped and what is settled; one look that was
# given up for each of the pool.
MOST = 2 * (PARTITIONS + 2 + POOL)
COMMIT_TIMEOUT_S = 0.25

Hold = Callable[[Place, Servers], AbstractAsyncContextManager[None]]


@pytest.fixture
def place(breakable: Place) -> Place:
    return breakable


@asynccontextmanager
async def _no_standby(place: Place, servers: Servers) -> AsyncIterator[None]:
    admin = await asyncpg.connect(servers.database_url("postgres"))
    try:
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        await admin.execute("SELECT pg_reload_conf()")
        yield
    finally:
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()


@asynccontextmanager
async def _locked(place: Place, servers: Servers) -> AsyncIterator[None]:
    admin = await asyncpg.connect(place.postgres_url)
    try:
        async with admin.transaction():
            await admin.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await admin.close()


@pytest.mark.parametrize("hold", [_no_standby, _locked], ids=["standby", "lock"])
async def test_a_commit_that_waits_takes_one_stand_in_at_most(
    open_log: OpenLog, place: Place, breakable_servers: Servers, hold: Hold
) -> None:
    log = await open_log(commit_timeout_s=COMMIT_TIMEOUT_S, append_deadline_s=60)
    streams = {}
    while len(streams) < PARTITIONS:
        stream = new_stream()
        streams[lane(log, stream).partition.number] = stream
    await until(lambda: all(each.partition.open for each in log._lanes))
    counts: list[int] = []
    waiting: list[asyncio.Future[Outcome]] = []
    watcher = await asyncpg.connect(breakable_servers.database_url("postgres"))
    try:
        async with hold(place, breakable_servers):
            until_s = asyncio.get_running_loop().time() + 24 * COMMIT_TIMEOUT_S
            while asyncio.get_running_loop().time() < until_s:
                waiting += [log.append(append(each)) for each in streams.values()]
                counts.append(
                    await watcher.fetchval(
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluice'"
                    )
                )
                await asyncio.sleep(COMMIT_TIMEOUT_S / 4)
    finally:
        await watcher.close()
    assert max(counts) <= MOST, counts
    outcomes = await asyncio.gather(*waiting)
    assert {type(each) for each in outcomes} == {Appended}
    await check_invariants(place)
