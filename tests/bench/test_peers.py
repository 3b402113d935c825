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
