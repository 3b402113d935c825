"""The result of a run: a table for people, JSON to compare. Neither without command, date and machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.bench.measured import QUANTILES, Measured

PROCESSES = ("gateway", "relay", "redis", "postgres", "generator")
SHOWN_QUANTILES = tuple(name for name in QUANTILES if name != "max")
NO_FIGURE = "–"
HOLDERS = ("gateway", "relay", "redis", "postgres")
MANY_A_REQUEST = ("event", "line")
"""Units of which a request has many."""
UNEXPECTED_CHARACTERS_MAX = 600


@dataclass(frozen=True, slots=True)
class Row:
    """What a scenario came to in one round (from 1). `expected` are the statuses that its answers may have,
    none where nothing is asked over HTTP; `unit` says what was counted. `against` names the row that has what
    this one costs more than it, if there is one."""

    name: str
    unit: str
    round: int
    expected: tuple[int, ...]
    measured: Measured
    against: str = ""

    @property
    def failed(self) -> bool:
        return self.measured.unexpected is not None or not self.measured.count


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `date` is RFC 3339; `settings` are what was set otherwise than by default."""

    command: str
    date: str
    machine: dict[str, str]
    settings: dict[str, str]
    rows: list[Row]

    @property
    def failed(self) -> bool:
        return any(row.failed for row in self.rows)


def write_json(report: Report, path: Path) -> None:
    """Every row of every round, in the order in which they were measured."""
    rows = [_flat(row) for row in report.rows]
    path.write_text(json.dumps({**asdict(report), "rows": rows}, indent=1, ensure_ascii=False) + "\n")


def _flat(row: Row) -> dict[str, Any]:
    told = {name: value for name, value in asdict(row).items() if name != "measured"}
    return {**told, "per_s": row.measured.per_s, **asdict(row.measured)}


def show(report: Report, console: Console) -> None:
    """Of several rounds, the one with the median rate, and how far they lie apart."""
    console.print(Text(report.command, "bold"), report.date)
    for name, value in {**report.machine, **report.settings}.items():
        console.print(Text(f"{name}: {value}"))
    names = list(dict.fromkeys(row.name for row in report.rows))
    rounds = {name: [row for row in report.rows if row.name == name] for name in names}
    console.print(_table(rounds.values()))
    console.print("Latencies in ms, of a request (floor/sequence, floor/commit: of a call).")
    console.print("Closed loop, but for paced/….")
    console.print("CPU in µs a unit, children included; the generator runs on the same machine.")
    console.print("MB: what is held at the end.")
    for line in ratios(report.rows):
        console.print(line)
    if limit := _generator_limit(report.rows):
        console.print(
            f"A rate beyond {limit:,.0f} requests/s would be the generator's limit, not the server's."
        )
    for row in report.rows:
        if row.failed:
            _tell_failure(row, console)


def _table(rounds: Iterable[Sequence[Row]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scenario", no_wrap=True)
    rounds = list(rounds)
    relays = any("relay" in row.measured.cpu_us for rows in rounds for row in rows)
    left_out = () if relays else ("relay",)
    processes = [name for name in PROCESSES if name not in left_out]
    holders = [name for name in HOLDERS if name not in left_out]
    figures = [*(f"{name} µs" for name in processes), *(f"{name} MB" for name in holders)]
    for name in ("rate/s", "±%", *SHOWN_QUANTILES, *figures):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("errors", style="bold red", no_wrap=True)
    for rows in rounds:
        table.add_row(*_cells(rows, processes, holders))
    return table


def _cells(rows: Sequence[Row], processes: Sequence[str], holders: Sequence[str]) -> list[str]:
    ranked = sorted(rows, key=lambda row: row.measured.per_s)
    middle = ranked[len(ranked) // 2]
    measured = middle.measured
    rates = [row.measured.per_s for row in ranked]
    spread = (rates[-1] - rates[0]) / 2 / measured.per_s * 100 if len(rates) > 1 and measured.per_s else None
    return [
        middle.name,
        f"{measured.per_s:,.0f}",
        _figure(spread, 0),
        *(_figure(measured.latency_ms.get(name), 2) for name in SHOWN_QUANTILES),
        *(_figure(measured.cpu_us.get(name), 1) for name in processes),
        *(_figure(measured.memory_mb.get(name), 0) for name in holders),
        "; ".join(filter(None, map(_errors, rows))),
    ]


def ratios(rows: Sequence[Row]) -> Iterable[str]:
    """Of each row to the one that it is against: the median of the rounds, each taken by itself, since a
    machine drifts between them."""
    measured = {(row.name, row.round): row.measured for row in rows if not row.failed}
    for name, against in dict.fromkeys((row.name, row.against) for row in rows if row.against):
        pairs = [
            (measured[name, row.round], measured[against, row.round])
            for row in rows
            if row.name == name and {(name, row.round), (against, row.round)} <= measured.keys()
        ]
        if pairs:
            rate = median(one.per_s / other.per_s for one, other in pairs) - 1
            cpu = median(_whole_us(one) / (_whole_us(other) or 1) for one, other in pairs) - 1
            yield f"{name}: rate {rate:+.1%}, CPU of all servers {cpu:+.1%} against {against}"


def _whole_us(measured: Measured) -> float:
    return sum(measured.cpu_us.get(name, 0.0) for name in HOLDERS)


def _generator_limit(rows: Iterable[Row]) -> float | None:
    """Requests/s at which one core does nothing but generate, by the cheapest request of the run."""
    asked = [
        row.measured.cpu_us.get("generator")
        for row in rows
        if row.expected and row.unit not in MANY_A_REQUEST
    ]
    cheapest = min(filter(None, asked), default=None)
    return cheapest and 1e6 / cheapest


def _figure(value: float | None, digits: int) -> str:
    return NO_FIGURE if value is None else f"{value:.{digits}f}"


def _errors(row: Row) -> str:
    expected = set(map(str, row.expected))
    wrong = {status: count for status, count in row.measured.answers.items() if status not in expected}
    told = " ".join(f"{status}×{count}" for status, count in wrong.items())
    return told or ("nothing done" if row.failed else "")


def _tell_failure(row: Row, console: Console) -> None:
    why = (row.measured.unexpected or "nothing was completed")[:UNEXPECTED_CHARACTERS_MAX]
    console.print(Text(f"{row.name}, round {row.round}, first of them: {why}", "red"))
