"""What an event takes in Redis and in Postgres, against its payload: by kind of key, column and index.

    python -m tests.bench.memory [--events 100000] [--json FILE]

Appended over HTTP, in two shapes: streams of 100 events each, and half as many events, each a stream of its
own. Payloads are of 300 bytes. In Redis' own reckoning (MEMORY USAGE) a key's name and its place among the
keys are part of it. The journal holds what was sequenced in the last SLUICE_JOURNAL_RETENTION_S, identities
the last SLUICE_IDENTITY_WINDOW or two, so neither grows with what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from gateway.http.api.bulk import LINES_MAX
from tests.bench import bulk, orders
from tests.bench.machine import describe
from tests.bench.stand import Stand, open_stand

EVENTS_A_STREAM = 100
TUPLE_HEADER_BYTES = 24
"""23, aligned; the bitmap of what is NULL is beyond them."""
LINE_POINTER_BYTES = 4
KINDS = {"s": "streams", "j": "journal", "i0": "identities", "i1": "identities", "h": "heads"}
"""By the part of a key's name after its epoch (gateway/log/redis/keys.py)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is stored when it is measured."""

    streams: int
    events_a_stream: int

    @property
    def events(self) -> int:
        return self.streams * self.events_a_stream

    @property
    def name(self) -> str:
        return f"{self.streams:,} streams of {self.events_a_stream}"


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes an event, by what takes them. Of `columns` the mean of the values; the table's pages hold headers
    and free space beside them."""

    events: int
    payload: float
    redis: dict[str, float]
    redis_used: float
    postgres: dict[str, float]
    columns: dict[str, float]

    @property
    def in_redis(self) -> float:
        """Of what lasts: streams and their heads."""
        return self.redis["streams"] + self.redis["heads"]

    @property
    def in_postgres(self) -> float:
        return sum(self.postgres.values())


def shapes(events: int) -> list[Shape]:
    return [Shape(events // EVENTS_A_STREAM, EVENTS_A_STREAM), Shape(events // 2, 1)]


async def measure(stand: Stand, shape: Shape) -> Taken:
    """Raises RuntimeError when not all could be appended."""
    keys = orders.keys(shape.streams)
    async with stand.gateway() as served, Redis.from_url(stand.servers.redis_url) as redis:
        before = (await redis.info("memory"))["used_memory"]
        async with bulk.client(served, stand) as client:
            for at in range(0, shape.events, LINES_MAX):
                # Each request begins with the first key: all grow alike where their number divides LINES_MAX.
                await bulk.all_appended(client, min(LINES_MAX, shape.events - at), keys)
        used = (await redis.info("memory"))["used_memory"] - before
        in_redis = await _redis(redis)
        in_postgres, columns = await _postgres(served.postgres_url)
    return Taken(
        events=shape.events,
        payload=len(orders.DATA.encode()),
        redis=_each(in_redis, shape.events),
        redis_used=used / shape.events,
        postgres=_each(in_postgres, shape.events),
        columns=columns,
    )


async def _redis(redis: Redis) -> dict[str, int]:
    taken: dict[str, int] = defaultdict(int)
    async for key in redis.scan_iter(match="sluice:1:*", count=1000):
        words = key.decode().split(":")  # sluice:1:INSTANCE:{p}:meta, or …:EPOCH:KIND
        kind = KINDS.get(words[5], "other") if len(words) > 5 else "other"
        taken[kind] += await redis.memory_usage(key, samples=0) or 0
    return dict(taken)


async def _postgres(url: str) -> tuple[dict[str, int], dict[str, float]]:
    """Bytes of the table and each index; mean bytes of each column."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE outbox")
        sizes = {"table": await connection.fetchval("SELECT pg_table_size('outbox')")}
        for name, definition, size in await connection.fetch(
            "SELECT relname, pg_get_indexdef(indexrelid), pg_relation_size(indexrelid) FROM pg_index "
            "JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = 'outbox'::regclass ORDER BY 3 DESC"
        ):
            sizes[f"{name} {definition.partition('btree ')[2]}"] = size
        names = await connection.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0 ORDER BY 1"
        )
        means = ", ".join(f"coalesce(avg(pg_column_size({name}))::float8, 0)" for (name,) in names)
        found = await connection.fetchrow(f"SELECT {means} FROM outbox")
    finally:
        await connection.close()
    return sizes, {name: mean for (name,), mean in zip(names, found, strict=True)}


def _each(taken: dict[str, int], events: int) -> dict[str, float]:
    return {name: size / events for name, size in taken.items()}


def show(name: str, taken: Taken, console: Console) -> None:
    table = Table(title=f"{name}: bytes an event", title_justify="left", box=None, header_style="bold")
    table.add_column("")
    for heading in ("bytes", "times the payload"):
        table.add_column(heading, justify="right")
    parts: list[tuple[str, float]] = [
        ("payload", taken.payload),
        *((f"Redis: {part}", size) for part, size in sorted(taken.redis.items(), key=lambda each: -each[1])),
        ("Redis: streams and heads together", taken.in_redis),
        ("Redis: all that it uses more than when empty", taken.redis_used),
        *((f"Postgres: {part}", size) for part, size in taken.postgres.items()),
        ("Postgres: all", taken.in_postgres),
    ]
    for part, size in parts:
        table.add_row(part, f"{size:.0f}", f"{size / taken.payload:.2f}")
    console.print(table)
    values = sum(taken.columns.values())
    told = ", ".join(f"{column} {size:.0f}" for column, size in taken.columns.items() if size)
    console.print(
        f"Columns: {told}; together {values:.0f}, with a header of {TUPLE_HEADER_BYTES} and a pointer of "
        f"{LINE_POINTER_BYTES}: {values + TUPLE_HEADER_BYTES + LINE_POINTER_BYTES:.0f}.\n",
        highlight=False,
    )


async def _run(events: int) -> tuple[dict[str, str], dict[str, Taken]]:
    async with open_stand(1) as stand:
        machine = await describe(stand.servers)
        return machine, {shape.name: await measure(stand, shape) for shape in shapes(events)}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="a multiple of 100 (default: 100000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    given = parser.parse_args(argv)
    if given.events < EVENTS_A_STREAM or given.events % EVENTS_A_STREAM:
        parser.error("--events is a multiple of 100")
    machine, taken = asyncio.run(_run(given.events))
    command = shlex.join(["python", "-m", "tests.bench.memory", *argv])
    date = datetime.now(UTC).isoformat(timespec="seconds")
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(f"{command} {date}")
    for name, value in machine.items():
        console.print(f"{name}: {value}")
    for name, each in taken.items():
        show(name, each, console)
    if given.json:
        told: dict[str, Any] = {"command": command, "date": date, "machine": machine}
        told["taken"] = {name: asdict(each) for name, each in taken.items()}
        given.json.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
