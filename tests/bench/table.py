"""The outbox and the partitions' rows in Postgres, beside a million stored events: what they cost, and why.

    python -m tests.bench.table [--rows 1000000] [--commits 1000] [--rounds 3] [--seconds 5] [--only PART]

layouts   commits of 64 rows, one after another, to streams at random: as migrated, and with one thing changed
plans     which indexes each statement on the outbox uses, and how many pages it looks at (plans.py)
vacuums   what vacuum does to the outbox (vacuums.py)
swaps     the row of a partition, which every commit updates (swaps.py)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.log import postgres
from gateway.partitions import partition_of
from tests.bench import plans, stored, swaps, vacuums
from tests.bench.floor import BATCH, CommitCalls, appends
from tests.bench.machine import describe
from tests.bench.measured import quantiles_ms, shares_us
from tests.bench.stand import TENANT, Stand, open_stand

PARTS = ("layouts", "plans", "vacuums", "swaps")
EVENTS_A_STREAM = 10
SPAN = 50
TIMEOUT_S = 60.0
NATURAL_KEY = "outbox_tenant_aggregate_type_aggregate_id_version_key"
LAYOUTS = {
    "as migrated": "SELECT",
    "without the beginnings of aggregates": "DROP INDEX outbox_created",
    "without the primary key": "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey",
    "without (p, seq)": "ALTER TABLE outbox DROP CONSTRAINT outbox_p_seq_key",
    "without the natural key": f"ALTER TABLE outbox DROP CONSTRAINT {NATURAL_KEY}",
    "natural key of an MD5 in place of names": (
        f"ALTER TABLE outbox DROP CONSTRAINT {NATURAL_KEY};"
        "CREATE UNIQUE INDEX outbox_digest ON outbox "
        "((md5(tenant::text || aggregate_type || '/' || aggregate_id)::uuid), version)"
    ),
    "natural key with a third of its pages free": (
        f"ALTER INDEX {NATURAL_KEY} SET (fillfactor = 67); REINDEX INDEX {NATURAL_KEY}"
    ),
    "without any index": (
        "DROP INDEX outbox_created, outbox_content, outbox_context; "
        "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, "
        f"DROP CONSTRAINT outbox_p_seq_key, DROP CONSTRAINT {NATURAL_KEY}"
    ),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a row: its rate, the CPU that Postgres takes for it, the bytes that it adds to the write-ahead log
    and to the table's indexes when it is inserted, and the bytes of all indexes a row that was there."""

    per_s: float
    p99_ms: float
    cpu_us: float
    wal_bytes: float
    index_bytes_added: float
    index_bytes: float


async def layouts(stand: Stand, template: str, given: argparse.Namespace) -> dict[str, list[Cost]]:
    """A cost a round, rounds over all layouts in turn."""
    found: dict[str, list[Cost]] = {name: [] for name in given.layout}
    for _ in range(given.rounds):
        for name, costs in found.items():
            costs.append(await _cost(stand, template, given.rows, given.commits, LAYOUTS[name]))
    return found


async def _cost(stand: Stand, template: str, rows: int, commits: int, sql: str) -> Cost:
    keys = [stored.key(number) for number in range(rows // EVENTS_A_STREAM)]
    async with stand.database(template) as url:
        connection = await postgres.connect(url, TIMEOUT_S)
        try:
            await connection.execute(sql)
            await connection.execute("CHECKPOINT")
            tenant = await connection.fetchval("SELECT id FROM tenant WHERE name = $1", TENANT)
            p = partition_of(tenant.bytes, await connection.fetchval("SELECT partitions FROM instance"))
            row = postgres.PartitionRow(*await connection.fetchrow(postgres.SQL["partition"], p))
            source = appends(keys, tenant.bytes)
            calls = CommitCalls(connection, p, row, source, length=EVENTS_A_STREAM)
            before = await _standing(connection)
            cpu = stand.cpu([])
            cpu.start()
            taken_s = await _commit(calls, commits)
            used_s = cpu.stop()
            wal, size = (now - was for now, was in zip(await _standing(connection), before, strict=True))
        finally:
            await connection.close()
    added = commits * BATCH
    return Cost(
        per_s=added / sum(taken_s),
        p99_ms=quantiles_ms(taken_s)["p99"],
        cpu_us=shares_us(used_s, added).get("postgres", 0.0),
        wal_bytes=wal / added,
        index_bytes_added=size / added,
        index_bytes=before[1] / rows,
    )


async def _commit(calls: CommitCalls, commits: int) -> list[float]:
    """How long each took, in seconds. They are made ready between the spans that are measured."""
    taken_s: list[float] = []
    while len(taken_s) < commits:
        for call in [calls.ready() for _ in range(min(SPAN, commits - len(taken_s)))]:
            begun = time.perf_counter()
            await call()
            taken_s.append(time.perf_counter() - begun)
    return taken_s


async def _standing(connection: Any) -> tuple[int, int]:
    """Bytes of write-ahead log and of the outbox' indexes so far."""
    row = await connection.fetchrow("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, pg_indexes_size('outbox')")
    return int(row[0]), int(row[1])


def _show_layouts(rounds: dict[str, list[Cost]], console: Console) -> None:
    """The median of each figure."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("commits of 64 rows")
    for name in (
        "rows/s",
        "p99 ms",
        "CPU µs a row",
        "log B a row",
        "index B a new row",
        "index B a row before",
    ):
        table.add_column(name, justify="right")
    for layout, costs in rounds.items():
        per_s, p99_ms, *others = (median(figures) for figures in zip(*map(astuple, costs), strict=True))
        table.add_row(layout, f"{per_s:,.0f}", f"{p99_ms:.1f}", *(f"{figure:.1f}" for figure in others))
    console.print(table)


async def _run(given: argparse.Namespace, told: dict[str, Any], console: Console) -> None:
    async with open_stand(1) as stand:
        told["machine"] = await describe(stand.servers)
        for name, value in told["machine"].items():
            console.print(f"{name}: {value}")
        streams = given.rows // EVENTS_A_STREAM
        template = await stand.template("stored", lambda url: stored.fill(url, given.rows, streams))
        if "layouts" in given.only:
            told["layouts"] = await layouts(stand, template, given)
            _show_layouts(told["layouts"], console)
        if "plans" in given.only:
            told["plans"] = await plans.look(stand, template, streams)
            plans.show(told["plans"], console)
        if "vacuums" in given.only:
            new = await stand.template(
                "unvacuumed", lambda url: stored.fill(url, given.rows, streams, vacuum=False)
            )
            told["vacuums"] = await vacuums.measure(stand, new, given.rows)
            vacuums.show(told["vacuums"], console)
        if "swaps" in given.only:
            told["swaps"] = await swaps.measure(stand, given.seconds)
            swaps.show(told["swaps"], console)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.table")
    parser.add_argument("--rows", type=int, default=1_000_000, help="stored before (default: 1000000)")
    parser.add_argument("--commits", type=int, default=1000, help="for each layout (default: 1000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of swaps, three times (default: 5)")
    parser.add_argument("--layout", action="append", choices=LAYOUTS, help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="over all layouts (default: 3)")
    parser.add_argument("--only", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    given = parser.parse_args(argv)
    given.only, given.layout = given.only or PARTS, given.layout or list(LAYOUTS)
    if given.rows < EVENTS_A_STREAM:
        parser.error(f"--rows: at least {EVENTS_A_STREAM}")
    command = shlex.join(["python", "-m", "tests.bench.table", *argv])
    told: dict[str, Any] = {"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(f"{command} {told['date']}")
    asyncio.run(_run(given, told, console))
    if given.json:
        given.json.write_text(json.dumps(told, default=_plain, indent=1, ensure_ascii=False) + "\n")


def _plain(value: object) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1:])
