"""Pictures of a report: SVG files, which docs/benchmarks.md shows.

    python -m tests.bench --json report.json
    python -m tests.bench.plots report.json docs/benchmarks

Needs the extra `bench`. A picture whose rows the report does not have is left as it is. Of several rounds the
one with the median rate counts, as in the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench.report import PROCESSES

Row = Mapping[str, Any]
Rows = Mapping[str, Row]
WIDTH_IN, HEIGHT_IN = 8.2, 4.2
"""Of 72 points each."""
STYLE: Any = {
    "axes.axisbelow": True, "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False,
    "font.family": "sans-serif", "grid.color": "#dddddd", "legend.frameon": False, "lines.marker": "o",
    "lines.markersize": 4, "svg.fonttype": "none", "svg.hashsalt": "sluice",
}  # fmt: skip
"""Text stays text, and the same report makes the same file."""
BY_CONNECTIONS = {
    "appends": (
        "append/streams", "append/hot", "append/previous_length", "append/idempotency_key",
        "two_workers/streams", "two_workers/hot",
    ),
    "reads": ("read/state", "read/state_1000", "read/events", "mixed/80_20"),
}  # fmt: skip
SHARES = (
    "append/streams", "append/hot", "append/previous_length", "append/idempotency_key", "append/4k",
    "mixed/80_20", "read/state", "read/state_1000", "read/events", "webhook/streams", "floor/http",
)  # fmt: skip
PEERS = ("append/previous_length", "peers/message-db", "peers/emmett", "peers/eventsourcing")


def draw(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """The files that were written."""
    rows = _median_rows(report["rows"])
    when = str(report["date"])[:10]
    pictures: dict[str, Callable[[Axes], bool]] = {
        "appends": lambda axes: _by_connections(axes, rows, "appends", _rate, "requests a second"),
        "appends-p99": lambda axes: _by_connections(axes, rows, "appends", _p99, "p99, ms"),
        "reads": lambda axes: _by_connections(axes, rows, "reads", _rate, "requests a second"),
        "cpu": lambda axes: _shares(axes, rows, "CPU for one request, µs, by process"),
        "growth": lambda axes: _growth(axes, rows, "a second, beside what is stored"),
        "peers": lambda axes: _peers(axes, rows, "appends a second, each at the version it expects"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, picture in pictures.items():
            figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
            if picture(axes := figure.subplots()):
                figure.suptitle(f"{name.replace('-', ', ')} ({when})", size="medium")
                axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, fontsize="small")
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
                written.append(folder / f"{name}.svg")
    return written


def _median_rows(rows: Iterable[Row]) -> dict[str, Row]:
    rounds: dict[str, list[Row]] = {}
    for row in rows:
        if row["count"]:
            rounds.setdefault(row["name"], []).append(row)
    return {name: sorted(each, key=lambda row: row["per_s"])[len(each) // 2] for name, each in rounds.items()}


def _rate(row: Row) -> float:
    return float(row["per_s"])


def _p99(row: Row) -> float:
    return float(row["latency_ms"]["p99"])


def _by_connections(axes: Axes, rows: Rows, group: str, figure: Callable[[Row], float], label: str) -> bool:
    """Whether there is anything to show; so below."""
    found = {kind: counts for kind in BY_CONNECTIONS[group] if (counts := _counts(rows, kind))}
    for kind, counts in found.items():
        axes.plot([str(n) for n in counts], [figure(rows[f"{kind}/{n}"]) for n in counts], label=kind)
    axes.set_xlabel("connections")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    return bool(found)


def _shares(axes: Axes, rows: Rows, label: str) -> bool:
    there = [(kind, _usual(rows, kind)) for kind in reversed(SHARES)]  # from below
    found = [(kind, row) for kind, row in there if row is not None]
    kinds, lefts = [kind for kind, _ in found], [0.0] * len(found)
    for process in PROCESSES:
        shares = [row["cpu_us"].get(process, 0.0) for _, row in found]
        axes.barh(kinds, shares, left=lefts, label=process)
        lefts = [left + share for left, share in zip(lefts, shares, strict=True)]
    axes.set_xlabel(label, loc="left")
    axes.grid(axis="y", visible=False)
    return bool(found)


def _growth(axes: Axes, rows: Rows, label: str) -> bool:
    """Of growth/stored_N/WHAT/CONNECTIONS a group of bars for each WHAT, a bar for each N."""
    found: dict[int, dict[str, float]] = {}
    for name, row in rows.items():
        group, _, rest = name.partition("/stored_")
        if group == "growth" and rest:
            stored, what, _ = rest.split("/")
            found.setdefault(int(stored), {})[what] = _rate(row)
    _bars(axes, {f"{stored:,} events": each for stored, each in sorted(found.items())}, label)
    return bool(found)


def _peers(axes: Axes, rows: Rows, label: str) -> bool:
    counts = sorted({count for kind in PEERS[1:] for count in _counts(rows, kind)})
    bars = {}
    for kind, name in zip(PEERS, ("Sluice", "message-db", "Emmett", "eventsourcing"), strict=True):
        there = {n: rows.get(f"{kind}/{n}") for n in counts}
        bars[name] = {f"{n} connections": _rate(row) for n, row in there.items() if row is not None}
    _bars(axes, bars, label)
    return bool(counts)


def _bars(axes: Axes, series: Mapping[str, Mapping[str, float]], label: str) -> None:
    """Groups side by side, in each of them a bar of each series that has one."""
    groups = list(dict.fromkeys(group for each in series.values() for group in each))
    width = 0.8 / max(1, len(series))
    for number, (name, each) in enumerate(series.items()):
        left = (number - (len(series) - 1) / 2) * width
        places = [groups.index(group) + left for group in each]
        axes.bar_label(axes.bar(places, list(each.values()), width, label=name), fmt="{:,.0f}", size="small")
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    axes.grid(axis="x", visible=False)


def _counts(rows: Rows, kind: str) -> list[int]:
    ends = (name.rpartition("/") for name in rows)
    return [int(count) for before, _, count in ends if before == kind]


def _usual(rows: Rows, kind: str) -> Row | None:
    counts = _counts(rows, kind)
    return rows[f"{kind}/{min(counts, key=lambda count: abs(count - 64))}"] if counts else None


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plots")
    parser.add_argument("report", type=Path, help="what --json has written")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(argv)
    for path in draw(json.loads(given.report.read_text()), given.folder):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
