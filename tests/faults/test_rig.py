"""The rig in short, by a fixed seed: half a minute of faults; gateways without a safeguard are caught.

Hours of it, and the whole table of known-bad builds: docs/testing.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SEED = 20261121
FAULTED_MINUTES = 0.45
CLUSTER_MINUTES = 0.3
QUICKLY_CAUGHT = ("acknowledge-first", "validate-first", "found-is-told")


def rig(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tests.faults", "--seed", str(SEED), *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


def test_every_promise_holds_under_faults() -> None:
    ended = rig("--minutes", str(FAULTED_MINUTES))
    assert ended.returncode == 0, f"seed {SEED}\n{ended.stdout}\n{ended.stderr}"
    assert "lost 0  doubled 0  reordered 0  phantom 0  stuck 0" in ended.stdout


def test_every_promise_holds_over_a_cluster_whose_slots_and_masters_move() -> None:
    ended = rig("--cluster", "--minutes", str(CLUSTER_MINUTES))
    assert ended.returncode == 0, f"seed {SEED}\n{ended.stdout}\n{ended.stderr}"
    assert "lost 0  doubled 0  reordered 0  phantom 0  stuck 0" in ended.stdout


@pytest.mark.parametrize("name", QUICKLY_CAUGHT)
def test_a_gateway_without_a_safeguard_is_caught(name: str) -> None:
    ended = rig("--minutes", "3", "--bad", name)
    assert ended.returncode == 0, f"seed {SEED}\n{ended.stdout}\n{ended.stderr}"
    assert f"{name}: caught" in ended.stdout
