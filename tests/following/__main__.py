"""16 writers, two gateways, two relays, all killed at random; Redis wiped, Postgres restarted, definitions
changed. Does each list, projection and join equal a fold of what is committed, at every look?

    python -m tests.following --minutes 1 --seed 7
    python -m tests.following --minutes 0.3 --bad NAME, --all-bad
"""

from __future__ import annotations

import sys

from tests.following.bad import BUILDS
from tests.following.campaign import Result, run_campaign
from tests.support.campaign_command import run_command


def told(result: Result) -> str:
    kills = ", ".join(f"{count} of {kind}s" for kind, count in result.kills.items())
    stops = ", ".join(f"{count} of {kind}s" for kind, count in result.stops.items())
    losses = ", ".join(f"{kind} {count} times" for kind, count in result.losses.items())
    lines = [
        f"seed {result.seed}: {result.committed:,} events committed; {result.changes} definitions deployed",
        f"  kills: {kills}; stops: {stops}; lost: {losses}",
        f"  {result.looks} looks at all rows, {result.reads} reads of own writes,"
        f" {result.switches} builds that took over",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:10]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:], "tests.following", __doc__, BUILDS, run_campaign, told))
