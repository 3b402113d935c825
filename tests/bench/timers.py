"""What pending timers cost, and how late timers fire beside them.

    python -m tests.bench.timers [--pending 0,100000,1000000] [--per-s 1000] [--seconds 20]

For each number of pending timers, due in a year, a database and a gateway of its own. First nothing is due:
memory of the gateway, CPU of it and of Postgres. Then so many timers a second are due for so long, each of
which appends an order event to one of 1,000 aggregates: how much later than due Postgres stored the event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from tests.bench import orders
from tests.bench.stand import TENANT, Served, open_stand

FILL_TIMEOUT_S = 600.0
AHEAD_S = 3.0
"""From the look at the clock to the first due time: the rows are written meanwhile."""
BEHIND_S = 120.0
STREAMS = 1_000
_ADD = """
INSERT INTO schedule (id, tenant, seq, mark, due_at, emit, cancel_on, correlation_id)
SELECT gen_random_uuid(), t.id, 0, '\\x00000000', now() + ($3::float8 + n * $4::float8) * interval '1 second',
    convert_to(replace($5, 'KEY', ($6::text[])[n % cardinality($6::text[]) + 1]), 'UTF8'), '[]',
    gen_random_uuid()
FROM tenant t, generate_series(0, $2::int - 1) n WHERE t.name = $1
"""
_LATE = """
SELECT extract(epoch FROM o.stored_at - s.due_at)::float8 AS late_s
FROM schedule s JOIN outbox o ON o.id = s.fired_event AND o.tenant = s.tenant ORDER BY late_s
"""
YEAR_S = 365 * 86_400.0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.timers", description=__doc__.partition("\n")[0])
    parser.add_argument("--pending", type=_counts, default=(0, 100_000, 1_000_000), metavar="N,N,…")
    parser.add_argument("--per-s", type=int, default=1_000, help="due in each second (default: 1000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part (default: 20)")
    asked = parser.parse_args(argv)
    asyncio.run(_measure(asked.pending, asked.per_s, asked.seconds))
    return 0


async def _measure(pending: Sequence[int], per_s: int, seconds: float) -> None:
    async with open_stand(1) as stand:
        for count in pending:
            async with stand.database() as url:
                connection = await asyncpg.connect(url)
                try:
                    await _add(connection, count, YEAR_S, 0.001)
                    await connection.execute("VACUUM ANALYZE schedule", timeout=FILL_TIMEOUT_S)
                    await connection.execute("CHECKPOINT")
                    async with stand.restarted(url) as served:
                        await _one(served, connection, count, per_s, seconds)
                finally:
                    await connection.close()


async def _one(served: Served, connection: Any, count: int, per_s: int, seconds: float) -> None:
    await asyncio.sleep(2)  # what a start brings with it is over
    idle = await _used(served, asyncio.sleep(seconds))
    print(f"{count:,} pending, none due: {idle}", flush=True)
    due = int(per_s * seconds)
    await _add(connection, due, AHEAD_S, 1 / per_s)
    busy = await _used(served, _fired(connection, due))
    rows = await connection.fetch(_LATE)
    late_ms = [row["late_s"] * 1_000 for row in rows]
    told = ", ".join(f"{name} {late_ms[int((due - 1) * share)]:,.0f} ms" for name, share in QUANTILES.items())
    print(f"{count:,} pending, {per_s:,} due a second: late {told}; {busy}", flush=True)


QUANTILES = {"p50": 0.5, "p99": 0.99, "at most": 1.0}


async def _used(served: Served, meanwhile: Any) -> str:
    served.cpu.start()
    begun = time.perf_counter()
    await meanwhile
    elapsed_s = time.perf_counter() - begun
    used = ", ".join(f"{name} {100 * s / elapsed_s:.1f} %" for name, s in served.cpu.stop().items())
    held = ", ".join(f"{name} {mb:.0f} MB" for name, mb in served.cpu.memory_mb().items())
    return f"CPU of {used}; memory of {held}"


async def _fired(connection: Any, due: int) -> None:
    until = time.monotonic() + AHEAD_S + BEHIND_S + due
    while await connection.fetchval("SELECT count(*) FROM schedule WHERE state = 'fired'") < due:
        if time.monotonic() > until:
            raise RuntimeError("timers that are due do not fire")
        await asyncio.sleep(0.5)


async def _add(connection: Any, count: int, from_s: float, apart_s: float) -> None:
    emit = {"aggregate_type": orders.TYPE, "id": "KEY", "event_type": orders.EVENT}
    text = json.dumps(emit)[:-1] + f',"data":{orders.DATA}}}'
    keys = orders.keys(STREAMS)
    await connection.execute(_ADD, TENANT, count, from_s, apart_s, text, keys, timeout=FILL_TIMEOUT_S)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
