"""A database of its own for each module, a gateway on it that relays nothing, and a tenant for each test.

`fill` appends; `relaying` runs a relay of the test's own beside it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway.aliases.store import Store
from gateway.catalog.secrets import Secrets
from gateway.config import Config
from gateway.log.epoch.settling import settling_without_log
from gateway.log.postgres import Postgres, open_pool
from gateway.partitions import partition_of
from gateway.relay.named import EventNames
from gateway.relay.outbox import Outbox
from gateway.relay.pull import Pull
from gateway.relay.relay import Relay, RelayOptions
from gateway.relay.subscription_rows import Put
from gateway.relay.subscriptions import Subscriptions
from gateway.telemetry.metrics import Metrics
from tests.relay import rebinding
from tests.relay.receivers import WebReceiver, web_receiver
from tests.support.accounts import Account, open_account
from tests.support.calls import bulk, bulk_line, new_client
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import Served, serving

HAS_NAMESPACE = rebinding.command() is not None
collect_ignore = [] if HAS_NAMESPACE else ["test_rebinding.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not HAS_NAMESPACE:
        terminalreporter.write_line(f"NOT RUN: tests/relay/test_rebinding.py: {rebinding.MISSING}", red=True)


PARTITIONS = 16


@pytest.fixture(scope="module")
async def config(servers: Servers, template: str) -> AsyncIterator[Config]:
    async with cloned(servers, template) as url:
        yield Config(redis_url=servers.redis_url, postgres_url=url, relay=False, allow_private_targets=True)


@pytest.fixture(scope="module")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture(scope="module")
async def pool(config: Config) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(config.postgres_url, 8, 5.0)
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(pool: asyncpg.Pool) -> AsyncIterator[Account]:
    account = await open_account(pool)
    yield account
    await pool.execute("DELETE FROM subscription")


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[WebReceiver]:
    async with web_receiver() as started:
        yield started


@dataclass
class Bench:
    """One tenant's subscriptions, and what delivers them, in this process. `metrics` are the last relay's."""

    pool: asyncpg.Pool
    client: httpx.AsyncClient
    tenant: uuid.UUID
    outbox: Outbox
    subscriptions: Subscriptions
    pull: Pull

    async def put(self, name: str, target: dict[str, Any], start: str = "beginning", **filtered: Any) -> None:
        document = {"filter": filtered, "start": start, "target": target}
        result = await self.subscriptions.put(self.tenant, name, document)
        assert isinstance(result, Put), result

    async def append(self, keys: list[str], times: int = 1, event_type: str = "was_noted") -> int:
        """So many events of each key, one of each in turn. Returns how many that are."""
        lines = [bulk_line(key, {"n": n}, event_type) for n in range(times) for key in keys]
        answers = await bulk(self.client, *lines)
        assert all(each["status"] == 201 for each in answers), answers
        return len(lines)

    def relaying(self, **more: Any) -> AbstractAsyncContextManager[Relay]:
        return relaying(self, **more)

    async def stands(self, name: str) -> dict[str, Any]:
        shown = await self.subscriptions.shown(self.tenant, name)
        assert shown is not None
        return shown

    async def head(self) -> int:
        p = partition_of(self.tenant.bytes, PARTITIONS)
        return int(await self.pool.fetchval("SELECT seq FROM partition_log WHERE p = $1", p))


@asynccontextmanager
async def relaying(bench: Bench, **more: Any) -> AsyncIterator[Relay]:
    terms = RelayOptions(
        inflight=more.pop("inflight", 16),
        lease_s=more.pop("lease_s", 30.0),
        allow_private=more.pop("private", True),
    )
    relay = Relay(
        bench.pool,
        bench.outbox,
        bench.subscriptions,
        Secrets({}).of,
        terms,
        Metrics(CollectorRegistry()),
        EventNames(bench.pool, Store(bench.pool).aliases_of_each),
        **more,
    )
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


@pytest.fixture
async def bench(
    config: Config, pool: asyncpg.Pool, client: httpx.AsyncClient, tenant: Account
) -> AsyncIterator[Bench]:
    async with settling_without_log(config.postgres_url, Postgres(pool), 5.0) as settling:
        outbox = Outbox(Postgres(pool), PARTITIONS, settling.stands)
        subscriptions = Subscriptions(pool, outbox, Secrets({}).of, allow_private=True)
        pull = Pull(pool, outbox, subscriptions, EventNames(pool, Store(pool).aliases_of_each))
        yield Bench(pool, client, uuid.UUID(tenant.id), outbox, subscriptions, pull)


async def until(holds: Callable[[], bool | Awaitable[bool]], deadline_s: float = 40.0) -> None:
    """Returns once it holds; asks again and again."""
    async with asyncio.timeout(deadline_s):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)
