"""The test stand: servers of its own, and a fresh gateway on a fresh database for each scenario.

So every scenario begins with empty tables and an empty Redis, whatever ran before it. Unlike in the tests,
Postgres is durable: what a commit costs is what is measured.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import asyncpg

from gateway.catalog.bootstrap import bootstrap
from gateway.catalog.migrate import migrate
from gateway.config import Config
from gateway.dev.gateway_process import COMMAND, GatewayProcess, answers
from gateway.dev.listen import listen
from gateway.dev.prepare import bundled_spec
from gateway.dev.process import Command
from gateway.dev.service_process import ServiceProcess
from tests.bench.cpu import CpuMeter, family
from tests.bench.machine import CORES, confine, gateway_cores
from tests.support import warm
from tests.support.servers import DISK, Servers, open_folder, servers_in

TENANT = "bench"
TEMPLATE = "bench_template"
HOST = "127.0.0.1"
METRICS_TOKEN = "bench"
RELAY = (*COMMAND[:-1], "relay")
START_S = 30.0
STOP_S = 15.0
LOG_MB = 512
"""As much as half a minute of the rows that write most. BENCH_LOG_MB: another size."""
PROBES_A_WORKER = 8
"""The kernel picks the gateway for each connection: so many miss one of several once in 3000 starts."""
POLL_S = 0.02
BARE = (sys.executable, "-m", "tests.bench.bare")
SPRAY = (sys.executable, "-m", "tests.bench.spray")


@dataclass(frozen=True, slots=True)
class Served:
    """An HTTP server that is ready, and a meter of the CPU time of all that works for it; of a gateway also
    its database."""

    host: str
    port: int
    cpu: CpuMeter
    pids: tuple[int, ...]
    postgres_url: str = ""


class Stand:
    """`key` is an admin key of the one tenant, whose spec is the bundled example."""

    def __init__(self, servers: Servers, workers: int, key: str) -> None:
        self.servers = servers
        self.key = key
        self._workers = workers
        self._gateway_cores = gateway_cores(workers)
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()

    @asynccontextmanager
    async def gateway(
        self,
        *,
        template: str = TEMPLATE,
        workers: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        command: tuple[str, ...] = COMMAND,
    ) -> AsyncIterator[Served]:
        """The gateway, on nothing but a tenant, its key and its spec, and what `template` has beside them; as
        many processes as was asked for, or `workers`; with `settings` beside the usual ones. `command`: in
        place of the usual one."""
        async with self.database(template) as postgres_url:
            told = {**self._settings(postgres_url), **settings}
            with self._serving(command, told, workers or self._workers) as served:
                yield replace(served, postgres_url=postgres_url)

    @asynccontextmanager
    async def restarted(self, postgres_url: str) -> AsyncIterator[Served]:
        """A gateway on what is there already, and a Redis that starts again."""
        self.servers.wipe_redis()
        await self.servers.redis.start()
        with self._serving(COMMAND, self._settings(postgres_url), self._workers) as served:
            yield replace(served, postgres_url=postgres_url)

    @asynccontextmanager
    async def apart(self, count: int, template: str = TEMPLATE) -> AsyncIterator[list[Served]]:
        """So many gateways on one database, each with a port of its own, its metrics open to METRICS_TOKEN.
        They share all cores with everybody else, be they one or several."""
        async with self.database(template) as postgres_url:
            settings = {**self._settings(postgres_url), "SLUICE_METRICS_TOKEN": METRICS_TOKEN}
            with ExitStack() as ends:
                each = [
                    ends.enter_context(self._serving(COMMAND, settings, 1, frozenset())) for _ in range(count)
                ]
                yield [replace(served, postgres_url=postgres_url) for served in each]

    def _settings(self, postgres_url: str) -> dict[str, str]:
        return {
            **_inherited(),
            "SLUICE_REDIS_URL": self.servers.redis_url,
            "SLUICE_POSTGRES_URL": postgres_url,
            "SLUICE_HOST": HOST,
            "SLUICE_LOG_LEVEL": "error",
        }

    @asynccontextmanager
    async def other(self, argv: tuple[str, ...], settings: Mapping[str, str]) -> AsyncIterator[Served]:
        """Another server of one process, with a database of its own, which PEER_POSTGRES_URL names. `argv`
        begins with a Python; it listens on the socket SLUICE_LISTEN_FD and answers a GET once it is ready. It
        has all cores, and so has everybody else meanwhile."""
        async with self.database() as postgres_url:
            told = {**_inherited(), **settings, "PEER_POSTGRES_URL": postgres_url}
            with self._serving(argv, told, 1, frozenset()) as served:
                yield replace(served, postgres_url=postgres_url)

    @contextmanager
    def relay(self, served: Served) -> Iterator[Served]:
        """`sluice relay` beside a gateway, on the cores that all but gateways have: the meter of what is
        yielded has it too."""
        settings = self._settings(served.postgres_url)
        process = warm.start(Command(RELAY, signal.SIGKILL, Path.cwd(), settings))
        try:
            yield replace(served, cpu=served.cpu.beside("relay", [process.pid]))
        finally:
            process.signal(signal.SIGTERM)
            if not process.wait(STOP_S):
                process.signal(signal.SIGKILL)
                process.wait(STOP_S)

    @contextmanager
    def bare(
        self, argv: tuple[str, ...] = BARE, settings: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[Served]:
        """An HTTP server that does nothing (bare.py), or next to nothing."""
        with self._serving(argv, {**os.environ, **settings}, self._workers) as served:
            yield served

    async def template(self, name: str, prepare: Callable[[str], Awaitable[None]]) -> str:
        """A database to copy, made at the first call, with what `prepare` puts into it."""
        if name not in self._templates:
            await self._execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
            await prepare(self.servers.database_url(name))
            self._templates.add(name)
        return name

    @asynccontextmanager
    async def database(self, template: str = TEMPLATE) -> AsyncIterator[str]:
        """The URL of a database that nothing was appended to, but for what `template` has. Redis starts again
        too: what others have left of its memory, and of its file, would be part of what is measured."""
        name = f"bench_{next(self._numbers)}"
        self.servers.wipe_redis()
        await self.servers.redis.start()
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            yield self.servers.database_url(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def cpu(self, gateways: list[int]) -> CpuMeter:
        pids = {"redis": self.servers.redis.pid, "postgres": self.servers.postgres.pid}
        return CpuMeter({"gateway": gateways} | {name: [pid] for name, pid in pids.items() if pid})

    @contextmanager
    def _serving(
        self,
        argv: tuple[str, ...],
        settings: dict[str, str],
        workers: int,
        cores: frozenset[int] | None = None,
    ) -> Iterator[Served]:
        """`cores` of its own; by default as many as there are for so many."""
        sockets = listen(HOST, 0, workers)
        port = sockets[0].getsockname()[1]
        keepers = [
            ServiceProcess(
                GatewayProcess(argv, settings, self.servers.folder, sock.fileno(), number), _say, warm.start
            )
            for number, sock in enumerate(sockets, 1)
        ]
        try:
            _await_ready(keepers, f"http://{HOST}:{port}")
            pids = [keeper.pid for keeper in keepers if keeper.pid]
            self._place(gateway_cores(workers) if cores is None else cores, pids)
            yield Served(HOST, port, self.cpu(pids), tuple(pids))
        finally:
            self._place(self._gateway_cores)
            for keeper in keepers:
                keeper.begin_stop()
            for keeper in keepers:
                keeper.stop()
            for sock in sockets:
                sock.close()

    def _place(self, cores: frozenset[int], pids: Sequence[int] = ()) -> None:
        """These processes on these cores, and everybody else on the others; all on all if there are none."""
        if not hasattr(os, "sched_setaffinity"):
            return
        apart = family(pids)
        for pid in family([os.getpid()]):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                confine((cores if pid in apart else CORES - cores) or CORES, pid)

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.servers.database_url("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@asynccontextmanager
async def open_stand(workers: int) -> AsyncIterator[Stand]:
    """Servers in a temporary folder, in /tmp or BENCH_FOLDER, gone with it at the end. BENCH_REDIS names
    another Redis-compatible server than the first that is found. Gateways get cores of their own, if there
    are enough; then all else, this process too, keeps off them."""
    apart = gateway_cores(workers)
    if apart:
        confine(CORES - apart)
    with open_folder(Path(os.environ.get("BENCH_FOLDER", DISK))) as folder:
        named = os.environ.get("BENCH_REDIS")
        servers = servers_in(folder, durable=True, redis_binary=Path(named) if named else None)
        try:
            await servers.start()
            connection = await asyncpg.connect(servers.database_url("postgres"))
            await connection.execute(f"CREATE DATABASE {TEMPLATE}")
            await _fill_log(connection)
            await connection.close()
            url = servers.database_url(TEMPLATE)
            await migrate(url, int(os.environ.get("SLUICE_PARTITIONS", Config.partitions)))
            prepared = await bootstrap(
                url, tenant=TENANT, spec_document=bundled_spec(), replace_spec=False, have_key=None
            )
            yield Stand(servers, workers, prepared.key)
        finally:
            servers.close()
            if apart:
                confine(CORES)


async def _fill_log(connection: asyncpg.Connection) -> None:
    """So that Postgres has files of its log to use again, as it has after its first minutes. A new one makes,
    zeroes and syncs 16 MB each time: the first scenario would wait for that, and others not."""
    megabytes = int(os.environ.get("BENCH_LOG_MB", LOG_MB))
    message = "SELECT count(pg_logical_emit_message(false, 'bench', repeat('x', 1 << 20)))"
    await connection.execute(f"{message} FROM generate_series(1, {megabytes})")
    await connection.execute("CHECKPOINT")


def _inherited() -> dict[str, str]:
    """Our environment, SLUICE_* settings to be tried out included, without what contradicts our servers."""
    overruled = ("SLUICE_REDIS_URL_FILE", "SLUICE_POSTGRES_URL_FILE")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in overruled and not name.startswith("PG")
    }


def _await_ready(keepers: list[ServiceProcess], url: str) -> None:
    """Raises RuntimeError when one ends, or they are not all ready in time."""
    deadline = time.monotonic() + START_S
    for keeper in keepers:
        keeper.tick()
    while (unready := answers(url, PROBES_A_WORKER * len(keepers))) is not None:
        for keeper in keepers:
            keeper.tick()
            if keeper.failures:
                raise RuntimeError(f"{keeper.name} does not start; it says above why")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no gateway is ready after {START_S:g} s: {unready}")
        time.sleep(POLL_S)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
