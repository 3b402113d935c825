"""50 writers reserve one item by a rule, through two gateways that are killed; Redis is killed too.

    python -m tests.reserving [--seconds 60] [--writers 50] [--seed N]

Exit 0: the stock never went below zero, no reservation was doubled or lost, and every refusal was right by
the history. The checker knows no code of the gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import Sequence

from tests.reserving.campaign import Campaign
from tests.reserving.checker import History
from tests.support.servers import open_folder, servers_in


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.reserving", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args(argv)
    print(f"seed {asked.seed}", flush=True)
    return asyncio.run(_run(asked.seconds, asked.writers, asked.seed))


async def _run(seconds: float, writers: int, seed: int) -> int:
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            campaign = Campaign(servers, folder, seed)
            rows = await campaign.run(seconds, writers, reread=True)
    harms = History(rows, campaign.told, campaign.states).check()
    statuses = Counter(each.status for each in campaign.told)
    print(f"{len(rows)} events; answers {dict(statuses)}; kills {campaign.kills}")
    print(f"states {campaign.states}; {len(harms)} violations")
    for harm in harms[:20]:
        print(harm)
    return 1 if harms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
