"""Real servers for the tests: what `sluice dev` starts, under the control of a test."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.dev.binaries import find_redis
from gateway.dev.place import postgres_place, socket_folder
from gateway.dev.postgres_server import DATABASE, SOCKET_NAME, PostgresServer, create_database
from gateway.dev.process import POLL_S, find_titled
from gateway.dev.redis_server import SOCKET_NAME as REDIS_SOCKET
from gateway.dev.redis_server import RedisServer
from gateway.dev.service_process import ServiceProcess

START_S = 30.0
DISK = Path("/tmp")
MEMORY = Path("/dev/shm")
INITIALIZED = "TESTS_INITIALIZED_POSTGRES"
"""Set for the tests of a run and all that they start."""
MEMORY_BYTES_LEAST = 4 << 30
"""Ten times what all servers of a run of the suite hold at once."""


@dataclass(slots=True)
class Server:
    """One server. It is down after `kill` and `stop` until `start`; only tests restart it."""

    keeper: ServiceProcess
    children: Callable[[], list[int]] = list
    """The pids of processes that work for it."""

    @property
    def pid(self) -> int | None:
        return self.keeper.pid

    async def start(self) -> None:
        """Return once it answers. Nothing happens when it already does."""
        deadline = time.monotonic() + START_S
        self.keeper.tick()
        while not self.keeper.ready:
            assert time.monotonic() < deadline, f"{self.keeper.name} does not start{self.keeper.log_tail()}"
            await asyncio.sleep(POLL_S)
            self.keeper.tick()

    async def revive(self) -> None:
        """Start it again where it has ended by itself, as a supervisor would."""
        if self.pid is not None:
            self.keeper.tick()
            if self.pid is None:
                await self.start()

    def kill(self) -> None:
        """SIGKILL, to what works for it too, and all gone on return: a backend of Postgres that outlives its
        parent commits what it has read before it notices."""
        self.kill_it_only()
        deadline = time.monotonic() + START_S
        while orphans := self.children():
            assert time.monotonic() < deadline, f"{self.keeper.name} left {orphans}, which do not end"
            _signal(orphans, signal.SIGKILL)
            time.sleep(POLL_S)

    def kill_it_only(self) -> None:
        """SIGKILL, and gone on return; what works for it ends when it notices."""
        self.keeper.kill()

    def stop(self) -> None:
        """In order, and gone on return."""
        self.keeper.stop()

    async def restart(self) -> None:
        """Kill it and start it on the same data."""
        self.kill()
        await self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        self.keeper.signal(number)
        _signal(self.children(), number)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # one that has just ended
            os.kill(pid, number)


@dataclass(slots=True)
class Servers:
    """A Redis and a Postgres, each with a URL that stays the same over restarts."""

    folder: Path
    redis: Server
    redis_url: str
    postgres: Server
    postgres_url: str
    """Of the database `sluice`, which `start` makes; empty, not migrated."""
    postgres_server: PostgresServer

    def database_url(self, name: str) -> str:
        return self.postgres_server.url(name)

    async def start(self) -> None:
        await self.redis.start()
        take_initialized(self.postgres_server)
        await self.postgres.start()
        await create_database(self.database_url("postgres"), DATABASE)

    def wipe_redis(self) -> None:
        """Down, and its data gone: what a machine that was lost leaves of a Redis."""
        self.redis.kill()
        shutil.rmtree(self.folder / "redis")

    def close(self) -> None:
        """End both at once: nothing in the folder is needed any more."""
        for server in (self.redis, self.postgres):
            server.resume()
            server.keeper.stop(hurried=lambda: True)


def take_initialized(server: PostgresServer) -> None:
    """Data for a server that has none: a copy of what initdb has made for the first, in the folder that
    INITIALIZED names. It is left to initdb where that is not set, and where the data is to be durable. Copies
    have the same system identifier."""
    named = os.environ.get(INITIALIZED)
    if named is None or server.durable or server.data.exists():
        return
    kept = Path(named)
    if kept.exists():
        subprocess.run(["cp", "-a", kept, server.data], check=True)
        return
    server.command()
    unfinished = kept.with_name(f"{kept.name}-{os.getpid()}")
    subprocess.run(["cp", "-a", server.data, unfinished], check=True)
    with suppress(OSError):  # another process was first
        unfinished.rename(kept)


def servers_in(folder: Path, *, durable: bool = False, redis_binary: Path | None = None) -> Servers:
    """A pair that keeps its data in `folder`. Neither runs yet. `durable` has Postgres call fsync;
    `redis_binary` is in place of the first that is found."""
    home = folder / "run"
    home.mkdir(mode=0o700, exist_ok=True)
    socket = socket_folder(home, None, REDIS_SOCKET) / REDIS_SOCKET
    redis = RedisServer(redis_binary or find_redis(), folder / "redis", socket, folder / "redis.log")
    place = postgres_place(folder, print)
    sockets = socket_folder(place.home, place.account, SOCKET_NAME)
    log = folder / "postgres.log"
    postgres = PostgresServer(place.binaries, place.home, sockets, place.account, log, durable=durable)
    return Servers(
        folder,
        Server(ServiceProcess(redis, print)),
        redis.url,
        Server(ServiceProcess(postgres, print), lambda: find_titled("postgres:", postgres.data)),
        postgres.url(),
        postgres,
    )


@contextmanager
def open_folder(parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder with a short path which other accounts can pass through, as Postgres' has to; in
    `parent`, or where `quick_parent` says."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-test-", dir=parent or quick_parent()))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        link = folder / "postgres"
        if link.is_symlink():
            shutil.rmtree(link.readlink().parent, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def quick_parent() -> Path:
    """In memory where there is enough: no server then waits for a disk that others keep busy, and a database
    is made in a tenth of the time."""
    return MEMORY if _memory_will_do() else DISK


def _memory_will_do() -> bool:
    """Where programs can be run, since Postgres' may be copied to where its account can reach them."""
    try:
        about = os.statvfs(MEMORY)
        free = re.search(r"^MemAvailable: +([0-9]+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:  # not on Linux
        return False
    if free is None or about.f_flag & os.ST_NOEXEC:
        return False
    return min(about.f_bavail * about.f_frsize, int(free[1]) << 10) >= MEMORY_BYTES_LEAST
