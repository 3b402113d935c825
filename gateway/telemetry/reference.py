"""The tables of docs/observability.md, from the tables in the code.

`python -m gateway.telemetry.reference docs/observability.md` brings the page up to date; a test holds it to
that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gateway.telemetry.log_events import LOG_EVENTS
from gateway.telemetry.metric_rows import METRICS

_PLACE = re.compile(r"(<!-- (?P<name>[a-z ]+): made by .*? -->\n).*?(<!-- end -->)", re.DOTALL)


def updated(page: str) -> str:
    """The page with its tables as they should be. Raises KeyError for a table that is not made."""
    tables = {"log events": _log_events(), "metrics": _metrics()}
    return _PLACE.sub(lambda place: place[1] + tables[place["name"]] + place[3], page)


def _log_events() -> str:
    rows = (
        (f"`{row.name}`", row.level, _code(row.fields), row.meaning, row.action)
        for row in LOG_EVENTS.values()
    )
    return _table(("event", "level", "fields", "meaning", "action"), rows)


def _metrics() -> str:
    rows = (
        (f"`{row.name}`", row.kind, _code(row.labels), row.meaning, row.watch) for row in METRICS.values()
    )
    return _table(("metric", "type", "labels", "meaning", "what to watch"), rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text()))
