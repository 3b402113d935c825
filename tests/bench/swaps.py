"""The row of a partition, which every commit updates: how much it grows, and what that costs.

Commits of one row each, as many as there can be, so that seconds stand for minutes: for a while; beside a
snapshot that is held open, as a backup or a long query holds one, so that no version of the row can be
cleared away; and after it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.log import postgres
from tests.bench import orders
from tests.bench.floor import CommitCalls, appends
from tests.bench.stand import Stand

TIMEOUT_S = 60.0
STREAMS = 1000
SPAN = 50
PAGE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Swaps:
    """Commits a second, in the first and in the last fifth of the time; the share of updates that touched no
    index; and pages of `partition_log` and its index at the end."""

    commits: int
    per_s_first: float
    per_s_last: float
    hot: float
    pages: int
    index_pages: int


async def measure(stand: Stand, seconds: float) -> dict[str, Swaps]:
    async with stand.database() as url:
        connection = await postgres.connect(url, TIMEOUT_S)
        other = await postgres.connect(url, TIMEOUT_S)
        try:
            row = postgres.PartitionRow(*await connection.fetchrow(postgres.SQL["partition"], 0))
            calls = CommitCalls(connection, 0, row, appends(orders.keys(STREAMS)), batch=1)
            alone = await _commit(connection, calls, seconds)
            async with other.transaction(isolation="repeatable_read"):
                await other.fetchval("SELECT count(*) FROM partition_log")
                beside = await _commit(connection, calls, seconds)
            return {
                "alone": alone,
                "beside an open snapshot": beside,
                "after it": await _commit(connection, calls, seconds),
            }
        finally:
            await connection.close()
            await other.close()


async def _commit(connection: Any, calls: CommitCalls, seconds: float) -> Swaps:
    taken: list[float] = []
    before = await _updates(connection)
    while sum(taken) < seconds:
        for call in [calls.ready() for _ in range(SPAN)]:
            begun = time.perf_counter()
            await call()
            taken.append(time.perf_counter() - begun)
    updates, hot = (now - was for now, was in zip(await _updates(connection), before, strict=True))
    sizes = await connection.fetchrow(
        "SELECT pg_relation_size('partition_log'), pg_relation_size('partition_log_pkey')"
    )
    return Swaps(
        commits=len(taken),
        per_s_first=_rate_until(taken, seconds / 5),
        per_s_last=_rate_until(taken[::-1], seconds / 5),
        hot=hot / updates,
        pages=sizes[0] // PAGE_BYTES,
        index_pages=sizes[1] // PAGE_BYTES,
    )


def _rate_until(taken: list[float], seconds: float) -> float:
    total = 0.0
    for count, each in enumerate(taken, 1):
        total += each
        if total >= seconds:
            return count / total
    return len(taken) / total


async def _updates(connection: Any) -> tuple[int, int]:
    """All and the heap-only ones, so far."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    row = await connection.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'partition_log'"
    )
    return row[0], row[1]


def show(swaps: dict[str, Swaps], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("commits of one row")
    for name in ("commits", "first fifth /s", "last fifth /s", "heap-only %", "pages", "index pages"):
        table.add_column(name, justify="right")
    for name, each in swaps.items():
        rates = (f"{each.commits:,}", f"{each.per_s_first:,.0f}", f"{each.per_s_last:,.0f}")
        table.add_row(name, *rates, f"{each.hot:.0%}", str(each.pages), str(each.index_pages))
    console.print(table)
