"""A Postgres that Patroni fails over, by etcd: the servers that operators have.

Owns: which programs run, and how they are set up. Must not know of gateways, which know the addresses of all
nodes, and connect to the one that takes writes; nothing stands between.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import asyncpg

from gateway.dev.place import postgres_place
from gateway.dev.postgres_server import DATABASE, ROLE, create_database
from gateway.dev.process import Account, Command, find_titled
from gateway.dev.service_process import ServiceProcess
from tests.faults.history import now
from tests.support.ports import free_port
from tests.support.servers import Server

PATRONI = "patroni"
"""The kind of Postgres, beside those of a pair."""
NODES = 3
BINARIES = Path("/usr/lib/postgresql")
"""Debian's, by major version."""
TTL_S = 20
"""Of the leader's key: the least that Patroni accepts."""
WHOLE_S = 120.0
LED_S = 90.0
ASKED_S = 3.0
POLL_S = 0.1


def missing() -> str:
    """What has to be installed before; "" where nothing is."""
    found = {
        "patroni": shutil.which("patroni"),
        "etcd-server": shutil.which("etcd"),
        "postgresql": next(BINARIES.glob("*/bin/postgres"), None),
    }
    return ", ".join(name for name, path in found.items() if path is None)


@dataclass(frozen=True, slots=True)
class Program:
    """A server of Debian's: `argv` in `home`, as `account`."""

    name: str
    argv: tuple[str | Path, ...]
    home: Path
    account: Account | None
    log: Path
    stop_signals = (signal.SIGTERM, 30.0, signal.SIGKILL)

    def command(self) -> Command:
        """Ends in order with this process: Patroni then stops its Postgres."""
        env = {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.home)}
        return Command(self.argv, signal.SIGTERM, self.home, env, self.account, self.log)

    def ready(self, pid: int) -> bool:
        return True

    def failed(self) -> None:
        return


class Node:
    """A Patroni with its Postgres."""

    def __init__(self, number: int, folder: Path, account: Account | None, etcd_port: int) -> None:
        self.name = f"node{number}"
        self.port, self.rest_port = free_port(), free_port()
        self._home = _own_folder(folder / self.name, account)
        self.data = self._home / "data"
        settings = self._home / "patroni.json"
        settings.write_text(json.dumps(self._settings(etcd_port)))
        program = Program(
            self.name, ("/usr/bin/patroni", settings), self._home, account, folder / f"{self.name}.log"
        )
        self.patroni = Server(ServiceProcess(program, lambda _: None))

    def _settings(self, etcd_port: int) -> dict[str, Any]:
        local = {"listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}"}
        rest = {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest_port}"}
        newest = max(BINARIES.glob("*/bin"), key=lambda path: int(path.parent.name))
        return {
            "scope": "sluice",
            "name": self.name,
            "restapi": rest,
            # By v2: by v3, Patroni 3.0 now and then can't name a synchronous standby any more.
            "etcd": {"host": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": 2,
                    "retry_timeout": 8,
                    "maximum_lag_on_failover": 1 << 20,
                    "synchronous_mode": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"max_connections": 400, "wal_log_hints": "on", "hot_standby": "on"},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
            },
            "postgresql": {
                **local,
                "data_dir": str(self.data),
                "bin_dir": str(newest),
                "pgpass": str(self._home / "pgpass"),
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "authentication": {
                    "superuser": {"username": ROLE, "password": "local"},
                    "replication": {"username": "replicator", "password": "local"},
                },
                "parameters": {"unix_socket_directories": str(self._home), "shared_buffers": "64MB"},
            },
        }

    def postgres(self) -> list[int]:
        """The pids of its server, the first one first."""
        pids = []
        with suppress(OSError, ValueError):
            pids.append(int((self.data / "postmaster.pid").read_text().split()[0]))
        return pids + [pid for pid in find_titled("postgres:", self.data) if pid not in pids]

    def signal_postgres(self, number: signal.Signals) -> None:
        for pid in self.postgres():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """As the end of its machine."""
        self.patroni.kill()
        self.signal_postgres(signal.SIGKILL)

    def pause(self) -> None:
        self.patroni.keeper.signal(signal.SIGSTOP)
        self.signal_postgres(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal_postgres(signal.SIGCONT)
        self.patroni.keeper.signal(signal.SIGCONT)


class PatroniNodes:
    """All of them, and their etcd."""

    def __init__(self, folder: Path) -> None:
        account = postgres_place(folder, print).account
        self._etcd_port, peer = free_port(), free_port()
        client, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peer}"
        home = _own_folder(folder / "etcd", account)
        program = Program(
            "etcd",
            (
                "/usr/bin/etcd", "--data-dir", home / "data", "--unsafe-no-fsync", "--enable-v2",
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                "--initial-cluster", f"default={peers}",
            ),
            home, account, folder / "etcd.log",
        )  # fmt: skip
        self.etcd = Server(ServiceProcess(program, lambda _: None))
        self.nodes = [Node(number, folder, account, self._etcd_port) for number in range(NODES)]

    @classmethod
    async def open(cls, folder: Path) -> Self:
        """Returns once commits wait for a standby, and each node has the database."""
        made = cls(folder)
        try:
            await made.etcd.start()
            for node in made.nodes:
                await node.patroni.start()
            await made.until_whole()
            await create_database(made._url("postgres"), DATABASE)
            await made._until(made._has_database, WHOLE_S, "a standby has no database")
        except BaseException:
            made.close()
            raise
        return made

    @property
    def url(self) -> str:
        """As operators give it to gateways."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{ROLE}@{hosts}/{database}?target_session_attrs=read-write&sslmode=disable"

    async def members(self) -> list[dict[str, Any]]:
        """As a node that answers tells; [] where none does."""
        for node in self.nodes:
            told = await _ask(node.rest_port, "/cluster")
            if told is not None:
                return list(told["members"])
        return []

    async def leader(self) -> Node | None:
        """Which one takes writes."""
        for node in self.nodes:
            told = await _ask(node.rest_port, "/primary")
            if told is not None and told.get("role") in ("master", "primary"):
                return node
        return None

    async def standbys(self, role: str) -> list[Node]:
        names = {member["name"] for member in await self.members() if member["role"] == role}
        return [node for node in self.nodes if node.name in names]

    async def until_led(self, but: Node | None = None) -> Node:
        """Returns which one leads, another than `but`."""
        led = await self._until(lambda: self._led_by_another(but), LED_S, "no node leads")
        assert isinstance(led, Node)
        return led

    async def _led_by_another(self, but: Node | None) -> Node | None:
        leader = await self.leader()
        return leader if leader is not but else None

    async def until_whole(self) -> None:
        """One leads, all others follow it, and commits wait for one of them."""
        await self._until(self._is_whole, WHOLE_S, "the nodes do not follow a leader")

    async def _is_whole(self) -> bool:
        members = await self.members()
        roles = sorted(member["role"] for member in members)
        lines = {member.get("timeline") for member in members}
        runs = all(member["state"] in ("running", "streaming") for member in members)
        return roles == ["leader", *["replica"] * (NODES - 2), "sync_standby"] and len(lines) == 1 and runs

    async def _has_database(self) -> bool:
        """Each node has it. A client that tries one without it ends there, before it has tried the next."""
        for node in self.nodes:
            url = f"postgresql://{ROLE}@127.0.0.1:{node.port}/{DATABASE}?sslmode=disable"
            try:
                await (await asyncpg.connect(url)).close()
            except (asyncpg.PostgresError, OSError):
                return False
        return True

    async def _until(self, found: Callable[[], Any], patience_s: float, else_: str) -> object:
        deadline = now() + patience_s
        while not (answer := await found()):
            if now() > deadline:
                tails = "".join(node.patroni.keeper.log_tail() for node in self.nodes)
                raise AssertionError(f"{else_}: {await self.members()}{tails}")
            await asyncio.sleep(POLL_S)
        return answer

    async def switch_over(self, leader: Node, candidate: Node) -> None:
        """In order, as `patronictl switchover` does."""
        body = {"leader": leader.name, "candidate": candidate.name}
        told = await asyncio.to_thread(
            _fetch, leader.rest_port, "/switchover", json.dumps(body).encode(), 60.0
        )
        assert told is not None, f"{leader.name} did not switch over to {candidate.name}"

    def close(self) -> None:
        for node in self.nodes:
            node.resume()
            node.kill()
        self.etcd.resume()
        self.etcd.kill()


async def _ask(port: int, path: str) -> dict[str, Any] | None:
    told = await asyncio.to_thread(_fetch, port, path, None, ASKED_S)
    return None if told is None else dict(json.loads(told))


def _fetch(port: int, path: str, body: bytes | None, timeout_s: float) -> bytes | None:
    """None where it is not 200."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError):
        return None


def _own_folder(path: Path, account: Account | None) -> Path:
    path.mkdir(mode=0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path
