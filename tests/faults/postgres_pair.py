"""A Postgres with a standby, which take each other's place as often as a run wants.

Owns: which of the two is the primary, and whether its commits wait for the other one.
Must not know of gateways.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import asyncpg

from gateway.dev.postgres_server import PostgresServer
from gateway.dev.process import find_titled
from gateway.dev.service_process import ServiceProcess
from tests.support.servers import Server, Servers
from tests.support.standby import base_backup, beside

SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
IN_STEP_S = 20.0
PROMOTED_S = 60.0
POLL_S = 0.02


class PostgresPair:
    """`synchronous`: as long as the standby runs, or is expected back, commits wait for it."""

    def __init__(self, servers: Servers, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        first, second = servers.postgres_server, beside(servers.postgres_server, "standby")
        self._places = [first, second]
        self._servers = [
            servers.postgres,
            Server(ServiceProcess(second, print), lambda: find_titled("postgres:", second.data)),
        ]
        self._primary = 0

    @classmethod
    async def open(cls, servers: Servers, *, synchronous: bool) -> Self:
        """The first one runs already."""
        pair = cls(servers, synchronous=synchronous)
        await pair.make_standby()
        return pair

    @property
    def primary(self) -> Server:
        return self._servers[self._primary]

    @property
    def place(self) -> PostgresServer:
        """Of the primary."""
        return self._places[self._primary]

    @property
    def url(self) -> str:
        return self.place.url()

    @property
    def standby(self) -> Server:
        return self._servers[1 - self._primary]

    async def fetch(self, statement: str) -> list[Any]:
        """Of the primary. Raises OSError or PostgresError."""
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    async def make_standby(self) -> None:
        """The other server becomes a copy of the primary again, and follows it. Returns once it is in step
        and, in a synchronous pair, commits wait for it."""
        place = self._places[1 - self._primary]
        self.standby.resume()
        self.standby.kill()
        await asyncio.to_thread(shutil.rmtree, place.data, ignore_errors=True)
        await self._expect("")
        await asyncio.to_thread(base_backup, self.place, place.data, follows=True)
        await self.standby.start()
        await self.in_step()
        await self._expect("*" if self.synchronous else "")

    async def in_step(self) -> None:
        """Returns once the standby has all that is committed now."""
        (row,) = await self.fetch("SELECT pg_current_wal_flush_lsn()::text AS lsn")
        streaming = "SELECT FROM pg_stat_replication WHERE state = 'streaming'"
        await self._until(
            f"{streaming} AND replay_lsn >= '{row['lsn']}'", IN_STEP_S, "the standby does not follow"
        )

    async def _until(self, statement: str, within_s: float, wrong: str) -> None:
        """Returns once the primary answers it with a row."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not await self.fetch(statement):
            assert asyncio.get_running_loop().time() < deadline, wrong
            await asyncio.sleep(POLL_S)

    async def _expect(self, names: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await connection.execute("SELECT pg_reload_conf()")
        finally:
            await connection.close()

    async def promote(self, *, old_one_lives: bool) -> None:
        """The standby becomes the primary, with what it has; commits no longer wait. It may be down. The old
        one is killed, or continues until `make_standby`."""
        if not old_one_lives:
            self.primary.resume()
            self.primary.kill()
        place = self._places[1 - self._primary]
        if self.standby.pid is None:  # else it would first follow what it has missed
            with (place.data / "postgresql.auto.conf").open("a") as conf:
                conf.write("primary_conninfo = ''\n")
            await self.standby.start()
        self._primary = 1 - self._primary
        # Not waited for in one statement: recovery that it kept from its end would cancel it.
        await self.fetch("SELECT pg_promote(false)")
        await self._until("SELECT WHERE NOT pg_is_in_recovery()", PROMOTED_S, "the standby stays one")
        await self._expect("")

    def back_up(self) -> Path:
        """A copy of the primary as it is."""
        copy = self.place.home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        base_backup(self.place, copy, follows=False)
        return copy

    async def restore(self, copy: Path) -> None:
        """The primary continues from that copy, by itself."""
        self.primary.kill()
        self.standby.kill()
        shutil.rmtree(self.place.data)
        await asyncio.to_thread(subprocess.run, ["mv", copy, self.place.data], check=True)
        with (self.place.data / "postgresql.auto.conf").open("a") as conf:
            conf.write("synchronous_standby_names = ''\n")
        await self.primary.start()

    def close(self) -> None:
        for server in self._servers:
            server.resume()
            server.kill()
