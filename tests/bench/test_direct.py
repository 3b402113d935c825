"""The benches of direct mode in short, so that they can't rot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.gateway_at import ROOT


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_appends_go_on_while_redis_is_away_and_it_is_used_again() -> None:
    argv = [sys.executable, "-m", "tests.bench.direct", "--seconds", "6", "--connections", "8"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stderr
    told = {line.split()[0]: line for line in ended.stdout.splitlines()[1:]}
    assert told.keys() == {"before", "away", "back", "after"}
    for name in ("before", "away", "after"):
        assert "× 201" in told[name]
        assert told[name].count("×") == 1, told[name]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_appends_wait_for_less_than_5_s_when_redis_is_back_after_a_night() -> None:
    argv = [
        sys.executable,
        "-m",
        "tests.bench.night",
        "--only",
        "night",
        "--appends",
        "2000",
        "--around-s",
        "1",
    ]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {"before", "beginning", "direct", "back"} <= {
        line.split()[0] for line in ended.stdout.splitlines()
    }
