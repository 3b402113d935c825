"""`sluice serve --workers 2` on real servers: deaths and stops under load, and a start that can't succeed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx

from gateway.config import Config
from tests.support.accounts import Account
from tests.support.calls import append, new_client, new_id
from tests.support.ports import free_port
from tests.support.serving import POLL_S, STOP_S, until_ready

WRITERS = 12


@asynccontextmanager
async def command(config: Config, log: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and the URL of its gateways."""
    port = free_port()
    others = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    urls = {"SLUICE_POSTGRES_URL": config.postgres_url, "SLUICE_REDIS_URL": config.redis_url}
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "serve", "--workers", "2",
            env={**others, **urls, "SLUICE_PORT": str(port)},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=file,
        )  # fmt: skip
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def started(log: Path) -> list[int]:
    """The pids of the workers that ever started, in order."""
    lines = re.findall(r"^.*gateway_started.*$", log.read_text(), re.MULTILINE)
    return [int(re.findall(r'"pid": ?(\d+)', line)[0]) for line in lines]


async def until_started(log: Path, count: int) -> list[int]:
    async with asyncio.timeout(60):
        while len(pids := started(log)) < count:
            await asyncio.sleep(POLL_S)
    return pids


async def test_a_worker_that_is_killed_and_a_stop_lose_nothing(
    own_config: Config, own_tenant: Account, own_outbox: asyncpg.Pool, tmp_path: Path
) -> None:
    """Each writer sends an append with its `Idempotency-Key` until it is answered: all of them are there
    once, and no new connection is refused while a worker is away."""
    log = tmp_path / "log"
    receipts: dict[str, str] = {}
    stopping = asyncio.Event()

    async with command(own_config, log) as (process, url):
        first, second = await until_started(log, 2)
        await until_ready(url)

        async def write() -> None:
            key, identity = new_id(), new_id()
            while not stopping.is_set():
                async with new_client(url, own_tenant.write) as client:
                    try:
                        while True:
                            headers = {"Idempotency-Key": identity}
                            response = await append(client, "order", key, "was_noted", 1, headers=headers)
                            assert response.status_code in (200, 201, 503, 504), response.text
                            if response.status_code < 300:
                                receipts[identity] = response.json()["event_id"]
                                identity = new_id()
                    except httpx.ConnectError:
                        assert stopping.is_set()
                    except httpx.TransportError:  # its worker died: another one takes it
                        continue

        writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
        async with asyncio.timeout(60):
            while len(receipts) < 100:
                await asyncio.sleep(POLL_S)
            os.kill(first, signal.SIGKILL)
            _, _, third = await until_started(log, 3)
            at_least = len(receipts) + 50
            while len(receipts) < at_least:
                await asyncio.sleep(POLL_S)
        assert len({first, second, third}) == 3
        stopping.set()
        process.terminate()
        code = await asyncio.wait_for(process.wait(), STOP_S)
        await asyncio.gather(*writers)
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    rows = await own_outbox.fetch("SELECT id FROM outbox WHERE tenant = $1", UUID(own_tenant.id))
    stored = [str(row["id"]) for row in rows]
    assert set(receipts.values()) <= set(stored)
    assert len(set(receipts.values())) == len(receipts)
    # At the stop, the one that each writer had under way may be there without its answer.
    assert len(stored) <= len(receipts) + WRITERS


async def test_what_keeps_all_workers_from_starting_is_one_sentence(
    own_config: Config, tmp_path: Path
) -> None:
    nowhere = Config(redis_url=own_config.redis_url, postgres_url="postgresql://sluice:s3cret@127.0.0.1:9/no")
    log = tmp_path / "log"
    async with command(nowhere, log) as (process, _):
        assert await asyncio.wait_for(process.wait(), STOP_S) == 1
    [line] = log.read_text().splitlines()
    assert line.startswith("sluice serve: Postgres at postgresql://sluice:***@127.0.0.1:9/no can't be used: ")
