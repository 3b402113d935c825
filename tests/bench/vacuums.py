"""What vacuum does to the outbox, whose rows never change: at once, and once more when they are old.

A row has to be frozen before the transaction that wrote it is two thousand million transactions old. What is
not frozen when it is new is read and written later, with the whole table and all of it at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from tests.bench.stand import Stand

TIMEOUT_S = 3600.0
AGES = {"by default": 50_000_000, "freezing at once": 0}
"""Transactions until a row counts as old: vacuum_freeze_min_age."""


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Of all rows: how long it took, and the bytes that it added to the write-ahead log, a row."""

    seconds: float
    wal_bytes: float


async def measure(stand: Stand, template: str, rows: int) -> dict[str, Vacuum]:
    """`template` was not vacuumed yet."""
    found = {}
    for name, age in AGES.items():
        async with stand.database(template) as url:
            connection = await asyncpg.connect(url)
            try:
                await connection.execute(f"SET vacuum_freeze_min_age = {age}")
                for when, statement in (
                    ("when new", "VACUUM outbox"),
                    ("when old", "VACUUM (FREEZE) outbox"),
                ):
                    found[f"{name}, {when}"] = await _vacuum(connection, statement, rows)
            finally:
                await connection.close()
    return found


async def _vacuum(connection: Any, statement: str, rows: int) -> Vacuum:
    await connection.execute("CHECKPOINT")
    before, begun = await _log(connection), time.perf_counter()
    await connection.execute(statement, timeout=TIMEOUT_S)
    seconds = time.perf_counter() - begun
    return Vacuum(seconds=seconds, wal_bytes=(await _log(connection) - before) / rows)


async def _log(connection: Any) -> int:
    return int(await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def show(vacuums: dict[str, Vacuum], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("vacuum")
    for name in ("seconds", "log B a row"):
        table.add_column(name, justify="right")
    for name, each in vacuums.items():
        table.add_row(name, f"{each.seconds:.2f}", f"{each.wal_bytes:.1f}")
    console.print(table)
