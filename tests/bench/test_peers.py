"""The peers are installed and measured, and none of them fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONNECTIONS = 8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_peer_answers_as_it_should_unless_it_can_not_be_had(tmp_path: Path) -> None:
    """Where the registries are out of reach, the row says so."""
    told = tmp_path / "report.json"
    options = f"--seconds 0.15 --streams 20 --connections {CONNECTIONS} --json {told}".split()
    argv = [sys.executable, "-m", "tests.bench", "peers", *options]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    rows = json.loads(told.read_text())["rows"]
    names = ("message-db", "emmett", "eventsourcing")
    assert [row["name"] for row in rows] == [f"peers/{name}/{CONNECTIONS}" for name in names]
    for row in rows:
        if row["unexpected"] is None:
            assert set(row["answers"]) == {"201"}
        else:
            assert row["unexpected"].startswith("not installed: "), row["unexpected"]
    assert done.returncode == int(any(row["unexpected"] for row in rows)), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_read_models_of_each_peer_are_measured_unless_it_can_not_be_had() -> None:
    options = ["--events", "1200", "--rows", "100", "--singly", "5", "--rounds", "1"]
    argv = [sys.executable, "-m", "tests.bench.peers.projections", *options]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:])
    assert list(told) == ["sluice", "emmett", "eventsourcing"], done.stderr
    absent = [line for line in told.values() if line.startswith("not installed: ")]
    assert all("events/s" in line and "visible after" in line for line in told.values() if line not in absent)
    assert "events/s" in told["sluice"]
    assert done.returncode == bool(absent), done.stderr
