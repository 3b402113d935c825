"""What is stored takes no more than it may, and the command that tells it can't rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POSTGRES_TIMES_MAX = 3.5
"""The payload; indexes included."""
REDIS_TIMES_MAX = {"100 streams of 100": 1.8, "5,000 streams of 1": 4.0}


@pytest.mark.slow
def test_an_event_takes_no_more_than_it_may(tmp_path: Path) -> None:
    told = tmp_path / "memory.json"
    argv = [sys.executable, "-m", "tests.bench.memory", "--events", "10000", "--json", str(told)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    taken = json.loads(told.read_text())["taken"]
    assert list(taken) == list(REDIS_TIMES_MAX)
    for shape, each in taken.items():
        assert sum(each["postgres"].values()) < POSTGRES_TIMES_MAX * each["payload"]
        lasting = each["redis"]["streams"] + each["redis"]["heads"]
        assert each["payload"] < lasting < REDIS_TIMES_MAX[shape] * each["payload"]
        assert each["redis"]["journal"] > 0
        assert each["columns"]["payload"] >= each["payload"]
