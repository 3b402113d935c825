"""What a run came to: for people, and as JSON. Never without the seed and the command that repeats it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.faults.bad import BUILDS, GOOD
from tests.faults.episode import VIOLATIONS_TOLD_MAX, Result
from tests.faults.history import Recovery, Verdict

HEADLINES = ("lost", "doubled", "reordered", "phantom", "stuck")


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `date` is RFC 3339."""

    command: str
    date: str
    machine: dict[str, str]
    seed: int
    episodes: list[Result]

    @classmethod
    def of(cls, command: str, seed: int, episodes: list[Result]) -> Self:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(command, date, _machine(), seed, episodes)

    @property
    def violations(self) -> Counter[str]:
        return Counter(kind for each in self.episodes for kind, _ in each.violations)

    @property
    def operations(self) -> dict[str, Counter[str]]:
        total: dict[str, Counter[str]] = {}
        for episode in self.episodes:
            for kind, verdicts in episode.operations.items():
                total.setdefault(kind, Counter()).update(verdicts)
        return total

    @property
    def reads(self) -> int:
        told = self.counted("reads")
        return told.total() - told["missed"]  # which a refused append brought

    @property
    def asked(self) -> int:
        """Operations that clients wanted, appends and reads; a batch is one, however often it was tried."""
        return self.reads + sum(verdicts.total() for verdicts in self.operations.values())

    def counted(self, field: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for episode in self.episodes:
            total.update(getattr(episode, field))
        return total

    @property
    def recoveries(self) -> dict[str, list[float]]:
        """Seconds, by fault; of two at once, under both."""
        total: dict[str, list[float]] = {}
        for episode in self.episodes:
            for recovery in episode.recoveries:
                for name in recovery.after:
                    total.setdefault(name, []).append(recovery.seconds)
        return total


def _machine() -> dict[str, str]:
    return {
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def write_json(made: Report, path: Path) -> None:
    path.write_text(json.dumps(as_json(made), indent=1) + "\n")


def as_json(made: Report) -> dict[str, Any]:
    return {
        "command": made.command,
        "date": made.date,
        "machine": made.machine,
        "seed": made.seed,
        "asked": made.asked,
        "operations": made.operations,
        "answers": made.counted("answers"),
        "reads": made.counted("reads"),
        "faults": made.counted("faults"),
        "events": sum(each.events for each in made.episodes),
        "quarantined": sum(each.quarantined for each in made.episodes),
        "recovery_s": {name: _quantiles(seconds) for name, seconds in made.recoveries.items()},
        "rest_s": [each.rested_s for each in made.episodes],
        "violations": {**dict.fromkeys(HEADLINES, 0), **made.violations},
        "episodes": [
            {
                "seed": each.seed, "seconds": each.seconds, "settings": each.settings, "folder": each.folder,
                "violations": each.violations, "told": each.told,
            }
            for each in made.episodes
        ],
    }  # fmt: skip


def episode(result: Result, console: Console) -> None:
    """A line for each; the violations, and how to see them again."""
    total = sum(sum(verdicts.values()) for verdicts in result.operations.values())
    rest = "never" if result.rested_s is None else f"{result.rested_s:.1f} s"
    slowest = max(result.recoveries, key=lambda each: each.seconds, default=Recovery(0, (), 0))
    console.print(
        f"seed {result.seed}: {result.seconds:.0f} s, {total} operations, {result.events} events, "
        f"{sum(result.reads.values())} reads, {sum(result.faults.values())} faults, "
        f"slowest recovery {slowest.seconds:.1f} s (without a CPU {slowest.starved_s:.1f} s), "
        f"q = c after {rest} ({result.starved_s:.1f} s), {len(result.violations)} violations",
        highlight=False,
    )
    for told in result.told:
        if "longest" in told:
            console.print(f"  {told}", highlight=False)
    _violations(result, console)


def _violations(result: Result, console: Console) -> None:
    for kind, told in result.violations[:VIOLATIONS_TOLD_MAX]:
        console.print(Text(f"  {kind}: {told}", "red"))
    if result.violations:
        if len(result.violations) > VIOLATIONS_TOLD_MAX:
            console.print(f"  … and {len(result.violations) - VIOLATIONS_TOLD_MAX} more")
        if result.folder is not None:
            console.print(f"  all of it is in {result.folder}", highlight=False)


def show(made: Report, console: Console) -> None:
    """The run in tables."""
    console.print(Text(made.command, "bold"), made.date)
    for name, value in made.machine.items():
        console.print(f"{name}: {value}", highlight=False)
    console.print(_operations(made))
    console.print(_counts("answers to appends", made.counted("answers")))
    console.print(_counts("reads", made.counted("reads")))
    console.print(_recoveries(made))
    console.print(
        f"{made.asked} operations: {made.asked - made.reads} appends, {made.reads} reads; "
        f"{made.counted('faults').total()} faults, {sum(each.events for each in made.episodes)} events",
        style="bold", highlight=False,
    )  # fmt: skip
    counts = {**dict.fromkeys(HEADLINES, 0), **made.violations}
    console.print("  ".join(f"{kind} {count}" for kind, count in counts.items()), style="bold")
    bad = next((each for each in made.episodes if each.violations), None)
    if bad is not None:
        words = made.command.split(" --seed")[0].split(" --minutes")[0]
        console.print(
            f"again: {words} --seed {bad.seed} --minutes {max(bad.seconds / 60, 0.1):.1f}", highlight=False
        )


def _operations(made: Report) -> Table:
    table = _table("operations", *(each.value for each in Verdict))
    total: Counter[str] = Counter()
    for kind, verdicts in sorted(made.operations.items()):
        table.add_row(kind, *(str(verdicts[each.value]) for each in Verdict))
        total.update(verdicts)
    table.add_row("all", *(str(total[each.value]) for each in Verdict))
    return table


def _counts(title: str, counted: Counter[str]) -> Table:
    table = _table(title, "times")
    for name, count in counted.most_common():
        table.add_row(name, str(count))
    return table


def _recoveries(made: Report) -> Table:
    table = _table("faults", "times", "recovery p50 s", "max s")
    counted, recoveries = made.counted("faults"), made.recoveries
    for name in sorted(counted.keys() | recoveries.keys()):
        quantiles = _quantiles(recoveries.get(name, []))
        table.add_row(name, str(counted[name]), *(f"{each:.2f}" for each in quantiles.values()))
    every = [each.seconds for episode in made.episodes for each in episode.recoveries]
    table.add_row("all", str(sum(counted.values())), *(f"{each:.2f}" for each in _quantiles(every).values()))
    return table


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"p50": 0.0, "max": 0.0}
    return {"p50": round(statistics.median(seconds), 3), "max": round(max(seconds), 3)}


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def bad(name: str, result: Result, console: Console) -> None:
    """What became of one known-bad build."""
    word = "caught" if result.violations else "NOT caught"
    console.print(f"{name}: {word} after {result.seconds:.0f} s (seed {result.seed})", highlight=False)
    _violations(result, console)


def bad_table(caught: Mapping[str, Result], console: Console) -> None:
    table = _table("known-bad build", "caught after s", "by")
    for name, result in caught.items():
        kinds = Counter(kind for kind, _ in result.violations)
        after = f"{result.seconds:.0f}" if result.violations else "never"
        by = " ".join(f"{kind}×{n}" for kind, n in kinds.items())
        table.add_row(f"{name}: {(BUILDS | GOOD)[name].what}", after, by)
    console.print(table)
