"""Real gateways, Redis with a replica, Postgres, clients, and a nemesis: does every promise hold?

    python -m tests.faults --minutes 10 --seed 1
    python -m tests.faults --whole --minutes 60
    python -m tests.faults --only redis-split net-hold --gateways 2
    python -m tests.faults --cluster --minutes 30
    python -m tests.faults --postgres-pair synchronous --minutes 10
    python -m tests.faults --postgres-pair patroni --minutes 10
    python -m tests.faults --beside-release REF --minutes 10
    python -m tests.faults --bad NAME, --all-bad

A run is a row of episodes, each on fresh servers with a seed of its own, counted up from --seed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import uvloop
from rich.console import Console

from tests.faults import disk, fail_over, report
from tests.faults.bad import BUILDS, GOOD, argv
from tests.faults.choice import usual
from tests.faults.episode import Plan, Result, run_episode
from tests.faults.injections import INJECTIONS
from tests.faults.patroni_nodes import PATRONI, missing
from tests.faults.postgres_pair import ASYNCHRONOUS, SYNCHRONOUS
from tests.faults.releases import release_of
from tests.faults.slow_postgres import DISK_FULL

EPISODE_S = 60.0
BAD_EPISODE_S = 45.0
BAD_CHECK_EVERY_S = 8.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="of load under faults; for a bad build, at most"
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="episodes over each kind of Redis and Postgres by turns, with all their faults",
    )
    parser.add_argument("--seed", type=int, default=None, help="of the first episode (default: the time)")
    parser.add_argument("--only", nargs="+", metavar="FAULT", choices=list(INJECTIONS), default=None)
    parser.add_argument("--gateways", type=int, choices=(2, 3), default=None, help="default: 3, or 2")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="two gateways over a Redis Cluster: three masters, 3 replicas",
    )
    parser.add_argument(
        "--postgres-pair",
        choices=(*fail_over.OF, PATRONI),
        default="",
        help="Postgres has a standby, which takes over; patroni: three nodes of Patroni's, with etcd",
    )
    parser.add_argument(
        "--beside-release",
        metavar="REF",
        default=None,
        help="half of the gateways are of that commit, tag or branch, and are exchanged for today's",
    )
    parser.add_argument(
        "--set", nargs="+", metavar="SLUICE_NAME=VALUE", default=[], help="of the gateways, in every episode"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", default=None, help="write the report there too")
    parser.add_argument("--bad", choices=[*BUILDS, *GOOD], help="run a known-bad build until it is caught")
    parser.add_argument("--all-bad", action="store_true", help="each of them, and a table")
    return parser


async def _run(asked: argparse.Namespace, console: Console) -> list[Result]:
    """Episodes until the time is up; the first that finds something is the last."""
    results: list[Result] = []
    seed, left_s = asked.seed, asked.minutes * 60
    while left_s > 1:
        spread, standby, beside = _stand(asked, seed)
        earlier = asked.earlier if beside else None
        plan = Plan(
            seed, min(EPISODE_S, left_s), _gateways(asked, spread),
            _faults(asked, (), spread, standby, earlier is not None), spread=spread,
            settings=_settings(asked), standby=standby, earlier=earlier,
        )  # fmt: skip
        result = await run_episode(plan)
        results.append(result)
        report.episode(result, console)
        if result.violations:
            break
        left_s -= result.seconds
        seed += 1
    return results


def _stand(asked: argparse.Namespace, seed: int) -> tuple[bool, str, bool]:
    """Whether an episode is over a Redis Cluster, which standby Postgres has, and whether gateways of an
    earlier release may be in it. By its seed, so that the same one repeats it."""
    if not asked.whole:
        return asked.cluster, asked.postgres_pair, True
    return asked.stands[seed % len(asked.stands)]


def _whole() -> list[tuple[bool, str, bool]]:
    """All that can be run here, the usual one twice: once with an earlier release, if one is named."""
    stands = [(False, "", False), (True, "", False), (False, SYNCHRONOUS, False)]
    stands += [(False, "", True), (False, ASYNCHRONOUS, False)]
    if lacking := missing():
        print(f"{PATRONI}: NOT RUN: install Debian's packages {lacking}")
        return stands
    return [*stands, (False, PATRONI, False)]


def _faults(
    asked: argparse.Namespace, of_build: tuple[str, ...], spread: bool, standby: str, two_releases: bool
) -> tuple[str, ...]:
    return tuple(asked.only or of_build) or usual(
        spread=spread, standby=standby, mounts=asked.mounts, two_releases=two_releases
    )


def _gateways(asked: argparse.Namespace, spread: bool) -> int:
    return asked.gateways or (2 if spread else 3)


def _settings(asked: argparse.Namespace) -> dict[str, str]:
    return dict(each.split("=", 1) for each in asked.set)


async def run_bad(name: str, asked: argparse.Namespace) -> Result:
    """Episodes with a known-bad build until it is caught; the last one, with the seconds of all."""
    seconds, build, seed, minutes = 0.0, (BUILDS | GOOD)[name], asked.seed, asked.minutes
    settings, spread = dict(build.settings) | _settings(asked), build.spread or asked.cluster
    standby = build.standby or asked.postgres_pair
    while True:
        plan = Plan(
            seed, min(BAD_EPISODE_S, minutes * 60 - seconds), _gateways(asked, spread),
            _faults(asked, build.faults, spread, standby, two_releases=False), argv=argv(name),
            check_every_s=BAD_CHECK_EVERY_S, digests=build.digests, harm=build.harm, spread=spread,
            settings=settings, keeps=False, standby=standby,
        )  # fmt: skip
        result = await run_episode(plan)
        seconds += result.seconds
        result.seconds = seconds
        if result.violations or seconds >= minutes * 60 - 1:
            return result
        seed += 1


async def _main(asked: argparse.Namespace, console: Console) -> int:
    command = shlex.join(["python", "-m", "tests.faults", *sys.argv[1:]])
    names = list(BUILDS) if asked.all_bad else [asked.bad] if asked.bad else []
    if names:
        caught = {}
        for name in names:
            caught[name] = await run_bad(name, asked)
            report.bad(name, caught[name], console)
        report.bad_table(caught, console)
        return 0 if all(each.violations for each in caught.values()) else 1
    made = report.Report.of(command, asked.seed, await _run(asked, console))
    report.show(made, console)
    if asked.json:
        report.write_json(made, asked.json)
    return 1 if made.violations else 0


def main(arguments: list[str]) -> int:
    """Exit status: 0 where every promise held, or every bad build was caught; 2 where what was asked for
    can't be run here."""
    asked = _parser().parse_args(arguments)
    if asked.seed is None:
        asked.seed = int(time.time())
    asked.earlier = release_of(asked.beside_release) if asked.beside_release else None
    if asked.postgres_pair == PATRONI and (lacking := missing()):
        print(f"patroni: NOT RUN: install Debian's packages {lacking}")
        return 2
    wrong = disk.isolate()
    asked.mounts = wrong is None
    asked.stands = _whole() if asked.whole else []
    if wrong is not None:
        print(f"{DISK_FULL}: NOT RUN: {wrong}")
        if DISK_FULL in (asked.only or ()):
            return 2
    return uvloop.run(_main(asked, Console()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
