"""What a gateway writes to stderr while its servers come and go: a process, on servers of its own."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.telemetry.log_events import COMMON_FIELDS, LOG_EVENTS
from tests.conftest import PARTITIONS
from tests.support.accounts import open_account
from tests.support.calls import envelope, new_client, new_id
from tests.support.drive import until
from tests.support.ports import free_port
from tests.support.servers import Servers
from tests.support.serving import Child, child_serving
from tests.telemetry.scrape import scrape, scraped_until


@dataclass(frozen=True, slots=True)
class Watched:
    child: Child
    servers: Servers
    client: httpx.AsyncClient
    operator: httpx.AsyncClient

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line of its log; each must be what a line is."""
        told = [json.loads(line) for line in self.child.log.splitlines(keepends=True) if line.endswith("\n")]
        for line in told:
            allowed = {*COMMON_FIELDS, *LOG_EVENTS[line["event"]].fields}
            assert line.keys() <= allowed, line
        return told

    def count(self, event: str, **fields: object) -> int:
        return sum(line["event"] == event and fields.items() <= line.items() for line in self.lines())


@pytest.fixture
async def watched(start_servers: Callable[..., Awaitable[Servers]], tmp_path: Path) -> AsyncIterator[Watched]:
    servers = await start_servers()
    await migrate(servers.postgres_url, PARTITIONS)
    async with asyncpg.create_pool(servers.postgres_url, min_size=0, max_size=1) as pool:
        account = await open_account(pool)
    port = free_port()
    settings = {"SLUICE_OPS_PORT": str(port), "SLUICE_APPEND_DEADLINE_S": "4"}
    async with (
        child_serving(servers.postgres_url, servers.redis_url, tmp_path, **settings) as child,
        new_client(child.served.url, account.admin) as client,
        new_client(f"http://127.0.0.1:{port}", None, ops=True) as operator,
    ):
        yield Watched(child, servers, client, operator)


async def append(watched: Watched) -> int:
    path = f"/order/{new_id()}/was_noted"
    return (await watched.client.post(path, json=envelope())).status_code


async def test_a_first_start_is_told_in_a_few_lines(watched: Watched) -> None:
    await until(lambda: watched.count("partitions_opened") and watched.count("gateway_started"))
    first, *others = [line["event"] for line in watched.lines()]
    assert first == "ops_listening"
    assert sorted(others) == ["gateway_started", "partitions_opened"], "in either order"
    (opened,) = [line for line in watched.lines() if line["event"] == "partitions_opened"]
    assert (opened["partitions"], opened["installed"]) == (PARTITIONS, PARTITIONS)


async def test_a_redis_that_went_away_and_came_back_empty_is_told_once_each(watched: Watched) -> None:
    await until(lambda: watched.count("partitions_opened"))

    def told_of(event: str) -> list[int]:
        told = [line["partitions"] for line in watched.lines() if line["event"] == event]
        return sorted(number for partitions in told for number in partitions)

    watched.servers.wipe_redis()
    await until(lambda: watched.count("backend_unavailable", server="redis"))
    await until(lambda: told_of("direct_mode_begun") == list(range(PARTITIONS)))
    assert await append(watched) == 201
    found = await scrape(watched.operator)
    assert found("sluice_backend_up", server="redis") == 0
    assert found.all("sluice_watermark_lag_events") == []
    assert found.all("sluice_direct_mode") == [1] * PARTITIONS
    ready = await watched.client.get("/_/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"ok": True, "mode": "direct"})
    await watched.servers.redis.start()
    await until(lambda: watched.count("backend_recovered", server="redis"))
    await until(lambda: told_of("direct_mode_ended") == list(range(PARTITIONS)))
    await scraped_until(
        watched.operator, lambda found: found("sluice_partitions", state="open") == PARTITIONS
    )
    assert await append(watched) == 201
    counts = Counter(line["event"] for line in watched.lines())
    assert (counts["backend_unavailable"], counts["backend_recovered"], counts["library"]) == (1, 1, 0)
    assert counts["partition_not_open"] <= 2
    assert sum(counts.values()) < 20, counts


async def test_a_postgres_that_is_away_for_a_while_is_told_once(watched: Watched) -> None:
    assert await append(watched) == 201
    watched.servers.postgres.kill()
    await until(lambda: watched.count("backend_unavailable", server="postgres"))
    away_since = time.monotonic()
    while time.monotonic() - away_since < 3:
        assert await append(watched) in (503, 504)
    found = await scrape(watched.operator)
    assert found("sluice_backend_up", server="postgres") == 0
    assert found("sluice_catalog_age_seconds") > 2
    await watched.servers.postgres.start()
    await until(lambda: watched.count("backend_recovered", server="postgres"))
    await scraped_until(
        watched.operator, lambda found: found("sluice_partitions", state="open") == PARTITIONS
    )
    counts = Counter(line["event"] for line in watched.lines())
    assert (counts["backend_unavailable"], counts["backend_recovered"], counts["library"]) == (1, 1, 0)
    assert counts["commit_outcome_unknown"] <= 2
    assert sum(counts.values()) < 20, counts
    assert "Traceback" not in watched.child.log


async def test_an_end_is_told_and_uses_of_keys_are_written_before_it(watched: Watched) -> None:
    assert await append(watched) == 201
    await until(lambda: watched.count("partitions_opened"))
    watched.child.terminate()
    assert await watched.child.ended() == 0
    assert [line["event"] for line in watched.lines()][-2:] == ["gateway_stopping", "gateway_stopped"]
    connection = await asyncpg.connect(watched.servers.postgres_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM catalog_reader") == 0
        assert await connection.fetchval("SELECT count(*) FROM api_key WHERE last_used_at IS NOT NULL") == 1
    finally:
        await connection.close()


async def test_an_end_without_postgres_is_no_failure(watched: Watched) -> None:
    assert await append(watched) == 201
    watched.servers.postgres.kill()
    watched.child.terminate()
    assert await watched.child.ended() == 0
    assert watched.count("catalog_not_closed") == watched.count("gateway_stopped") == 1


async def test_bytes_that_are_no_request_are_told_without_repeating_them(watched: Watched) -> None:
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", watched.child.served.port)
        writer.write(b"SECRET nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        await writer.wait_closed()
    await until(lambda: watched.count("request_refused"))
    assert watched.count("request_refused") == 1
    found = await scrape(watched.operator)
    assert found("sluice_log_events_total", event="request_refused") == 5
    assert not re.search("SECRET|nonsense", watched.child.log)
