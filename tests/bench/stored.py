"""Databases in which much is stored already, as if it had been appended."""

from __future__ import annotations

import hashlib
from uuid import UUID

import asyncpg

from gateway.partitions import partition_of
from tests.bench import orders
from tests.bench.stand import TENANT

FILL_TIMEOUT_S = 3600.0
# Keys are spread like random ones, and ids are in order, as real ones are.
_FILL = """
WITH place AS (
    UPDATE partition_log SET seq = $3, chain = repeat('0', 40) WHERE p = $2 RETURNING p
)
INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev, append_id, digest,
    aggregate_type, aggregate_id, type, actor_type, actor_id, payload)
SELECT place.p, n, (n - 1) / $6 + 1, now(),
    ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1,
    '01900000-0000-7000-8000-000000000001', 1,
    uuid_send(('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid), sha256(int8send(n)), $7,
    overlay(overlay(md5((n % $6)::text) PLACING '4' FROM 13) PLACING 'a' FROM 17)::uuid::text, $4, $8, $9, $5
FROM place, generate_series(1, $3) n
"""


async def fill(postgres_url: str, events: int, streams: int, *, vacuum: bool = True) -> None:
    """So many events of orders, to the streams by turns, before the gateway starts."""
    connection = await asyncpg.connect(postgres_url)
    try:
        tenant = await connection.fetchval("SELECT id FROM tenant WHERE name = $1", TENANT)
        p = partition_of(tenant.bytes, await connection.fetchval("SELECT partitions FROM instance"))
        data, actor = orders.DATA.encode(), orders.ACTOR
        of_all = (orders.TYPE, actor["type"], actor["id"])
        await connection.execute(
            _FILL, tenant, p, events, orders.EVENT, data, streams, *of_all, timeout=FILL_TIMEOUT_S
        )
        if vacuum:
            await connection.execute("VACUUM ANALYZE outbox", timeout=FILL_TIMEOUT_S)
    finally:
        await connection.close()


def key(number: int) -> str:
    """Of the stream with this number, from 0."""
    digits = hashlib.md5(str(number).encode()).hexdigest()
    return str(UUID(f"{digits[:12]}4{digits[13:16]}a{digits[17:]}"))
