"""64 writers, followers of the feed, relays to receivers that fail now and then; gateways and relays killed
at random. Did each reader see every committed event of its filter, in order, once, under one id?

    python -m tests.outgoing --minutes 1 --seed 7
    python -m tests.outgoing --minutes 0.2 --bad NAME, --all-bad
"""

from __future__ import annotations

import sys

from tests.outgoing.bad import BUILDS
from tests.outgoing.campaign import Result, run_campaign
from tests.support.campaign_command import run_command


def told(result: Result) -> str:
    kills = ", ".join(f"{count} of {kind}s" for kind, count in result.kills.items())
    stops = ", ".join(f"{count} of {kind}s" for kind, count in result.stops.items())
    lines = [
        f"seed {result.seed}: {result.committed:,} events committed in {result.seconds:.1f} s",
        f"  kills: {kills}; stops: {stops}; {result.repeated:,} appends sent again",
        *(f"  {name}: {given}" for name, given in result.readers.items()),
        f"  the last reader had all {result.late_s:.1f} s after the last append",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations),
    ]
    if result.folder:
        lines.append(f"  everything is kept in {result.folder}")
    lines.append(f"{len(result.violations)} violations")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:], "tests.outgoing", __doc__, BUILDS, run_campaign, told))
