"""A gateway that ends, or stands still and goes on, wherever it waits: a sample of all cases, another one
each day. All of them: `python -m tests.failpoints`."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.faults.cluster import ROOT

SECONDS = 30
NAMING_SECONDS = 10
DAY_S = 86_400


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_wherever_a_gateway_ends_or_stands_still() -> None:
    """It also fails where an await of the append path is passed by no scene."""
    seed = str(int(time.time()) // DAY_S)
    argv = [sys.executable, "-m", "tests.failpoints", "--seconds", str(SECONDS), "--seed", seed]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}\n{ended.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_name_is_lost_or_given_twice_wherever_a_gateway_ends_while_it_names() -> None:
    """It also fails where an await on the way from a new aggregate to its names is not passed."""
    seed = str(int(time.time()) // DAY_S)
    argv = [
        sys.executable,
        "-m",
        "tests.failpoints",
        "--names",
        "--seconds",
        str(NAMING_SECONDS),
        "--seed",
        seed,
    ]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}\n{ended.stderr}"
