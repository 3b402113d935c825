"""Writers on long and short streams; handlers and upcasters are deployed again and again, gateways killed,
Redis and histories lost. Is each state that is read the fold of what is committed?

    python -m tests.states --seconds 60 --seed 7
    python -m tests.states --seconds 40 --bad NAME, --all-bad
"""

from __future__ import annotations

import sys

from tests.states.bad import BUILDS
from tests.states.campaign import Result, run_campaign
from tests.support.campaign_command import run_command


def told(result: Result) -> str:
    lines = [
        f"seed {result.seed}: {result.committed:,} events at the end; {result.deployed} specs deployed",
        f"  {result.reads:,} states read, {result.refused} refused; at most {result.kept} states kept",
        f"  {result.kills} kills of gateways; lost: Redis {result.redis_lost} times, history"
        f" {result.histories_lost} times",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:10]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:], "tests.states", __doc__, BUILDS, run_campaign, told, "seconds", 60.0))
