"""A process that is forked in place of a started one is like it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.dev.process import Command, Process
from tests.support.warm import ROOT, start

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def no_other_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another path than this process', nothing is forked."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


TELL = """
import ctypes, json, os, sys
NAMES = os.listdir("/proc/self/fd")
death_signal = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(death_signal), 0, 0, 0)
os.write(int(os.environ["TELL_TO"]), json.dumps({
    "pids": [os.getppid(), os.getpid(), os.getsid(0)],
    "descriptors": sorted(int(name) for name in NAMES if os.path.exists(f"/proc/self/fd/{name}")),
    "standard input": os.readlink("/proc/self/fd/0"),
    "environment": sorted(os.environ),
    "death signal": death_signal.value,
}).encode())
print("out")
print("err", file=sys.stderr)
"""


def started(log: Path, *words: str, pass_fds: tuple[int, ...] = (), **env: str) -> Process:
    argv = [sys.executable, "-X", "sluice=mark", "-P", "-m", *words]
    return start(Command(argv, signal.SIGTERM, ROOT, env, log=log, pass_fds=pass_fds))


def test_it_is_a_child_that_has_only_what_it_was_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read, write = os.pipe()
    process = started(log, "timeit", "-n1", "-r1", TELL, pass_fds=(write,), TELL_TO=str(write))
    os.close(write)
    with os.fdopen(read, "rb") as file:
        told: dict[str, Any] = json.loads(file.read())
    assert process.wait(WAIT_S)
    assert process.poll() == 0
    assert told == {
        "pids": [os.getpid(), process.pid, process.pid],
        "descriptors": [0, 1, 2, write],
        "standard input": "/dev/null",
        "environment": ["TELL_TO"],
        "death signal": signal.SIGTERM,
    }
    assert {"out", "err"} <= set(log.read_text().split())


def test_its_end_is_noticed_as_of_any_other(tmp_path: Path) -> None:
    refused = started(tmp_path / "log", "gateway", "no-such-command")
    assert refused.wait(WAIT_S)
    assert refused.poll() == 2
    waiting = started(tmp_path / "log", "timeit", "import signal; signal.pause()")
    assert waiting.poll() is None
    waiting.signal(signal.SIGKILL)
    assert waiting.wait(WAIT_S)
    assert waiting.poll() == -signal.SIGKILL


def test_what_is_no_module_is_started(tmp_path: Path) -> None:
    process = start(Command(["/bin/echo", "started"], signal.SIGKILL, ROOT, {}, log=tmp_path / "log"))
    assert process.wait(WAIT_S)
    assert (tmp_path / "log").read_text() == "started\n"
