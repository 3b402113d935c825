"""64 writers, followers of the feed, relays to receivers that fail now and then; gateways and relays killed
at random. Did each reader see every committed event of its filter, in order, once, under one id?

    python -m tests.outgoing --minutes 1 --seed 7
    python -m tests.outgoing --minutes 0.2 --bad NAME, --all-bad
"""

from __future__ import annotations

import argparse
import sys
import time

import uvloop

from tests.outgoing.bad import BUILDS
from tests.outgoing.campaign import Result, run_campaign


def told(result: Result) -> str:
    kills = ", ".join(f"{count} of {kind}s" for kind, count in result.kills.items())
    lines = [
        f"seed {result.seed}: {result.committed:,} events committed in {result.seconds:.1f} s",
        f"  kills: {kills}; {result.repeated:,} appends sent again",
        *(f"  {name}: {given}" for name, given in result.readers.items()),
        f"  the last reader had all {result.late_s:.1f} s after the last append",
        *(f"  VIOLATION {kind}: {what}" for kind, what in result.violations),
    ]
    if result.folder:
        lines.append(f"  everything is kept in {result.folder}")
    lines.append(f"{len(result.violations)} violations")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Exit status: 0 where every promise held, or every bad build was caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.outgoing", description=__doc__,
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
