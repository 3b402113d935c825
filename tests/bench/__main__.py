"""Every suite, or those that are named, in one run and one report.

python -m tests.bench [SUITE …] [options, see tests/bench/suite.py]
"""

from __future__ import annotations

import itertools
import sys

from tests.bench import (
    append,
    bulk,
    console,
    growth,
    implied,
    names,
    projected,
    read,
    rules,
    tags,
    transactions,
    webhooks,
)
from tests.bench.peers import suite as peers
from tests.bench.suite import Options, Scenario, Scenarios, main

SUITES: dict[str, Scenarios] = {
    "append": append.scenarios,
    "read": read.scenarios,
    "bulk": bulk.scenarios,
    "webhooks": webhooks.scenarios,
    "names": names.scenarios,
    "rules": rules.scenarios,
    "projected": projected.scenarios,
    "tags": tags.scenarios,
    "transactions": transactions.scenarios,
    "implied": implied.scenarios,
    "console": console.scenarios,
    "growth": growth.scenarios,
    "peers": peers.scenarios,
}


def _main(argv: list[str]) -> int:
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), argv))
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"there is no suite {unknown[0]}; there are: {', '.join(SUITES)}", file=sys.stderr)
        return 2

    def scenarios(options: Options) -> list[Scenario]:
        return [each for name in names or SUITES for each in SUITES[name](options)]

    return main(["tests.bench", *names], scenarios, argv[len(names) :])


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
