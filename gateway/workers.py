"""Several gateway processes behind one port: `sluice serve --workers N`.

Owns: the port, what each worker is given, and the start and end of all of them. Must not know what a gateway
does. docs/decisions/0049 says why each worker has a socket of its own.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gateway.config import Config, ConfigError
from gateway.dev.failure import CannotStart
from gateway.dev.gateway_process import COMMAND, GOODBYE_S
from gateway.dev.process import Command
from gateway.dev.service_process import ServiceProcess
from gateway.setting_rows import PORT_MAX
from gateway.telemetry import logs

logger = logging.getLogger("sluice")

TICK_S = 0.02
RETRY_S = 1.0
"""After a worker could not be started at all, for want of memory or of a descriptor."""


def serve(config: Config, environ: Mapping[str, str], argv: tuple[str, ...] = COMMAND) -> None:
    """Keeps `config.workers` gateways running until SIGTERM or SIGINT, then exits. `environ` is theirs, and
    `argv` starts one.

    Exits 1 when one of them can't start the first time, and when one had to be killed at the end. Raises
    ConfigError.
    """
    if faults := tuple(_faults(config)):
        raise ConfigError(faults)
    logs.to_stderr(config.log_level, human=False)
    asked = _asked_to_stop()
    try:
        with _Port(config) as port:
            in_order = _Workers(config, environ, argv, port).run(asked)
    except CannotStart as fault:
        sys.exit(f"sluice serve: {fault}" if str(fault) else 1)
    sys.exit(0 if in_order else 1)


def _faults(config: Config) -> Iterator[str]:
    """What one process may have and several can't share."""
    if config.listen_fd is not None:
        yield "SLUICE_LISTEN_FD is one socket, and each of SLUICE_WORKERS opens its own: unset one of them."
    if config.ops_port is None:
        return
    last = config.ops_port + config.workers - 1
    if last > PORT_MAX:
        yield f"SLUICE_OPS_PORT is the first of {config.workers} ports, one a worker, up to {last}: lower it."
    elif config.ops_port <= config.port <= last:
        yield f"SLUICE_PORT is among the workers' ops ports, {config.ops_port} to {last}: change one of them."


def _asked_to_stop() -> list[int]:
    """The signals that ask for it, as they come, until the process ends. A second SIGINT is a person in a
    hurry; a third must not break off what the second began."""
    asked: list[int] = []

    def caught(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, caught)
    return asked


class _Port:
    """The address, held by a socket that is bound and never listens: no connection comes to it, and while all
    workers are down no other program gets the port."""

    def __init__(self, config: Config) -> None:
        self._family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        address = (config.host, config.port)
        try:
            self._bound(address, shared=False).close()  # the port may be another gateway's, which shares too
            self._held = self._bound(address, shared=True)
        except OSError as fault:
            where = f"{config.host}:{config.port}"
            raise CannotStart(f"can't listen on {where}: {fault.strerror}") from fault

    def __enter__(self) -> _Port:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def another(self) -> socket.socket:
        """One more socket on it, which does not listen yet."""
        return self._bound(self._held.getsockname()[:2], shared=True)

    def _bound(self, address: tuple[str, int], *, shared: bool) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        return sock


class _Worker:
    """One gateway, as a `Service`. Its socket is ours only until it listens there: the kernel gives a worker
    that died no further connections."""

    def __init__(
        self, number: int, config: Config, environ: Mapping[str, str], argv: tuple[str, ...], port: _Port
    ) -> None:
        self.name = f"worker {number}"
        self.stop_signals = (signal.SIGTERM, 2 * config.shutdown_grace_s + GOODBYE_S, signal.SIGKILL)
        self.started_once = False
        self._environ = {**environ, "SLUICE_WORKERS": "1"}
        if config.ops_port is not None:
            self._environ["SLUICE_OPS_PORT"] = str(config.ops_port + number - 1)
        self._argv = argv
        self._port = port
        self._socket: socket.socket | None = None

    def command(self) -> Command:
        """When we die, it finishes what it has accepted and ends."""
        self.let_go()
        try:
            self._socket = self._port.another()
        except OSError as fault:
            raise CannotStart(f"{self.name} gets no socket: {fault.strerror}") from fault
        descriptor = self._socket.fileno()
        environ = {**self._environ, "SLUICE_LISTEN_FD": str(descriptor)}
        return Command(self._argv, signal.SIGTERM, Path.cwd(), environ, pass_fds=(descriptor,))

    def ready(self, pid: int) -> bool:
        """It listens when all that it needs is started."""
        if self._socket is None or not self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        self.let_go()
        self.started_once = True
        return True

    def failed(self) -> None:
        """Raises CannotStart at the first start, without words: the worker has said why."""
        self.let_go()
        if not self.started_once:
            raise CannotStart

    def let_go(self) -> None:
        """Close our copy of its socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@dataclass(frozen=True, slots=True)
class _Kept:
    worker: _Worker
    process: ServiceProcess


class _Workers:
    """All of them. One that ends is started again: at once, or after ever longer pauses while it fails."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], argv: tuple[str, ...], port: _Port
    ) -> None:
        each = [_Worker(n, config, environ, argv, port) for n in range(1, config.workers + 1)]
        self._all = [_Kept(worker, ServiceProcess(worker, _say)) for worker in each]

    def run(self, asked: list[int]) -> bool:
        """Until `asked` to stop. Whether all ended in order then. Raises CannotStart when one does not start
        the first time; the others have ended then."""
        in_order = True
        try:
            self._start(asked)
            while not asked:
                self._tick(self._all)
        finally:
            in_order = self._stop(asked)
        return in_order

    def _start(self, asked: list[int]) -> None:
        """The first by itself: what keeps it from starting would keep all, and is said once."""
        for some in (self._all[:1], self._all):
            while not asked and not all(each.worker.started_once for each in some):
                self._tick(some)

    def _tick(self, some: list[_Kept]) -> None:
        for each in some:
            try:
                each.process.tick()
            except CannotStart as fault:
                if not each.worker.started_once:
                    raise
                _say(str(fault))
                each.process.put_off(RETRY_S)
        time.sleep(TICK_S)

    def _stop(self, asked: list[int]) -> bool:
        """All at once, within the time that one has."""
        grace_s = max(each.worker.stop_signals[1] for each in self._all)
        deadline = time.monotonic() + grace_s
        for each in self._all:
            each.process.begin_stop()
        for each in self._all:
            each.process.stop(hurried=lambda: asked.count(signal.SIGINT) > 1 or time.monotonic() > deadline)
            each.worker.let_go()
        in_order = time.monotonic() < deadline and asked.count(signal.SIGINT) < 2
        if not in_order:
            _say("a worker was killed before it had finished what it had accepted.")
        return in_order


def _say(line: str) -> None:
    logger.warning("worker_ended", extra={"reason": line})
