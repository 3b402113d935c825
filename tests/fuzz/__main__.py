"""Fuzzing for as long as you like: signatures of webhooks, handlers, and followers in gzip.

    python -m tests.fuzz signatures|handlers|gzip-followers [--minutes 5] [--seed N]

Exits 1 at the first fault, with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable

import asyncpg

from gateway.catalog.migrate import migrate
from gateway.config import Config
from tests.conftest import PARTITIONS
from tests.fuzz import gzip_followers, handlers, signatures
from tests.support.accounts import open_account
from tests.support.servers import open_folder, servers_in

ROUND_S = 5.0


def tried_for(seconds: float, seed: int, wrong_in: Callable[[int], str | None]) -> tuple[int, list[str]]:
    """How many were tried, and what is wrong."""
    tried, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        if wrong := wrong_in(seed + tried):
            return tried, [wrong]
        tried += 1
    return tried, []


async def followers_for(seconds: float, seed: int) -> tuple[int, list[str]]:
    """The same of rounds, each with a gateway of its own."""
    tried, until = 0, time.monotonic() + seconds
    with open_folder() as folder:
        servers = servers_in(folder)
        try:
            await servers.start()
            await migrate(servers.postgres_url, PARTITIONS)
            config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url, relay=False)
            async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
                while time.monotonic() < until:
                    account = await open_account(pool)
                    if wrong := await gzip_followers.fuzzed(config, account, ROUND_S, seed + tried):
                        return tried, [f"seed {seed + tried}: {each}" for each in wrong]
                    tried += 1
        finally:
            servers.close()
    return tried, []


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["signatures", "handlers", "gzip-followers"])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    wanted = parser.parse_args()
    seconds = wanted.minutes * 60
    if wanted.what == "signatures":
        tried, wrong = tried_for(seconds, wanted.seed, signatures.wrong)
    elif wanted.what == "handlers":
        tried, wrong = tried_for(seconds, wanted.seed, handlers.wrong)
    else:
        tried, wrong = asyncio.run(followers_for(seconds, wanted.seed))
    print("\n".join(wrong or [f"{tried} tried from seed {wanted.seed} on, nothing wrong"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
