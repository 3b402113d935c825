"""`sluice dev` as a person starts it, with the real gateway."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import typer
from typer.testing import CliRunner

from gateway.dev.command import dev
from gateway.dev.supervisor import Settings
from tests.dev.conftest import DEADLINE_S, ROOT, Dev

OTHER_SPEC = {
    "aggregate_types": {"note": {"events": {"was_taken": {"schema": {"type": "object"}}}}},
    "agent_types": ["person"],
}


Start = Callable[..., Dev]


@pytest.fixture
def sluice_dev(folder: Path) -> Iterator[Start]:
    """Starts `sluice dev` at each call, always in the same data folder, where a person keeps their own."""
    (folder / "spec.py").write_text("raise RuntimeError('nobody asked for this one')\n")
    with contextlib.ExitStack() as ending:

        def start(*options: str, **environ: str) -> Dev:
            errors = folder / "errors"
            with errors.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "gateway", "dev", "--data", "data", "--port", "0", *options],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
                    stdout=subprocess.PIPE,
                    stderr=file,
                )
            ending.callback(process.communicate)
            ending.callback(process.kill)
            return Dev(process, folder / "data", errors)

        yield start


def refused(found: Dev) -> str:
    """What it says when it ends with status 1."""
    output, _ = found.process.communicate(timeout=DEADLINE_S)
    assert (found.process.returncode, output) == (1, b"")
    return found.said


def pasted(command: str) -> tuple[int, dict[str, object]]:
    """Do what the curl command says. Status and body."""
    said = subprocess.run(["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True).stdout
    words = said.decode().split("\0")[:-1]
    assert words[0] == "curl"
    headers = dict(words[index + 1].split(": ", 1) for index, word in enumerate(words) if word == "-H")
    url = next(word for word in words if word.startswith("http://"))
    request = Request(url, words[-1].encode(), headers, method="POST")
    with urlopen(request, timeout=DEADLINE_S) as answer:
        return answer.status, json.loads(answer.read())


def test_the_command_that_it_prints_appends_an_event_and_its_key_opens_the_metrics(sluice_dev: Start) -> None:
    dev = sluice_dev().wait_ready()
    status, answer = pasted(dev.lines[1])
    assert (status, answer["ok"], answer["length"]) == (201, True, 1)
    key = (dev.data / "run/key").read_text().strip()
    assert key not in dev.lines[1]
    metrics = Request(f"{dev.url}/_/metrics", headers={"Authorization": f"Bearer {key}"})
    with urlopen(metrics, timeout=DEADLINE_S) as page:
        assert b"sluice_appends_total" in page.read()
    assert dev.stop() == 0


def test_a_spec_of_ones_own_is_deployed_and_greeted_with(sluice_dev: Start, folder: Path) -> None:
    (folder / "spec.json").write_text(json.dumps(OTHER_SPEC))
    dev = sluice_dev("--spec", "spec.json", "--workers", "2").wait_ready()
    assert "/note/" in dev.lines[1]
    assert pasted(dev.lines[1])[0] == 201
    assert len(dev.pids("gateway")) == 2
    assert dev.stop() == 0


def test_what_was_acknowledged_is_there_after_everything_was_killed(sluice_dev: Start) -> None:
    first = sluice_dev().wait_ready()
    status, answer = pasted(first.lines[1])
    assert status == 201
    for name in ("redis", "postgres", "gateway", "dev"):
        os.kill(first.pids(name)[0], signal.SIGKILL)
    first.process.wait(DEADLINE_S)
    second = sluice_dev().wait_ready()
    key = (second.data / "run/key").read_text().strip()
    read = Request(f"{second.url}/order/{answer['key']}/length", headers={"Authorization": f"Bearer {key}"})
    with urlopen(read, timeout=DEADLINE_S) as found:
        assert json.loads(found.read())["length"] == 1
    assert second.stop() == 0


def test_a_spec_that_can_not_be_read_is_named(sluice_dev: Start) -> None:
    assert "none.json: No such file" in refused(sluice_dev("--spec", "none.json"))


def test_a_spec_with_faults_is_refused_with_all_of_them(sluice_dev: Start, folder: Path) -> None:
    (folder / "spec.json").write_text(
        json.dumps(OTHER_SPEC | {"agent_types": ["system_x"], "singletons": ["global"]})
    )
    said = refused(sluice_dev("--spec", "spec.json"))
    assert "/agent_types/0" in said
    assert "/singletons/0" in said


def test_an_option_goes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr("gateway.dev.command.run", lambda settings, _: asked.append(settings))
    app = typer.Typer()
    app.command()(dev)
    environ = {"SLUICE_HOST": "127.0.0.2", "SLUICE_PORT": "8100", "SLUICE_WORKERS": "2"}
    for words, set_to in ((["--port", "8101"], environ), ([], environ), ([], dict.fromkeys(environ, ""))):
        ran = CliRunner().invoke(app, ["--data", str(tmp_path), *words], env=set_to)
        assert ran.exit_code == 0, ran.output
    assert [(each.host, each.port, each.workers) for each in asked] == [
        ("127.0.0.2", 8101, 2),
        ("127.0.0.2", 8100, 2),
        ("127.0.0.1", 8017, 1),
    ]


def test_settings_that_make_no_sense_are_refused_at_once(sluice_dev: Start, folder: Path) -> None:
    assert "SLUICE_PARTITIONS must be" in refused(sluice_dev(SLUICE_PARTITIONS="many"))
    said = refused(sluice_dev("--redis", "hunter2", "--postgres", "mysql://u:hunter2@h/db", SLUICE_FOO="1"))
    assert said.splitlines() == [
        "sluice dev: SLUICE_FOO is not a setting: unset it.",
        "--redis must be redis://… or rediss://… or redis+cluster://… or rediss+cluster://… or "
        "unix://…, its password percent-encoded.",
        "--postgres must be postgresql://… or postgres://…, its password percent-encoded.",
    ]
    assert not (folder / "data").exists()


def test_a_data_folder_that_is_a_file_is_refused(sluice_dev: Start, folder: Path) -> None:
    (folder / "data").touch()
    assert "data" in refused(sluice_dev())
