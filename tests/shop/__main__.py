"""A shop as an application builds it on the docs, in Python, in Node and in a page of another origin.

    python -m tests.shop [--workers 50] [--carts 200] [--seed N] [--all-bad]

Each program is killed before, within and after every step, and started again with the keys that it derives
from the cart; Stripe pays for orders that are there, that are not, and twice; 50 workers buy more than there
is while the gateway is killed. Exit 0: each life was told the same receipts, each step is stored once, no
stock went below zero, no payment made an order, and `sluice audit` finds nothing. With --all-bad each program
with a mistake is killed in the same way, and exit 0 says that each was caught.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import time
from collections.abc import Sequence

from tests.shop.bad import MISTAKES, command_of
from tests.shop.campaign import Campaign, programs
from tests.shop.lives import KILLS, NODE, process
from tests.shop.stage import open_stage, shop_origin
from tests.support.servers import open_folder, servers_in

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shop", description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--carts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--all-bad", action="store_true", help="programs with a mistake, each to be caught")
    asked = parser.parse_args(argv)
    print(f"seed {asked.seed}", flush=True)
    random.seed(asked.seed)
    if asked.all_bad:
        return asyncio.run(_all_bad(asked.seed))
    return asyncio.run(_run(asked.workers, asked.carts, asked.seed))


async def _run(workers: int, carts: int, seed: int) -> int:
    with open_folder() as folder, contextlib.closing(servers_in(folder)) as servers:
        await servers.start()
        async with (
            shop_origin() as origin,
            open_stage(servers, folder, servers.postgres_url, origin) as on,
        ):
            campaign, began = Campaign(on, seed), time.monotonic()
            await programs(campaign)
            if NODE is None:
                print("NOT RUN: the program in Node, which is not here")
            if CHROMIUM is None:
                print("NOT RUN: the page, which needs Chromium")
            else:
                await campaign.in_a_page(CHROMIUM, origin, KILLS)
            await campaign.rush(workers, carts, gateways_die=True)
            found = await campaign.harms()
            await on.audited()
            took, kills = time.monotonic() - began, on.gateway.kills
    print(f"{dict(campaign.done)}; {kills} kills of the gateway; {took:.0f} s; {len(found)} violations")
    for each in found[:20]:
        print(each)
    return 1 if found else 0


async def _all_bad(seed: int) -> int:
    missed = 0
    with open_folder() as folder, contextlib.closing(servers_in(folder)) as servers:
        await servers.start()
        async with open_stage(servers, folder, servers.postgres_url, "https://shop.example") as on:
            for name, mistake in MISTAKES.items():
                campaign = Campaign(on, seed)
                await campaign.lives(name, process(command_of(name, folder)), KILLS)
                found = await campaign.harms()
                missed += not found
                print(
                    f"{name} ({mistake.what}): {f'caught: {found[0]}' if found else 'NOT CAUGHT'}", flush=True
                )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
