"""A fold of history by a definition that is not deployed: what its rows would be, without storing any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from gateway.follow.events import Events, Page
from gateway.follow.model import MISFITS_SHOWN, Build, Changes, Misfit, Row, TooMuch
from gateway.follow.output import Output
from gateway.follow.outputs import output_of
from gateway.follow.row_cache import RowCache
from gateway.relay.outbox import Outbox
from gateway.relay.position import BEGINNING
from spec.model import Spec

ROWS_MAX: Final = 200_000
"""Rows that a trial holds: beyond them it ends, some hundred MB."""

_UNBOUNDED: Final = 2**62


@dataclass
class Trial:
    """`events` were folded, of `head` positions of the partition; `cut` says that there are more."""

    events: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    does_not_fit: int = 0
    misfits: list[Misfit] = field(default_factory=list)
    cut: bool = False


async def fold_trial(
    pool: asyncpg.Pool,
    outbox: Outbox,
    tenant: bytes,
    spec: Spec,
    kind: str,
    name: str,
    limit: int | None,
    on_progress: Callable[[int, int], None] = lambda done, whole: None,
) -> Trial:
    """Of at most `limit` events, in whole appends. `on_progress` takes positions. Raises PostgresTrouble."""
    p = outbox.partition(tenant)
    events = Events(pool, outbox)
    build = Build(0, tenant, kind, name, 0, b"", (), "building", False, p, BEGINNING, 0, 0, 0, b"[]", 0, None)
    output = output_of(build, spec, events, pool)
    assert output is not None
    trial, place = Trial(), BEGINNING
    cache = RowCache(pool, 0, _UNBOUNDED, empty=True)
    while True:
        page = await events.page(tenant, p, place, output.types)
        page = await _add(trial, output, page, cache)
        place = page.reached
        on_progress(place.seq, page.head)
        full = (limit is not None and trial.events >= limit) or len(trial.rows) > ROWS_MAX
        if page.caught_up or full:
            trial.cut = not page.caught_up
            return trial


async def _add(trial: Trial, output: Output, page: Page, cache: RowCache) -> Page:
    """Folds the page, or as many of its first appends as can be held at once."""
    while True:
        try:
            changes = await output.fold(page.events, page.reached, cache)
            break
        except TooMuch:
            page = page.first_half()
    _add_rows(trial, changes, cache)
    if changes.rest is not None:
        async for part in changes.rest:
            _add_rows(trial, part, cache)
    trial.events += len(page.events)
    return page


def _add_rows(trial: Trial, changes: Changes, cache: RowCache) -> None:
    cache.put({put.key: put.row for put in changes.puts})
    for put in changes.puts:
        if put.row.data is None:
            trial.rows.pop(put.key, None)
        else:
            trial.rows[put.key] = put.row
    trial.does_not_fit += changes.misfits
    trial.misfits = [*trial.misfits, *changes.last_misfits][-MISFITS_SHOWN:]
