"""Writers on long and short streams; handlers and upcasters are deployed again and again, gateways killed,
Redis and histories lost. Is each state that is read the fold of what is committed?

python -m tests.states --seconds 60 --seed 7 python -m tests.states --seconds 40 --bad NAME, --all-bad
"""

from __future__ import annotations

import argparse
import sys
import time

import uvloop

from tests.states.bad import BUILDS
from tests.states.campaign import Result, run_campaign


def told(result: Result) -> str:
    lines = [
        f"seed {result.seed}: {result.committed:,} events at the end; {result.deployed} specs deployed",
        f"  {result.reads:,} states read, {result.refused} refused; at most {result.kept} states kept",
        f"  {result.kills} kills of gateways; lost: Redis {result.redis_lost} times, history"
        f" {result.histories_lost} times",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:10]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


def main(arguments: list[str]) -> int:
    """Exit status: 0 where every promise held, or every bad build was caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.states", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60.0, help="of writing and killing")
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--bad", choices=list(BUILDS), help="run a known-bad build, which has to be caught")
    parser.add_argument("--all-bad", action="store_true", help="each of them")
    asked = parser.parse_args(arguments)
    seed = int(time.time()) if asked.seed is None else asked.seed
    if names := list(BUILDS) if asked.all_bad else [asked.bad] if asked.bad else []:
        caught = [_caught(name, asked.seconds, seed) for name in names]
        return 0 if all(caught) else 1
    result = uvloop.run(run_campaign(asked.seconds, seed))
    print(told(result))
    return 1 if result.violations else 0


def _caught(name: str, seconds: float, seed: int) -> bool:
    violations = uvloop.run(run_campaign(seconds, seed, name)).violations
    by = f"caught: {violations[0].kind}: {violations[0].told}" if violations else "NOT CAUGHT"
    print(f"{name} ({BUILDS[name].what}): {by}", flush=True)
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
