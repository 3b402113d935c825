"""A command of the tests' own, with another seed each day: what only chance finds is found in time, and all
runs of a day are alike."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.faults.gateway_at import ROOT

DAY_S = 86_400


def run_daily(module: str, *words: str, timeout_s: float) -> str:
    """What it printed. Fails unless it ended well."""
    seed = str(int(time.time()) // DAY_S)
    argv = [sys.executable, "-m", module, *words, "--seed", seed]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
