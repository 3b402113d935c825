"""Implied events, timers and sagas under load, through two gateways that are killed; Redis is restarted too.

    python -m tests.reacting [--seconds 600] [--writers 16] [--seed N]

Exit 0: each output happened exactly once, none early, no cancelled one, and every saga came to its end. The
checker knows no code of the gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import Sequence

from tests.reacting.campaign import DELAY_S, Campaign
from tests.reacting.checker import violations
from tests.support.servers import open_folder, servers_in


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.reacting", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--writers", type=int, default=16)
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
            rows = await campaign.run(seconds, writers)
    harms = violations(rows, DELAY_S)
    print(f"{len(rows)} events {dict(Counter(row.type for row in rows))}; kills {campaign.kills}")
    print(f"{campaign.begun} orders and carts, {len(harms)} violations")
    for harm in harms[:20]:
        print(harm)
    return 1 if harms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
