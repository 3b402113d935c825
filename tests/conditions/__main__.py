"""40 writers append with conditions through two gateways that are killed, and so is Redis.

    python -m tests.conditions [--seconds 60] [--seed N]
    python -m tests.conditions --seconds 20 --bad NAME, --all-bad

Exit 0: by the committed feed every condition was true where its append stands, every refusal was right, and
nothing was lost, doubled, reordered or seen half; or every bad build was caught.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.conditions.bad import BUILDS
from tests.conditions.campaign import Result, run_campaign
from tests.support.servers import open_folder, servers_in


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.conditions", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--bad", choices=list(BUILDS), help="a known-bad build, which has to be caught")
    parser.add_argument("--all-bad", action="store_true", help="each of them")
    asked = parser.parse_args(argv)
    print(f"seed {asked.seed}", flush=True)
    if names := list(BUILDS) if asked.all_bad else [asked.bad] if asked.bad else []:
        caught = [_caught(name, asked.seconds, asked.seed) for name in names]
        return 0 if all(caught) else 1
    result = asyncio.run(_run(asked.seconds, asked.seed))
    print(f"{result.events:,} events; answers: {_listed(result.answers)}; faults: {_listed(result.faults)}")
    print(f"{result.races} races, {result.pages:,} pages; {len(result.harms)} violations")
    for harm in result.harms[:20]:
        print(harm[:500])
    return 1 if result.harms else 0


async def _run(seconds: float, seed: int, build: str | None = None) -> Result:
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            return await run_campaign(servers, folder, seconds, seed, build)


def _caught(name: str, seconds: float, seed: int) -> bool:
    harms = asyncio.run(_run(seconds, seed, name)).harms
    kinds = Counter(harm.partition(":")[0] for harm in harms)
    by = f"caught: {_listed(kinds)}; {harms[0][:300]}" if harms else "NOT CAUGHT"
    print(f"{name} ({BUILDS[name].what}): {by}", flush=True)
    return bool(harms)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
