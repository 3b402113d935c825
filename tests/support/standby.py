"""A Postgres with a standby that a test fails over to: the address that gateways know leads to one of them.

The binaries are those of the pair; the standby is made of a base backup, as an operator makes it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg

from gateway.dev.postgres_server import ROLE, PostgresServer
from gateway.dev.process import find_titled
from gateway.dev.service_process import ServiceProcess
from tests.support.servers import Server, Servers


@dataclass(slots=True)
class Pair:
    """`primary` runs on; `standby` is made by `open_standby`. Gateways connect to `url`."""

    servers: Servers
    standby: Server
    standby_server: PostgresServer
    address: Path

    def url(self, database: str) -> str:
        return f"postgresql://{ROLE}@/{quote(database)}?host={quote(str(self.address))}"

    @property
    def primary_url(self) -> str:
        return self.servers.database_url("postgres")

    @property
    def standby_url(self) -> str:
        return self.standby_server.url("postgres")

    def point_at(self, folder: Path) -> None:
        """New connections lead there; those that are open stay where they are."""
        following = self.address.with_name("following")
        following.unlink(missing_ok=True)
        following.symlink_to(folder)
        following.rename(self.address)

    async def require_standby(self, names: str) -> None:
        """synchronous_standby_names of the primary; '' for an asynchronous standby."""
        await _execute(self.primary_url, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        await _execute(self.primary_url, "SELECT pg_reload_conf()")

    async def replicates(self) -> bool:
        """Whether the standby has all that the primary has committed."""
        rows = await _fetch(
            self.primary_url,
            "SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()",
        )
        return bool(rows)

    async def cut_off(self) -> None:
        """The standby goes away, and so does what has not reached it."""
        self.standby.stop()

    async def fail_over(self, *, old_one_lives: bool = False) -> None:
        """The standby becomes the primary that the address leads to."""
        if not old_one_lives:
            self.servers.postgres.kill()
        await self.standby.start()
        await _execute(self.standby_url, "SELECT pg_promote(true, 60)")
        self.point_at(self.standby_server.socket_folder)

    def close(self) -> None:
        self.standby.stop()


async def open_pair(servers: Servers) -> Pair:
    """Of a pair of servers that runs."""
    primary = servers.postgres_server
    standby = beside(primary, "standby")
    base_backup(primary, standby.data, follows=True)
    server = Server(ServiceProcess(standby, print), lambda: find_titled("postgres:", standby.data))
    await server.start()
    pair = Pair(servers, server, standby, standby.home.with_name("address"))
    pair.point_at(primary.socket_folder)
    return pair


def beside(primary: PostgresServer, name: str) -> PostgresServer:
    """Another server of the same account, without data."""
    home = primary.home.with_name(name)
    home.mkdir(mode=0o700)
    if primary.account is not None:
        os.chown(home, primary.account.uid, primary.account.gid)
    return replace(primary, home=home, socket_folder=home, log=primary.log.with_name(f"{name}.log"))


def base_backup(primary: PostgresServer, data: Path, *, follows: bool) -> None:
    """A copy of the running primary, in a folder that does not exist. `follows`: it begins as its standby."""
    command = [
        primary.binaries.postgres.with_name("pg_basebackup"), "--pgdata", data,
        *(["--write-recovery-conf"] if follows else []),
        "--wal-method=stream", "--checkpoint=fast", "--no-sync",
        "--host", primary.socket_folder, "-U", ROLE,
    ]  # fmt: skip
    account = primary.account
    done = subprocess.run(
        command,
        cwd=data.parent,
        env={"LC_ALL": "C", "PATH": os.defpath},
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _fetch(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()
