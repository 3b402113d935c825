"""Gateways in processes that are forked for each case, and end or stand still where they are told to."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from gateway.dev.listen import listen
from tests.failpoints.nursery import ARMED, FIRED, PASSED, SHARED_BYTES
from tests.faults.gateway_at import ROOT
from tests.support import drive

LAST_LINES = 20


class Forked:
    """A gateway in a process that can be forked again, on a port that stays. B is number 1."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.socket = listen("127.0.0.1", 0, 1)[0]
        self.port: int = self.socket.getsockname()[1]
        self.pid: int | None = None
        self._log = folder / f"gateway-{number}.log"
        path = folder / f"gateway-{number}.points"
        path.write_bytes(bytes(SHARED_BYTES))
        self._path = path
        with path.open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), SHARED_BYTES)

    def order(self, env: dict[str, str], target: int, at_target: signal.Signals) -> bytes:
        """For the nursery."""
        self.clear()
        told = {"shared": str(self._path), "log": str(self._log), "target": target, "signal": int(at_target)}
        env = env | {"SLUICE_LISTEN_FD": str(self.socket.fileno())}
        return json.dumps(told | {"env": env}).encode() + b"\n"

    @property
    def fired(self) -> bool:
        return bool(self.shared[FIRED])

    @property
    def alive(self) -> bool:
        return self.pid is not None and Path(f"/proc/{self.pid}").exists()

    def clear(self) -> None:
        """Forget which points it passed, and that it was stopped at one."""
        self.shared[:] = bytes(SHARED_BYTES)

    def arm(self) -> None:
        self.shared[ARMED] = 1

    def disarm(self) -> None:
        self.shared[ARMED] = 0

    def passed(self) -> set[int]:
        return {n - PASSED for n in range(PASSED, SHARED_BYTES) if self.shared[n]}

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def log_tail(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text().splitlines()[-LAST_LINES:])

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await drive.until(lambda: not self.alive)


class Nursery:
    """What they are forked from (nursery.py)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def open(cls, *gateways: Forked) -> AsyncIterator[Self]:
        """For only these. None of them is alive when it is left."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.failpoints.nursery", cwd=ROOT, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            pass_fds=[gateway.socket.fileno() for gateway in gateways],
        )  # fmt: skip
        nursery = cls(process)
        try:
            yield nursery
        finally:
            await nursery.end()

    async def fork(
        self, gateway: Forked, env: dict[str, str], target: int = -1, at: signal.Signals = signal.SIGKILL
    ) -> None:
        """With these settings; once it is armed, `at` is sent to it at the point `target`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(gateway.order(env, target, at))
        gateway.pid = int(await self._process.stdout.readline())

    async def end(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
