"""Which indexes the statements on the outbox use, and how many pages they look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

from gateway.aliases import store
from gateway.log import postgres
from tests.bench import orders, stored
from tests.bench.stand import Stand

TIMEOUT_S = 60.0
BATCH = 64
IDENTITIES = 10_000
"""As if each of the newest events had come with an Idempotency-Key."""
_REMEMBER = """
INSERT INTO append_identity (tenant, identity, p, seq, count, digest)
SELECT o.tenant, o.digest, o.p, o.seq, 1, o.digest FROM partition_log l JOIN outbox o ON o.p = l.p
WHERE o.seq > l.seq - $1::bigint
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """`pages` that it looked at, in memory or not; for how many `rows`."""

    indexes: tuple[str, ...]
    pages: int
    rows: int
    ms: float


async def look(stand: Stand, template: str, streams: int) -> dict[str, Plan]:
    """Each statement once for what it is asked usually, of streams that were touched least of late."""
    async with stand.database(template) as url:
        connection = await postgres.connect(url, TIMEOUT_S)
        try:
            await connection.execute(_REMEMBER, IDENTITIES)
            await connection.execute("ANALYZE append_identity")
            asked = await _asked(connection, streams)
            return {name: await _plan(connection, sql, args) for name, (sql, args) in asked.items()}
        finally:
            await connection.close()


async def _asked(connection: Any, streams: int) -> dict[str, tuple[str, tuple[Any, ...]]]:
    row = await connection.fetchrow("SELECT tenant, p, seq, id FROM outbox WHERE seq = $1", streams // 2)
    tenant, p, seq, event = row
    keys = [stored.key(number) for number in range(0, streams, max(1, streams // BATCH))][:BATCH]
    stream = (tenant, orders.TYPE, keys[0])
    new = UUID("01890000-0000-7000-8000-000000000000")
    first, last = await connection.fetchrow("SELECT min(seq) - 1, max(seq) FROM append_identity")
    identity = await connection.fetchval("SELECT identity FROM append_identity WHERE seq = $1", last)
    many = [tenant] * len(keys)
    of_log: dict[str, tuple[Any, ...]] = {
        "heads": (many, [orders.TYPE] * len(keys), keys),
        "page_asc": (*stream, 1, 1000, 1000, 2**20),
        "page_desc": (*stream, 1, 1000, 1, 2**20),
        "stream_asc": (*stream, 1, 1000, 1000, 2**20),
        "stream_desc": (*stream, 1, 1000, 1, 2**20),
        "version_at": (*stream, 4_000_000_000_000),
        "event": (tenant, event),
        "confirm": (p, list(range(seq, seq + BATCH))),
        "receipt": (p, seq, seq),
        "receipt_by_identity": (tenant.hex, identity, event.hex),
        "placed": (p, seq, seq + BATCH),
        "roll": (p, seq, seq + BATCH, BATCH),
        "look_up_identities": (
            p,
            _array(many),
            b"x" * 32 * len(keys),
            _array(many),
            _array([new] * len(keys)),
        ),
        "identities": (p, first, last, 1000),
        "outbox_page": (p, seq, 1000, [tenant], None, None, 100, 10**6, False, None, None, None),
        "outbox_end": (p,),
    }
    of_names: dict[str, tuple[Any, ...]] = {
        "created": (tenant, seq, [orders.TYPE], 100),
        "begun": ([tenant], [seq]),
        "unapplied": (tenant, 0, 100),
    }
    return {name: (postgres.SQL[name], args) for name, args in of_log.items()} | {
        f"names: {name}": (store.statement(name), args) for name, args in of_names.items()
    }


def _array(column: list[UUID]) -> str:
    """As `identities.look_up` sends it."""
    return "{" + ",".join(map(str, column)) + "}"


async def _plan(connection: Any, sql: str, args: tuple[Any, ...]) -> Plan:
    """Of the second run: the first one fills the catalog's caches."""
    for _ in range(2):
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args)
    explained = json.loads(told)[0]
    nodes = list(_nodes(explained["Plan"]))
    return Plan(
        indexes=tuple(sorted({node["Index Name"] for node in nodes if "Index Name" in node})),
        pages=explained["Plan"]["Shared Hit Blocks"] + explained["Plan"]["Shared Read Blocks"],
        rows=explained["Plan"]["Actual Rows"],
        ms=explained["Execution Time"],
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def show(plans: dict[str, Plan], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("statement", no_wrap=True)
    for name in ("rows", "pages", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("indexes")
    for name, plan in plans.items():
        table.add_row(name, f"{plan.rows:.0f}", str(plan.pages), f"{plan.ms:.2f}", ", ".join(plan.indexes))
    console.print(table)
