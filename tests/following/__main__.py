"""16 writers, two gateways, two relays, all killed at random; Redis wiped, Postgres restarted, definitions
changed. Does each list, projection and join equal a fold of what is committed, at every look?

python -m tests.following --minutes 1 --seed 7 python -m tests.following --minutes 0.3 --bad NAME, --all-bad
"""

from __future__ import annotations

import argparse
import sys
import time

import uvloop

from tests.following.bad import BUILDS
from tests.following.campaign import Result, run_campaign


def told(result: Result) -> str:
    kills = ", ".join(f"{count} of {kind}s" for kind, count in result.kills.items())
    losses = ", ".join(f"{kind} {count} times" for kind, count in result.losses.items())
    lines = [
        f"seed {result.seed}: {result.committed:,} events committed; {result.changes} definitions deployed",
        f"  kills: {kills}; lost: {losses}",
        f"  {result.looks} looks at all rows, {result.reads} reads of own writes",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations[:10]),
    ]
    return "\n".join([*lines, f"{len(result.violations)} violations"])


def main(arguments: list[str]) -> int:
    """Exit status: 0 where every promise held, or every bad build was caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.following", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1.0, help="of writing and killing")
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--bad", choices=list(BUILDS), help="run a known-bad build, which has to be caught")
    parser.add_argument("--all-bad", action="store_true", help="each of them")
    asked = parser.parse_args(arguments)
    seed = int(time.time()) if asked.seed is None else asked.seed
    if names := list(BUILDS) if asked.all_bad else [asked.bad] if asked.bad else []:
        caught = [_caught(name, asked.minutes, seed) for name in names]
        return 0 if all(caught) else 1
    result = uvloop.run(run_campaign(asked.minutes * 60, seed))
    print(told(result))
    return 1 if result.violations else 0


def _caught(name: str, minutes: float, seed: int) -> bool:
    violations = uvloop.run(run_campaign(minutes * 60, seed, name)).violations
    by = f"caught: {violations[0].kind}: {violations[0].told}" if violations else "NOT CAUGHT"
    print(f"{name} ({BUILDS[name].what}): {by}", flush=True)
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
