"""A gateway of a run: its process, its clock, and the release that it is of.

Owns: how one is started and what it comes back as. Must not know of the servers that it is led to.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Protocol

from gateway.dev.gateway_process import GatewayProcess
from gateway.dev.listen import listen
from gateway.dev.process import Command
from gateway.dev.service_process import ServiceProcess
from tests.faults.wire import Answer, Caller
from tests.support import warm
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
CLOCK = Path(__file__).with_name("clock")
SERVE = (sys.executable, "-m", "gateway", "serve")
START_S = 60.0
OFFSET = Struct("=q")
"""Of a gateway's clock, in the file that clock/sitecustomize.py reads."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class GatewayNode:
    """A gateway with its log in a file, run in the folder of its release. Where there is a file `clock`, its
    clock is wrong by the seconds that stand there."""

    process: GatewayProcess
    log: Path
    clock: Path
    folder: Path

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def stop_signals(self) -> tuple[signal.Signals, float, signal.Signals]:
        return self.process.stop_signals

    def command(self) -> Command:
        command = self.process.command()
        env = dict(command.env)
        if self.clock.exists():
            env |= {"PYTHONPATH": str(CLOCK), "FAULTS_CLOCK_FILE": str(self.clock)}
        return replace(command, cwd=self.folder, env=env, log=self.log)

    def ready(self, pid: int) -> bool:
        return True

    def failed(self) -> None:
        return


class Earlier(Protocol):
    """A release before this one (releases.py)."""

    @property
    def commit(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def serve(self) -> tuple[str, ...]: ...
    @property
    def starts_beside_this(self) -> bool: ...
    @property
    def opens_epochs_of_this(self) -> bool: ...
    def settings(self, wanted: Mapping[str, str]) -> dict[str, str]: ...
    async def migrate(self, postgres_url: str, partitions: int) -> None: ...
    async def refuses(self, settings: Mapping[str, str]) -> None: ...


class GatewayAt:
    """A gateway's process, the port it serves on, and its links to the servers. `earlier`: the release before
    this one, that it begins as, or may be exchanged for."""

    def __init__(
        self,
        number: int,
        argv: Sequence[str],
        settings: dict[str, str],
        folder: Path,
        earlier: Earlier | None = None,
    ) -> None:
        self.number = number
        self._socket = listen("127.0.0.1", 0, 1)[0]
        self.port: int = self._socket.getsockname()[1]
        self._argv, self._settings, self._folder = tuple(argv), settings, folder
        self._earlier = earlier
        self._clock = folder / f"gateway-{number}.clock"
        self.is_earlier = False
        self._become(earlier=False)
        self.serves = False
        """What a load balancer believes: it notices the end of a process, not one that hangs."""

    @property
    def release(self) -> str:
        return self._earlier.commit if self._earlier is not None and self.is_earlier else "today"

    @property
    def takes_appends(self) -> bool:
        """Beside gateways of this release, once nothing is wrong."""
        return not self.is_earlier or self._earlier is None or self._earlier.opens_epochs_of_this

    def exchange(self) -> None:
        """At its next start it is of the other release, where that one starts. It does not run now."""
        self._become(
            earlier=not self.is_earlier and self._earlier is not None and self._earlier.starts_beside_this
        )

    def begin_as_earlier(self) -> None:
        """Before its first start."""
        self._become(earlier=True)

    def _become(self, *, earlier: bool) -> None:
        self.is_earlier = earlier
        argv, settings, home = self._argv, self._settings, ROOT
        if earlier and self._earlier is not None:
            argv, home = self._earlier.serve, self._earlier.folder
            settings = self._earlier.settings(settings)
        process = GatewayProcess(argv, settings, self._folder, self._socket.fileno(), self.number)
        log = self._folder / f"gateway-{self.number}{'-earlier' if earlier else ''}.log"
        node = GatewayNode(process, log, self._clock, home)
        self.keeper = ServiceProcess(node, lambda _: None, warm.start)
        self.server = Server(self.keeper)
        self._begun = False

    def set_clock(self, offset_s: int) -> None:
        """From its next start on; one that was started with a clock of ours, at once."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(OFFSET.pack(offset_s))

    async def start(self) -> None:
        """Returns once it answers. One of the earlier release that ended comes back as this one, where the
        earlier one does not start any more."""
        if self._begun and self.is_earlier and self._earlier and not self._earlier.starts_beside_this:
            if self.keeper.pid is not None:
                return
            self.exchange()
        self._begun = True
        await self.server.start()
        caller, deadline = Caller(), asyncio.get_running_loop().time() + START_S
        try:
            while not await self._answers(caller):
                self.keeper.tick()
                late = asyncio.get_running_loop().time() > deadline
                assert not late, f"{self.keeper.name} does not answer{self.keeper.log_tail()}"
                await asyncio.sleep(POLL_S)
        finally:
            caller.close()
        self.serves = True

    async def _answers(self, caller: Caller) -> bool:
        return isinstance(await caller.call(self.port, "GET", "/_/health/live", (), timeout_s=1.0), Answer)

    def kill(self) -> None:
        self.serves = False
        self.server.kill()

    def close(self) -> None:
        self.server.resume()
        self.server.kill()
        self._socket.close()
