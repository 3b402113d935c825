"""`sluice serve --workers` as a whole, its workers stand-ins: starts, deaths, stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Config, ConfigError
from gateway.workers import serve
from tests.dev.conftest import DEADLINE_S, ROOT, eventually, gone
from tests.support.ports import free_port

STAND_IN = Path(__file__).with_name("stand_in.py")
START = f"""
import os, sys
from gateway.config import Config
from gateway.workers import serve
serve(Config.from_environ(os.environ, open), os.environ, (sys.executable, {str(STAND_IN)!r}))
"""
PROBES = 40
"""Of two workers one is missed by all of them once in 10^12 starts."""


@pytest.fixture
def port() -> int:
    return free_port()


class Serving:
    """`sluice serve` with two workers on that port."""

    def __init__(self, port: int, errors: Path, **settings: str) -> None:
        self.port = port
        self.pids: set[int] = set()
        self._errors = errors
        urls = {"SLUICE_REDIS_URL": "redis://nowhere", "SLUICE_POSTGRES_URL": "postgresql://nowhere"}
        environ = {**os.environ, **urls, "PYTHONPATH": str(ROOT), "SLUICE_PORT": str(port), **settings}
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START], env={"SLUICE_WORKERS": "2", **environ}, stderr=file
            )

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def answer(self) -> dict[str, Any]:
        """Of whichever worker the kernel picks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        self.pids.add(found["pid"])
        return found

    def answers(self) -> dict[int, dict[str, Any]]:
        """By pid: many in a row, each of which has to come."""
        return {found["pid"]: found["env"] for found in (self.answer() for _ in range(PROBES))}

    def all_ready(self) -> dict[int, dict[str, Any]]:
        def found() -> dict[int, dict[str, Any]] | None:
            with contextlib.suppress(OSError):
                answers = self.answers()
                return answers if len(answers) == 2 else None
            assert self.process.poll() is None, self.said
            return None

        answers: dict[int, dict[str, Any]] = eventually(found)
        return answers

    def ended(self) -> int:
        return self.process.wait(DEADLINE_S)


Start = Callable[..., Serving]


@pytest.fixture
def start(port: int, tmp_path: Path) -> Iterator[Start]:
    started: list[Serving] = []

    def begin(**settings: str) -> Serving:
        started.append(Serving(port, tmp_path / f"errors-{len(started)}", **settings))
        return started[-1]

    yield begin
    for serving in started:
        serving.process.kill()
        serving.process.wait()
        for pid in serving.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(partial(gone, *serving.pids))


def test_workers_share_the_port_and_each_has_an_ops_port_of_its_own(start: Start) -> None:
    workers = start(SLUICE_OPS_PORT="18017").all_ready()
    assert sorted(environ["SLUICE_OPS_PORT"] for environ in workers.values()) == ["18017", "18018"]
    assert {environ["SLUICE_WORKERS"] for environ in workers.values()} == {"1"}


def test_the_others_answer_while_a_killed_worker_is_started_again(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    serving = start(STAND_IN_FAILS_BY=str(broken))
    killed, other = serving.all_ready()
    broken.touch()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: "again in 0.5 s" in serving.said)  # it failed twice, and waits longer each time
    assert set(serving.answers()) == {other}
    broken.unlink()
    again = set(serving.all_ready())
    assert other in again
    assert killed not in again
    assert serving.said.count("worker_ended") >= 3


def test_sigterm_ends_all_and_then_the_command_with_0(start: Start) -> None:
    serving = start()
    workers = serving.all_ready()
    serving.process.send_signal(signal.SIGTERM)
    assert serving.ended() == 0, serving.said
    assert gone(*workers)
    assert serving.said == ""


def test_a_second_sigint_kills_those_that_do_not_end(start: Start) -> None:
    serving = start(STAND_IN_STUBBORN="1")
    workers = serving.all_ready()
    serving.process.send_signal(signal.SIGINT)
    eventually(lambda: serving.said.count("disregards it") == 2)
    serving.process.send_signal(signal.SIGINT)
    assert serving.ended() == 1
    assert gone(*workers)
    assert "killed before it had finished" in serving.said


def test_workers_end_when_the_supervisor_is_killed(start: Start) -> None:
    serving = start()
    workers = serving.all_ready()
    serving.process.kill()
    serving.process.wait()
    eventually(lambda: gone(*workers))


def test_what_keeps_the_first_worker_from_starting_is_said_once(start: Start) -> None:
    serving = start(STAND_IN_FAIL="3")
    assert serving.ended() == 1
    assert serving.said == "the stand-in was told to fail\n"


def test_a_port_that_another_program_has_is_refused_first(start: Start, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        serving = start()
        assert serving.ended() == 1
    assert serving.said == f"sluice serve: can't listen on 127.0.0.1:{port}: Address already in use\n"
    first = start()
    first.all_ready()
    second = start()
    assert second.ended() == 1  # though both would share it with their own workers
    assert "Address already in use" in second.said


def test_settings_that_several_can_not_share_are_refused() -> None:
    config = Config(redis_url="redis://", postgres_url="postgresql://", workers=3)

    def refused(**changed: Any) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            serve(replace(config, **changed), {})
        return caught.value.faults

    assert refused(listen_fd=3, ops_port=65534) == (
        "SLUICE_LISTEN_FD is one socket, and each of SLUICE_WORKERS opens its own: unset one of them.",
        "SLUICE_OPS_PORT is the first of 3 ports, one a worker, up to 65536: lower it.",
    )
    assert refused(ops_port=8015) == (
        "SLUICE_PORT is among the workers' ops ports, 8015 to 8017: change one of them.",
    )
