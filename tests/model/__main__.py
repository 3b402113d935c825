"""python -m tests.model [name …]: explores configurations and unsafe variants by name; all that the tests
run, if none is named. `--list` names them, those for larger bounds too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.model.configurations import HELD, LARGER, LIVE
from tests.model.scenario import Scenario
from tests.model.search import explore, strand
from tests.model.variants import BEYOND, UNSAFE


def bounds(scenario: Scenario) -> str:
    faults = f"{scenario.budget} of {', '.join(scenario.faults)}" if scenario.budget else "none"
    return (
        f"{len(scenario.appends)} appends, {scenario.gateways} gateways, {scenario.nodes} Redis, "
        f"at most {scenario.epochs} epochs, faults: {faults}"
    )


def run(name: str) -> bool:
    """Prints what was found; whether it is as it has to be."""
    unsafe = {**UNSAFE, **BEYOND}
    if name in unsafe:
        variant = unsafe[name]
        print(f"UNSAFE {name}\n  {bounds(variant.scenario)}")
        found = (strand if variant.strands else explore)(variant.scenario)
        good = variant.breaks in (found.broken or "")
    else:
        case = {**HELD, **LIVE, **LARGER}[name]
        print(f"{name}: {case.about}\n  {bounds(case.scenario)}")
        found = (strand if name in LIVE else explore)(case.scenario)
        good = found.broken is None
    print(f"  {found.told()}\n", flush=True)
    return good


def main(arguments: Sequence[str]) -> int:
    usual = [*HELD, *LIVE, *UNSAFE, *BEYOND]
    known = [*usual, *LARGER]
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names")
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        print(f"There is no configuration {unknown[0]!r}; --list names them.", file=sys.stderr)
        return 2
    results = [run(name) for name in asked.names or usual]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
