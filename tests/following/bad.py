"""Known-bad builds of what keeps lists and projections, to prove that the campaign finds what it looks for.

python -m tests.following.bad NAME serve|relay
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from tests.outgoing.bad import Build, _edit


def _rows_apart() -> None:
    from gateway.follow import worker

    _edit(worker.Worker, "_commit", ", conn.transaction():", ":")
    whole = worker._put

    async def interrupted(*args: Any) -> None:
        if random.random() < 0.05:
            os._exit(9)
        await whole(*args)

    worker._put = interrupted


def _no_swap() -> None:
    from gateway.follow import database

    whole = database.statement

    def spoilt(name: str) -> str:
        text = whole(name)
        if name == "move":
            assert " AND moves = $2" in text
            return text.replace(" AND moves = $2", " AND $2::bigint >= 0")
        if name == "acquire":
            wanted = "(lease_until IS NULL OR lease_until < clock_timestamp())"
            assert wanted in text
            return text.replace(wanted, f"(owner IS DISTINCT FROM $1 OR {wanted})")
        if name == "held":
            return text.replace("AND owner = $2", "AND $2::text IS NOT NULL")
        return text

    database.statement = spoilt  # type: ignore[assignment]
    from gateway.follow import worker

    worker.statement = spoilt  # type: ignore[assignment]


def _serves_early() -> None:
    from gateway.follow.events import Events
    from gateway.follow.worker import Worker

    _edit(Events, "__init__", "self._events_max = events_max", "self._events_max = 200")
    _edit(
        Worker,
        "_would_serve",
        "page.reached.seq >= furthest and (page.caught_up",
        "page.reached.seq >= 0 and (True",
    )


def _half_an_append() -> None:
    from gateway.follow import events

    events.APPEND_EVENTS_MAX = 1  # type: ignore[misc]
    events.PAGE_EVENTS = 7  # type: ignore[misc]
    _edit(events.Events, "__init__", "self._events_max = events_max", "self._events_max = 7")
    _edit(events.Events, "page", "whole = _without_last(found)", "whole = found")


BUILDS: dict[str, Build] = {
    "rows-apart": Build("writes places and rows apart", _rows_apart),
    "no-swap": Build("moves a place whoever has moved it, and takes what another holds", _no_swap),
    "serves-early": Build("serves a build before it has caught up", _serves_early),
    "half-an-append": Build("ends a page within an append", _half_an_append),
}


def argv(name: str | None, command: str) -> tuple[str, ...]:
    """How to start one; without a name, the product."""
    if name is None:
        return (sys.executable, "-m", "gateway", command)
    return (sys.executable, "-m", "tests.following.bad", name, command)


def main(name: str, command: str) -> None:
    """Never returns normally: serves until it is ended."""
    BUILDS[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", command]
    sluice()


if __name__ == "__main__":
    main(*sys.argv[1:])
