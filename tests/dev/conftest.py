"""A `sluice dev` under test: in a process of its own, its gateways stand-ins."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.dev.process import arguments
from tests.support.servers import open_folder

START = Path(__file__).with_name("start.py")
ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
POLL_S = 0.01

SOON_STOPPED = {"SLUICE_SHUTDOWN_GRACE_S": "5"}
"""A gateway that does not end by itself is killed after 2 × 5 + 15 s, within `DEADLINE_S`."""


def eventually(holds: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """What `holds()` returns, as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        select.select([], [], [], POLL_S)
    return value


def gone(*pids: int) -> bool:
    """Whether none of them runs; a zombie doesn't."""
    return not any(arguments(pid) for pid in pids)


@dataclass
class Dev:
    """One start in `data`. Its output is read as it comes, so that it never blocks."""

    process: subprocess.Popen[bytes]
    data: Path
    errors: Path
    lines: list[str] = field(default_factory=list)
    _buffer: bytes = b""

    @property
    def said(self) -> str:
        return self.errors.read_text()

    @property
    def url(self) -> str:
        return self.lines[0].removeprefix("ready ")

    def wait_ready(self) -> Dev:
        """Returns once the two lines are there."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.lines) < 2:
            assert self.process.stdout is not None
            readable, _, _ = select.select(
                [self.process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            assert readable, f"not ready: {self.said}"
            read = os.read(self.process.stdout.fileno(), 65536)
            assert read, f"it ended: {self.said}"
            *complete, self._buffer = (self._buffer + read).split(b"\n")
            self.lines += [line.decode() for line in complete]
        return self

    def pids(self, name: str) -> list[int]:
        """What `DIR/run/<name>.pid` holds; [] when it isn't there."""
        with contextlib.suppress(FileNotFoundError):
            return [int(line) for line in (self.data / f"run/{name}.pid").read_text().splitlines()]
        return []

    def all_pids(self) -> list[int]:
        return [pid for name in ("dev", "gateway", "redis", "postgres") for pid in self.pids(name)]

    def env(self) -> dict[str, str]:
        lines = (self.data / "run/env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def get(self, path: str = "/") -> Any:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


StartDev = Callable[..., Dev]


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as found:
        yield found


@pytest.fixture
def start_dev(folder: Path) -> Iterator[StartDev]:
    """Starts one at each call, in `folder`/data if nothing else is said. `environ` goes to its gateways."""
    started: list[Dev] = []

    def start(data: Path | None = None, environ: dict[str, str] | None = None, **changed: Any) -> Dev:
        settings = {
            "data": str(data or folder / "data"),
            "host": "127.0.0.1",
            "port": 0,
            "spec": None,
            "redis_url": None,
            "postgres_url": None,
            "workers": 1,
            "allow_private_targets": False,
            "partitions": 16,
            **changed,
        }
        errors = folder / f"errors-{len(started)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, START, json.dumps(settings)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **SOON_STOPPED, **(environ or {})},
                stdout=subprocess.PIPE,
                stderr=file,
            )
        started.append(Dev(process, Path(str(settings["data"])), errors))
        return started[-1]

    yield start
    for dev in started:
        dev.process.kill()
        dev.process.communicate()
    eventually(lambda: gone(*(pid for dev in started for pid in dev.all_pids())))
