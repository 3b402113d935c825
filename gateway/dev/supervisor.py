"""`sluice dev`: servers, then the database, then gateways; whatever dies is started again; all end with it.

Owns the order of start and stop, and what `DIR/run` says meanwhile. The kernel tells the children when this
process ends (`parent_death.py`), so not even SIGKILL leaves one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from gateway.dev import greeting
from gateway.dev.binaries import find_redis
from gateway.dev.failure import CannotStart
from gateway.dev.gateway_process import COMMAND, GatewayProcess, answers, fetch, mark
from gateway.dev.listen import listen, url
from gateway.dev.place import postgres_place, socket_folder
from gateway.dev.postgres_server import DATABASE, SOCKET_NAME, PostgresServer, create_database
from gateway.dev.prepare import Wanted, bundled_spec, prepare
from gateway.dev.process import LEFTOVER_GRACE_S, Account, end_all
from gateway.dev.redis_server import SOCKET_NAME as REDIS_SOCKET
from gateway.dev.redis_server import RedisServer
from gateway.dev.run_folder import RunFolder, held
from gateway.dev.service_process import Say, Service, ServiceProcess

REDIS_START_S = 120.0
"""A large append-only file takes long to load."""
POSTGRES_START_S = 300.0
"""So does a crash recovery."""
GATEWAY_START_S = 60.0
GATEWAY_FAILURES_MAX = 4
"""At the first start. Later a gateway that fails is tried without end: others may still serve."""
PROBES_A_WORKER = 8
"""With so many connections, one gateway of several goes without a request once in e^8 = 3000 starts."""
OVERRULED = ("SLUICE_REDIS_URL_FILE", "SLUICE_POSTGRES_URL_FILE", "SLUICE_LISTEN_FD", "SLUICE_WORKERS")
"""Would contradict what the gateways are told."""
CREATED = 201
METRICS_TOKEN = ("SLUICE_METRICS_TOKEN", "SLUICE_METRICS_TOKEN_FILE")
TICK_S = 0.02
RETRY_S = 1.0

T = TypeVar("T")
Prepare = Callable[[Wanted, Say], Coroutine[Any, Any, str]]
"""Makes the database fit to serve, and returns an admin key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `sluice dev`. A URL of None: embedded; `data` is absolute; `spec` is the document."""

    data: Path
    host: str
    port: int
    spec: bytes | None
    redis_url: str | None
    postgres_url: str | None
    workers: int
    allow_private_targets: bool
    partitions: int


def run(settings: Settings, say: Say, argv: tuple[str, ...] = COMMAND, preparing: Prepare = prepare) -> None:
    """Start it all, print where it serves, keep it running until SIGTERM, SIGHUP or Ctrl-C, and stop it all.

    `argv` starts a gateway. Raises CannotStart when it can't be started; then too, nothing is left running.
    """
    with held(settings.data) as folder:
        supervisor = Supervisor(settings, folder, say, argv, preparing)
        with supervisor.signals_caught():
            try:
                supervisor.start()
                supervisor.supervise()
            except KeyboardInterrupt:
                say("stopping")
            finally:
                supervisor.stop()


def inherited() -> dict[str, str]:
    """What the gateways have of our environment."""
    return {name: value for name, value in os.environ.items() if name not in OVERRULED}


class Supervisor:
    """The children of one `sluice dev`, in the order in which they are started."""

    def __init__(
        self, settings: Settings, folder: RunFolder, say: Say, argv: tuple[str, ...], preparing: Prepare
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._say = say
        self._argv = argv
        self._preparing = preparing
        self._sockets: list[socket.socket] = []
        self._borrowed: list[Path] = []
        """Folders for sockets outside of the data folder."""
        self._servers: list[ServiceProcess] = []
        self._gateways: list[ServiceProcess] = []
        self._pids: dict[str, list[int]] = {}
        self._asked_to_stop = 0
        self._interruptible = False
        self._stopping = False

    def start(self) -> None:
        """Return once appends are accepted and that is printed.

        Raises KeyboardInterrupt when asked to stop meanwhile, CannotStart when something fails.
        """
        settings = self._settings
        self._sockets = listen(settings.host, settings.port, settings.workers)
        self._folder.clear_pids()
        self._folder.write_pids("dev", [os.getpid()])
        self._end_leftovers()
        shared = {
            "SLUICE_POSTGRES_URL": settings.postgres_url or self._start_postgres(),
            "SLUICE_REDIS_URL": settings.redis_url or self._start_redis(),
            "SLUICE_PARTITIONS": str(settings.partitions),
        }
        if settings.allow_private_targets:
            shared["SLUICE_ALLOW_PRIVATE_TARGETS"] = "1"
        self._folder.write_env(
            shared, {"SLUICE_URL": self._url, "SLUICE_KEY_FILE": str(self._folder.key_file)}
        )
        key = self._prepared(shared["SLUICE_POSTGRES_URL"])
        self._start_gateways(shared, key)
        self._announce(key)

    def supervise(self) -> None:
        """Start again whatever dies, until asked to stop. Raises KeyboardInterrupt then."""
        while True:
            self._tick(starting=False)
            time.sleep(TICK_S)

    def stop(self) -> None:
        """Gateways first, which answer what they have accepted, then Redis, then Postgres. Ctrl-C hurries."""
        self._stopping, asked_before = True, self._asked_to_stop
        for gateway in self._gateways:
            gateway.begin_stop()
        for keeper in (*self._gateways, *reversed(self._servers)):
            keeper.stop(hurried=lambda: self._asked_to_stop > asked_before)
        for sock in self._sockets:
            sock.close()
        for folder in self._borrowed:
            with contextlib.suppress(OSError):  # what is still in there is for the next start to clear
                folder.rmdir()
        self._folder.clear_pids()

    @contextlib.contextmanager
    def signals_caught(self) -> Iterator[None]:
        """SIGTERM, SIGINT and SIGHUP (unless under nohup) ask to stop, as long as this lasts."""
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._caught) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if not self._stopping or number == signal.SIGINT:  # only a person at the terminal is in a hurry
            self._asked_to_stop += 1
        if self._interruptible:
            raise KeyboardInterrupt

    def _end_leftovers(self) -> None:
        """End what a start that was killed has left: gateways first, as in `stop`."""
        data = self._settings.data
        marks = (
            (mark(data), signal.SIGTERM),
            (("--dir", str(data / "redis")), signal.SIGTERM),
            (("-D", str((data / "postgres").resolve() / "data")), signal.SIGQUIT),
        )
        ended = [pid for each, number in marks for pid in end_all(each, number, grace_s=LEFTOVER_GRACE_S)]
        if ended:
            self._say(f"ended what an earlier start had left running: {', '.join(map(str, ended))}")

    def _start_postgres(self) -> str:
        for name in [name for name in os.environ if name.startswith("PG")]:
            del os.environ[name]  # PGPORT and the like speak of other servers, to us and to the gateways
        place = postgres_place(self._settings.data, self._say)
        folder = self._socket_folder(place.home, place.account, SOCKET_NAME)
        log = self._log("postgres")
        server = PostgresServer(place.binaries, place.home, folder, place.account, log)
        self._start_server(server, POSTGRES_START_S)
        self._awaited(lambda: create_database(server.url("postgres"), DATABASE))
        return server.url()

    def _start_redis(self) -> str:
        folder = self._socket_folder(self._folder.path, None, REDIS_SOCKET)
        home = self._settings.data / "redis"
        server = RedisServer(find_redis(), home, folder / REDIS_SOCKET, self._log("redis"))
        self._start_server(server, REDIS_START_S)
        return server.url

    def _socket_folder(self, preferred: Path, account: Account | None, name: str) -> Path:
        folder = socket_folder(preferred, account, name)
        if folder != preferred:
            self._borrowed.append(folder)
        return folder

    def _start_server(self, service: Service, timeout_s: float) -> None:
        keeper = ServiceProcess(service, self._say)
        self._servers.append(keeper)
        deadline = time.monotonic() + timeout_s
        while not keeper.ready:
            if time.monotonic() > deadline:
                raise CannotStart(f"{keeper.name} is not ready after {timeout_s:g} s.{keeper.log_tail()}")
            self._tick(starting=True)
            time.sleep(TICK_S)

    def _prepared(self, postgres_url: str) -> str:
        settings, old_key = self._settings, self._folder.key()
        wanted = Wanted(
            postgres_url, settings.partitions, settings.spec, old_key, settings.allow_private_targets
        )
        key = self._awaited(lambda: self._preparing(wanted, self._say))
        if key != old_key:
            self._folder.write_key(key)
        return key

    def _start_gateways(self, shared: Mapping[str, str], key: str) -> None:
        """Return once every gateway answers that it is ready. Their metrics are open to `key`."""
        settings, environ = self._settings, inherited()
        port = str(self._sockets[0].getsockname()[1])
        own = {"SLUICE_HOST": settings.host, "SLUICE_PORT": port, "SLUICE_DEV": "1"}
        if "SLUICE_CONSOLE" not in environ:
            own["SLUICE_CONSOLE"] = "1"
        if not any(environ.get(name) for name in METRICS_TOKEN):
            own["SLUICE_METRICS_TOKEN"] = key
        environ |= {**shared, **own}
        for number, sock in enumerate(self._sockets, 1):
            gateway = GatewayProcess(self._argv, environ, settings.data, sock.fileno(), number)
            self._gateways.append(ServiceProcess(gateway, self._say))
        deadline = time.monotonic() + GATEWAY_START_S
        while (unready := self._unready()) is not None:
            self._tick(starting=True)
            if max(gateway.failures for gateway in self._gateways) >= GATEWAY_FAILURES_MAX:
                raise CannotStart("the gateway does not start; it says above why.")
            if time.monotonic() > deadline:
                raise CannotStart(f"no gateway is ready after {GATEWAY_START_S:g} s: {unready}")
            time.sleep(TICK_S)

    def _unready(self) -> str | None:
        """What a gateway that isn't ready says; None when all are."""
        if not all(gateway.pid for gateway in self._gateways):
            return "it is not running"
        return answers(self._url, PROBES_A_WORKER * len(self._gateways))

    def _announce(self, key: str) -> None:
        status, body = fetch(f"{self._url}/_/spec", key)
        spec = json.loads(body if status == 200 else self._settings.spec or bundled_spec())
        hidden = None if sys.stdout.isatty() else self._folder.key_file
        command = greeting.curl(self._url, key, hidden, spec)
        with contextlib.suppress(BrokenPipeError):  # the reader of our output has seen enough
            print(f"ready {self._url}", command, *self._console(key), sep="\n", flush=True)

    def _console(self, key: str) -> list[str]:
        """Where the console is, if there is one; on a terminal, the link signs in once."""
        place = f"{self._url}/_/console"
        status, body = fetch(f"{place}/tickets", key, "POST")
        if status != CREATED:
            return []
        if sys.stdout.isatty():
            place += f"/enter?once={json.loads(body)['ticket']}"
        return [f"console {place}"]

    @property
    def _url(self) -> str:
        return url(self._settings.host, self._sockets[0])

    def _log(self, name: str) -> Path:
        folder = self._settings.data / "log"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{name}.log"

    def _awaited(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it to its end. Raises KeyboardInterrupt at once when asked to stop."""
        self._interruptible = True
        try:
            self._stop_if_asked()
            return asyncio.run(work())
        finally:
            self._interruptible = False

    def _tick(self, *, starting: bool) -> None:
        """Everything that is due. While `starting`, what can't be started is the end of it."""
        self._stop_if_asked()
        for keeper in (*self._servers, *self._gateways):
            try:
                keeper.tick()
            except CannotStart as fault:
                if starting:
                    raise
                self._say(str(fault))
                keeper.put_off(RETRY_S)
        self._write_pids()

    def _stop_if_asked(self) -> None:
        if self._asked_to_stop:
            raise KeyboardInterrupt

    def _write_pids(self) -> None:
        pids = {keeper.name: [keeper.pid] if keeper.pid else [] for keeper in self._servers}
        pids["gateway"] = [keeper.pid for keeper in self._gateways if keeper.pid]
        for name, now in pids.items():
            if now != self._pids.get(name, []):
                self._folder.write_pids(name, now)
        self._pids = pids
