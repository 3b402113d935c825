"""`sluice relay`, as a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from gateway.catalog.migrate import migrate
from tests.support.calls import new_client, until
from tests.support.ports import free_port
from tests.support.servers import Servers
from tests.support.serving import Child, child_relaying

PARTITIONS = 2


@pytest.fixture
async def servers(start_servers: Callable[..., Awaitable[Servers]]) -> Servers:
    servers = await start_servers()
    await migrate(servers.postgres_url, PARTITIONS)
    return servers


@pytest.fixture
async def relay(servers: Servers, tmp_path: Path) -> AsyncIterator[Child]:
    async with child_relaying(servers.postgres_url, servers.redis_url, tmp_path, free_port()) as child:
        yield child


@pytest.fixture
async def operator(relay: Child) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(relay.served.url, None, ops=True) as client:
        yield client


async def test_its_ops_port_serves_metrics_and_health_and_nothing_else(
    relay: Child, operator: httpx.AsyncClient
) -> None:
    assert "sluice_relay_" in (await operator.get("/_/metrics")).text
    for path in ("/_/health/live", "/_/health/ready"):
        answer = await operator.get(path)
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
    for path in ("/", "/metrics", "/order/main_webhook", "/_/spec"):
        assert (await operator.get(path)).json()["code"] == "not_found"
    relay.terminate()
    assert await relay.ended() == 0


async def test_it_is_not_ready_while_postgres_is_away(
    servers: Servers, relay: Child, operator: httpx.AsyncClient
) -> None:
    async def says(status: int) -> bool:
        return (await operator.get("/_/health/ready")).status_code == status

    assert await says(200)
    servers.postgres.kill()
    await until(lambda: says(503))
    told = (await operator.get("/_/health/ready")).json()
    assert told["code"] == "unavailable"
    assert told["error"].startswith("Nothing could be delivered now: ")
    assert (await operator.get("/_/health/live")).status_code == 200
    await servers.postgres.start()
    await until(lambda: says(200))
