"""A suite is a list of scenarios. Here: its options, and how it is run and reported.

Rounds go over all scenarios in turn, since a machine drifts by more than most changes are worth: compare
medians of interleaved rounds, and nothing across runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console

from gateway.config import SETTINGS
from gateway.dev.failure import CannotStart
from tests.bench.machine import describe
from tests.bench.measured import Measured
from tests.bench.report import Report, Row, show, write_json
from tests.bench.stand import Stand, open_stand

ABOUT = "Measures on servers of its own, each scenario on a fresh database. Nothing is left behind."
WARM_UP_MOST_S = 1.0
USUAL_CONNECTIONS = 64
TABLE_WIDTH = 200
"""Where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `seconds` are measured for each scenario, `connections` the counts to try, `stored`
    the numbers of events that are there before in growth.py."""

    seconds: float
    connections: tuple[int, ...]
    streams: int
    workers: int
    rounds: int
    only: tuple[str, ...]
    json: Path | None
    stored: tuple[int, ...]

    @property
    def warm_up_s(self) -> float:
        return min(WARM_UP_MOST_S, self.seconds)

    @property
    def usual_connections(self) -> int:
        """For scenarios that are tried with only one count: the one nearest to 64."""
        return min(self.connections, key=lambda count: abs(count - USUAL_CONNECTIONS))

    @property
    def busy_connections(self) -> tuple[int, ...]:
        """The usual one and more."""
        return tuple(count for count in self.connections if count >= self.usual_connections)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the report. `expected` and `against`: see `Row`."""

    name: str
    unit: str
    expected: tuple[int, ...]
    run: Callable[[Stand], Awaitable[Measured]]
    against: str = ""


Scenarios = Callable[[Options], Sequence[Scenario]]


def main(command: Sequence[str], scenarios: Scenarios, argv: Sequence[str]) -> int:
    """Run, show, write. `command` is what stands between `python -m` and the options.

    Returns the exit status: 1 when something failed, be it a single answer.
    """
    options = _options(" ".join(command), argv)
    chosen = [each for each in scenarios(options) if _wanted(each.name, options.only)]
    if not chosen:
        names = "\n  ".join(each.name for each in scenarios(options))
        print(f"no scenario has such a name; there are:\n  {names}", file=sys.stderr)
        return 2
    try:
        report = asyncio.run(_run(shlex.join(["python", "-m", *command, *argv]), options, chosen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped: nothing is reported", file=sys.stderr)
        return 1
    except (CannotStart, RuntimeError) as fault:
        print(f"not measured: {fault}", file=sys.stderr)
        return 1
    show(report, Console(width=None if sys.stdout.isatty() else TABLE_WIDTH, highlight=False))
    if options.json:
        write_json(report, options.json)
    return int(report.failed)


async def _run(command: str, options: Options, scenarios: Sequence[Scenario]) -> Report:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that all is cleared away
    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = []
    async with open_stand(options.workers) as stand:
        machine = await describe(stand.servers)
        for number in range(1, options.rounds + 1):
            for scenario in scenarios:
                measured = await scenario.run(stand)
                told = scenario.name, scenario.unit, number, scenario.expected, measured, scenario.against
                rows.append(Row(*told))
                print(f"{scenario.name}: {measured.per_s:,.0f}/s", file=sys.stderr, flush=True)
    return Report(command, date, machine, _settings(), rows)


def _settings() -> dict[str, str]:
    """Those of the gateway that the environment changes; nothing that is secret."""
    names = [row.name for row in SETTINGS if not row.secret]
    return {name: os.environ[name] for name in names if name in os.environ}


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, f"{pattern}*") for pattern in patterns)


def _options(command: str, argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=ABOUT)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each scenario (default: 3)")
    parser.add_argument(
        "--connections", type=_counts, default=(1, 16, 64, 256), metavar="N,N,…", help="default: 1,16,64,256"
    )
    parser.add_argument("--streams", type=int, default=1000, help="to append to (default: 1000)")
    parser.add_argument("--workers", type=int, default=1, help="gateway processes (default: 1)")
    parser.add_argument("--rounds", type=int, default=1, help="over all scenarios (default: 1)")
    parser.add_argument(
        "--stored", type=_counts, default=(10_000, 1_000_000), metavar="N,N,…", help="events, for growth/…"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="names that begin so; * stands for any"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    given = parser.parse_args(argv)
    if given.streams < max(given.connections):
        parser.error("--streams: each connection needs a stream of its own")
    if given.seconds <= 0 or min(given.workers, given.rounds, *given.connections, *given.stored) < 1:
        parser.error("--seconds, --workers, --rounds, --connections and --stored are positive")
    return Options(**{**vars(given), "only": tuple(given.only)})


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
