"""Known-bad builds of what keeps lists and projections, to prove that the campaign finds what it looks for.

python -m tests.following.bad NAME serve|relay
"""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from typing import Any

from tests.support.bad_builds import Build, argv_of, edit, run


def _rows_apart() -> None:
    from gateway.follow import commit, worker

    edit(commit, "commit", ", conn.transaction():", ":")
    worker.commit = commit.commit
    whole = commit.put

    async def interrupted(*args: Any) -> None:
        if random.random() < 0.05:
            os._exit(9)
        await whole(*args)

    commit.put = interrupted


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
    from gateway.follow import commit

    commit.statement = spoilt  # type: ignore[assignment]


def _serves_early() -> None:
    from gateway.follow import commit, worker
    from gateway.follow.events import Events

    edit(Events, "__init__", "self._events_max = events_max", "self._events_max = 200")
    edit(
        worker.Worker,
        "_would_serve",
        "page.reached.seq >= furthest and (page.caught_up",
        "page.reached.seq >= 0 and (True",
    )
    edit(commit, "_serve", 'row["seq"] > reached.seq', "False")


def _half_an_append() -> None:
    from gateway.follow import events

    events.APPEND_EVENTS_MAX = 1  # type: ignore[misc]
    events.PAGE_EVENTS = 7  # type: ignore[misc]
    edit(events.Events, "__init__", "self._events_max = events_max", "self._events_max = 7")
    edit(events.Events, "page", "whole = _without_last(found)", "whole = found")


def _across_a_gap() -> None:
    from gateway.follow import recent

    edit(recent._Run, "add", "before is None or before.seq + events != self._end.seq", "before is None")

    def behind(run: recent._Run, place: Any, _events_max: int) -> Any:
        commits = [each for each in run._commits.values() if each.end.seq > place.seq]
        return [append for each in commits for append in each.appends if append.first_seq > place.seq]

    recent._Run.behind = behind  # type: ignore[method-assign]


def _ahead_unwritten() -> None:
    from gateway.follow import projections

    edit(
        projections.ProjectionOutput,
        "fold",
        "if self._open.is_begun else OpenRows()",
        "if False else OpenRows()",
    )


BUILDS: dict[str, Build] = {
    "rows-apart": Build("writes places and rows apart", _rows_apart),
    "no-swap": Build("moves a place whoever has moved it, and takes what another holds", _no_swap),
    "serves-early": Build("serves a build before it has caught up", _serves_early),
    "half-an-append": Build("ends a page within an append", _half_an_append),
    "across-a-gap": Build("takes what its gateway commits for all that is committed", _across_a_gap),
    "ahead-unwritten": Build("moves a place over what was folded ahead, without its rows", _ahead_unwritten),
}


argv = partial(argv_of, "tests.following.bad")


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
