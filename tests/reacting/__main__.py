"""Implied events, timers and sagas under load, through two gateways and a relay that are killed; Redis is
killed or emptied, Postgres restarted. --clocks: meanwhile their clocks step by an hour, back and forth.

    python -m tests.reacting [--seconds 600] [--seed N] [--clocks]
    python -m tests.reacting --seconds 0 --bad NAME, --all-bad

Exit 0: each output happened exactly once, none early, no cancelled one, and every saga came to its end; or
every bad build was caught. The checker knows no code of the gateway.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.reacting.bad import BUILDS
from tests.reacting.campaign import Result, run_campaign
from tests.support.campaign_command import run_command

CLOCKS = "--clocks"


def told(result: Result) -> str:
    late_s = result.late_s or [0.0]
    lines = [
        f"seed {result.seed}: {_listed(result.events)}",
        f"  faults: {_listed(result.faults)}",
        f"  {len(result.late_s):,} firings, late by {late_s[len(late_s) // 2]:.2f} s (median),"
        f" {late_s[-1]:.1f} s at most",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:20]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != CLOCKS]
    campaign = partial(run_campaign, clocks=CLOCKS in sys.argv[1:])
    sys.exit(run_command(words, "tests.reacting", __doc__, BUILDS, campaign, told, "seconds", 600.0))
