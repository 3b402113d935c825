"""Twenty files with the same ids in them, sent by 40 at once through webhooks, bulk and resolve, twice, with
edits, moves and renames between; 50 projects that 40 add to while specs are deployed; two gateways.

    python -m tests.named --seconds 60 --seed 7
    python -m tests.named --seconds 5 --bad NAME, --all-bad

Exit 0: each unit is one aggregate with one event for each thing that it said, graded right, and the export
finds every one of them; the numbers of each project have no gap, and its key never changed.
"""

from __future__ import annotations

import sys

from tests.named.bad import BUILDS
from tests.named.campaign import Result, run_campaign
from tests.support.campaign_command import run_command


def told(result: Result) -> str:
    deployed = ", ".join([f"{count} times {status}" for status, count in sorted(result.deployed.items())])
    lines = [
        f"seed {result.seed}: {result.rounds} rounds, {result.requests:,} requests",
        f"  {result.units:,} units, {result.events:,} events; {result.members:,} members; specs: {deployed}",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:10]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:], "tests.named", __doc__, BUILDS, run_campaign, told, "seconds", 60))
