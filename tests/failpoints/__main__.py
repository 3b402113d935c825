"""A gateway ends, or pauses and continues, at every place where it waits between receiving an append and
answering it, and inside a verification; its client retries, or does not.

    python -m tests.failpoints                        all of it
    python -m tests.failpoints --seconds 60 --seed 7  as many as fit, in an order by the seed
    python -m tests.failpoints --names                between an aggregate's first commit and its names
    python -m tests.failpoints --list
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import uvloop

from tests.failpoints import naming
from tests.failpoints.cases import Run
from tests.failpoints.points import all_points
from tests.failpoints.stage import Stage
from tests.support.servers import open_folder


async def _main(asked: argparse.Namespace) -> int:
    say = partial(print, flush=True)
    with open_folder() as folder:
        if asked.names:
            return 0 if await naming.run(folder, asked.seed, asked.seconds, say) else 1
        async with Stage.open(folder) as stage:
            run = Run(stage, asked.seed, say)
            await run.rehearse()
            for point in run.missed:
                print(f"MISSED {point}")
            await run.play(asked.seconds)
    print(run.told())
    return 1 if run.broken or run.missed else 0


def main(arguments: list[str]) -> int:
    """Exit status: 0 where every point was passed and every promise held."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.failpoints", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="as many cases as fit")
    parser.add_argument("--names", action="store_true", help="what comes behind the commit")
    parser.add_argument("--list", action="store_true", help="every point")
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(map(str, all_points())))
        return 0
    return uvloop.run(_main(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
