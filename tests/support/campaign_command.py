"""The command line of a campaign: so long, by this seed, of the product or of known-bad builds."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import uvloop

from tests.support.bad_builds import Build


class Found(Protocol):
    """A violation."""

    @property
    def kind(self) -> str: ...
    @property
    def told(self) -> str: ...


class Ended(Protocol):
    @property
    def violations(self) -> Sequence[Found]: ...


R = TypeVar("R", bound=Ended)
UNITS_S = {"seconds": 1.0, "minutes": 60.0}


def run_command(
    arguments: list[str],
    package: str,
    description: str | None,
    builds: Mapping[str, Build],
    campaign: Callable[[float, int, str | None], Coroutine[Any, Any, R]],
    told: Callable[[R], str],
    unit: str = "minutes",
    length: float = 1.0,
) -> int:
    """`campaign` takes seconds, a seed and the name of a build or None. Exit status: 0 where every promise
    held, or every bad build was caught."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(f"--{unit}", dest="length", type=float, default=length, help="of writing and killing")
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--bad", choices=list(builds), help="run a known-bad build, which has to be caught")
    parser.add_argument("--all-bad", action="store_true", help="each of them")
    asked = parser.parse_args(arguments)
    seconds, seed = asked.length * UNITS_S[unit], int(time.time()) if asked.seed is None else asked.seed

    def caught(name: str) -> bool:
        violations = uvloop.run(campaign(seconds, seed, name)).violations
        by = f"caught: {violations[0].kind}: {violations[0].told}" if violations else "NOT CAUGHT"
        print(f"{name} ({builds[name].what}): {by}", flush=True)
        return bool(violations)

    if names := list(builds) if asked.all_bad else [asked.bad] if asked.bad else []:
        verdicts = [caught(name) for name in names]
        return 0 if all(verdicts) else 1
    result = uvloop.run(campaign(seconds, seed, None))
    print(told(result))
    return 1 if result.violations else 0
