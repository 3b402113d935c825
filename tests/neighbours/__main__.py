"""Attacks on a gateway, and what a neighbour notices of each.

    python -m tests.neighbours [--minutes 5] [--only NAME …] [--set SLUICE_NAME=VALUE …]

Prints a line for each attack: what the victim's requests took, and the gateway's memory before and at its
peak. Exits 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from gateway.bounded_memory import parts, total
from gateway.config import Config
from tests.conftest import PARTITIONS
from tests.neighbours.attacks import ATTACKS
from tests.neighbours.bounds import BOUNDS
from tests.neighbours.campaign import MIB, campaign
from tests.neighbours.stand import stands

URLS = {"SLUICE_REDIS_URL": "redis://localhost", "SLUICE_POSTGRES_URL": "postgresql://localhost/sluice"}


async def _run(seconds: float, names: list[str], settings: dict[str, str]) -> int:
    broken: list[str] = []
    async with stands(**settings) as start:
        async for each in campaign(start, seconds, names):
            print(each, flush=True)
            broken += each.broken(BOUNDS[each.attack])
    if (told := total(parts(Config.from_environ({**URLS, **settings}, str), PARTITIONS))) is not None:
        print(f"the limits of a gateway's memory add up to {told // MIB} MiB over an idle one")
    print("\n".join(broken or ["no neighbour noticed more than the bounds allow"]))
    return bool(broken)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--only", nargs="*", default=[], choices=[each.name for each in ATTACKS])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    wanted = parser.parse_args()
    seconds = wanted.minutes * 60 / (len(wanted.only) or len(ATTACKS))
    settings = dict(each.split("=", 1) for each in wanted.set)
    return asyncio.run(_run(seconds, wanted.only, settings))


if __name__ == "__main__":
    sys.exit(main())
