"""The campaign in short: some seconds of it, with another seed each day. A minute of it: docs/testing.md."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.faults.cluster import ROOT

MINUTES = 0.1
DAY_S = 86_400


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_every_reader_sees_every_event_while_gateways_and_relays_are_killed() -> None:
    seed = str(int(time.time()) // DAY_S)
    argv = [sys.executable, "-m", "tests.outgoing", "--minutes", str(MINUTES), "--seed", seed]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}\n{ended.stderr}"
    assert "0 violations" in ended.stdout
    assert " 0 of" not in ended.stdout, "nobody was killed"
