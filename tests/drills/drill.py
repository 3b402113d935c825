"""The drills: servers of their own, writers, and the steps as docs/backups.md has them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg

from gateway.catalog.migrate import migrate
from gateway.client import Actor, AsyncClient
from gateway.config import Config
from gateway.dev.place import socket_folder
from gateway.dev.postgres_server import SOCKET_NAME, PostgresServer
from gateway.dev.service_process import ServiceProcess
from gateway.log.postgres import open_pool
from gateway.relay.home import not_adopted
from tests.support.accounts import Account, open_account
from tests.support.servers import Server, Servers, open_folder, servers_in
from tests.support.serving import Served, serving

PAGE = (Path(__file__).parents[2] / "docs/backups.md").read_text()
STEP = re.compile(r"<!-- drill: ([a-z-]+) -->\n```sh\n(.*?)```", re.DOTALL)
STEPS = dict(STEP.findall(PAGE))
ACTOR = Actor("user", "global")
ARCHIVED_S = 30.0


@dataclass(frozen=True)
class Outcome:
    acknowledged: int
    restored: int

    def __str__(self) -> str:
        return f"{self.restored:,} events restored, all {self.acknowledged:,} acknowledged ones too; audited"


@dataclass
class Stage:
    """The original, and the variables of the page's commands."""

    servers: Servers
    account: Account
    served: Served
    variables: dict[str, str]
    written: list[str]
    """Ids of acknowledged events, in the order of their answers."""

    def run(self, step: str) -> str:
        """What it prints. Fails where one of its commands does."""
        binaries = self.servers.postgres_server.binaries.postgres.parent
        path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.defpath])
        environ = {"PATH": path, "LC_ALL": "C", **self.variables}
        ran = subprocess.run(
            ["sh", "-euc", STEPS[step]], env=environ, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{step}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    async def run_beside(self, step: str) -> str:
        return await asyncio.to_thread(self.run, step)


@asynccontextmanager
async def stage(*, archived: bool, durable: bool) -> AsyncIterator[Stage]:
    with open_folder() as folder:
        servers = servers_in(folder, durable=durable)
        try:
            await servers.start()
            backups, archive = folder / "backups", folder / "archive"
            for made in (backups, archive):
                made.mkdir()
                made.chmod(0o777)  # Postgres' account writes to the archive
            await migrate(servers.postgres_url, 16)
            variables = {
                "SLUICE_POSTGRES_URL": servers.postgres_url,
                "SLUICE_REDIS_URL": servers.redis_url,
                "ADMIN_URL": servers.database_url("postgres"),
                "BACKUPS": str(backups),
                "ARCHIVE": str(archive),
            }
            config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url)
            pool = await asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1)
            account = await open_account(pool)
            await pool.close()
            made_ready = Stage(servers, account, Served(0, ""), variables, [])
            if archived:
                made_ready.run("archive")
                servers.postgres.stop()
                await servers.postgres.start()
            async with serving(config) as served:
                made_ready.served = served
                yield made_ready
        finally:
            servers.close()


@asynccontextmanager
async def writing(on: Stage, writers: int) -> AsyncIterator[None]:
    async with AsyncClient(on.served.url, on.account.write) as client:

        async def write() -> None:
            key = str(uuid4())
            while True:
                receipt = await client.append("order", key, "was_noted", {"n": len(on.written)}, actor=ACTOR)
                on.written.append(receipt.event_id)

        tasks = [asyncio.create_task(write()) for _ in range(writers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until_written(on: Stage, more: int, seconds: float) -> None:
    """At least so many more, and so long."""
    count, loop = len(on.written), asyncio.get_running_loop()
    until = loop.time() + seconds
    while len(on.written) < count + more or loop.time() < until:
        await asyncio.sleep(0.02)


async def proved(on: Stage, acknowledged: list[str], url: str) -> Outcome:
    """The copy is whole, sends nothing until it is adopted, and takes appends then."""
    on.variables["COPY_URL"] = url
    pool = await open_pool(url, 2, 10.0)
    try:
        assert await not_adopted(pool) is not None
        rows = await pool.fetch("SELECT id::text FROM outbox")
    finally:
        await pool.close()
    restored = {row["id"] for row in rows}
    assert restored.issuperset(acknowledged), len(set(acknowledged) - restored)
    await on.run_beside("adopt")
    config = Config(redis_url=on.servers.redis_url, postgres_url=url)
    async with serving(config) as served, AsyncClient(served.url, on.account.write) as client:
        assert (await client.create("order", [("was_noted", {})], actor=ACTOR)).length == 1
    pool = await open_pool(url, 2, 10.0)
    try:
        assert await not_adopted(pool) is None
    finally:
        await pool.close()
    return Outcome(len(acknowledged), len(restored))


async def dump(writers: int, seconds: float, *, durable: bool = True) -> Outcome:
    async with stage(archived=False, durable=durable) as on:
        async with writing(on, writers):
            await until_written(on, 50, seconds / 2)
            acknowledged = list(on.written)
            await on.run_beside("dump")
            await until_written(on, 10, seconds / 2)
        url = on.servers.database_url("sluice_copy")
        on.variables["COPY_URL"] = url
        await on.run_beside("restore-dump")
        return await proved(on, acknowledged, url)


async def point_in_time(writers: int, seconds: float, *, durable: bool = True) -> Outcome:
    async with stage(archived=True, durable=durable) as on:
        async with writing(on, writers):
            await until_written(on, 20, seconds / 3)
            await on.run_beside("base")
            await until_written(on, 50, seconds / 3)
            acknowledged = list(on.written)
            admin = await asyncpg.connect(on.variables["ADMIN_URL"])
            on.variables["WHEN"] = str(await admin.fetchval("SELECT clock_timestamp()::text"))
            await until_written(on, 20, seconds / 3)
        await archived_all(admin)
        await admin.close()
        server = on.servers.postgres_server
        home = on.servers.folder / "restored"
        home.mkdir(mode=0o700)
        on.variables["DATA"] = str(home / "data")
        await on.run_beside("restore-base")
        if server.account is not None:
            for path in (home, *home.rglob("*")):
                os.chown(path, server.account.uid, server.account.gid, follow_symlinks=False)
        sockets = socket_folder(home, server.account, SOCKET_NAME)
        copy = PostgresServer(
            server.binaries, home, sockets, server.account, on.servers.folder / "restored.log"
        )
        running = Server(ServiceProcess(copy, print))
        try:
            await running.start()
            await promoted(copy.url())
            return await proved(on, acknowledged, copy.url())
        finally:
            running.keeper.stop(hurried=lambda: True)
            shutil.rmtree(home, ignore_errors=True)


async def archived_all(admin: asyncpg.Connection) -> None:
    """The segment that is being written is closed, and everything up to it is in the archive."""
    last = await admin.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
    async with asyncio.timeout(ARCHIVED_S):
        while (await admin.fetchval("SELECT last_archived_wal FROM pg_stat_archiver") or "") < last:
            await asyncio.sleep(0.05)


async def promoted(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(ARCHIVED_S):
            while await connection.fetchval("SELECT pg_is_in_recovery()"):
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


DRILLS: dict[str, Callable[..., Awaitable[Outcome]]] = {"dump": dump, "pitr": point_in_time}
