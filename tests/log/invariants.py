"""The promises of the append protocol, checked on what Postgres and Redis really hold.

Everything is computed again from the outbox; nothing of the gateway's memory is asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any
from uuid import UUID

import asyncpg
from redis.asyncio import Redis

from gateway.appends import pack_event, row_digest, salted, unpack_event
from gateway.events import Event, Stream
from gateway.log.entries import SequencedAppend, placed_from_journal, stream_entry
from gateway.log.epoch.chain import roll
from gateway.log.redis.keys import PartitionKeys, partition_keys
from tests.support.drive import Place, until

_ROWS = """
SELECT *, (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms
FROM outbox WHERE p = $1 ORDER BY seq
"""
_ENTRIES = "return redis.call('XRANGE', KEYS[1], '-', ARGV[1])"  # raw: a field may stand there twice
_USED = "SELECT * FROM partition_log l WHERE seq > 0 OR EXISTS (SELECT FROM outbox o WHERE o.p = l.p)"


async def check_invariants(place: Place, *, settles: bool = True) -> None:
    """Fails on the first promise that is broken. With `settles`, a running gateway has to bring every
    partition to q = c = seq within five seconds; without, all may be dead and Redis left behind."""
    connection = await asyncpg.connect(place.postgres_url)
    redis = place.client()
    try:
        instance = UUID(bytes=(await connection.fetchval("SELECT id FROM instance")).bytes)
        for found in await connection.fetch(_USED):
            keys = partition_keys(instance, found["p"], found["epoch"])
            if settles:
                await until(lambda p=found["p"]: _settled(connection, redis, instance, p))
                row = await connection.fetchrow("SELECT * FROM partition_log WHERE p = $1", found["p"])
                keys = partition_keys(instance, row["p"], row["epoch"])
            else:
                row = found
            rows = await connection.fetch(_ROWS, row["p"])
            _check_order(row, rows)
            _check_rows(rows)
            await _check_identities(connection, row["p"], rows)
            await _check_redis(redis, keys, row, rows)
    finally:
        await asyncio.gather(connection.close(), redis.aclose())


async def _settled(connection: Any, redis: Redis, instance: UUID, p: int) -> bool:
    row = await connection.fetchrow("SELECT * FROM partition_log WHERE p = $1", p)
    meta = partition_keys(instance, p, row["epoch"]).meta
    epoch, q, c, chain = await redis.hmget(meta, ["epoch", "q", "c", "h"])
    here = (str(row["epoch"]), str(row["seq"]), str(row["seq"]), row["chain"])
    return None not in (epoch, q, c, chain) and (
        epoch.decode(), q.decode(), c.decode(), chain.decode(),
    ) == here  # fmt: skip


def _check_order(row: Any, rows: list[Any]) -> None:
    """seq 1…n, versions 1…n in the same order, the chain."""
    assert [each["seq"] for each in rows] == list(range(1, row["seq"] + 1))
    lengths: dict[Stream, int] = defaultdict(int)
    for each in rows:
        stream = _stream(each)
        lengths[stream] += 1
        assert each["version"] == lengths[stream], f"version {each['version']} at seq {each['seq']}"
    assert roll("", rows, row["seq"]) == row["chain"]


def _check_rows(rows: list[Any]) -> None:
    """Every row is what its digest says, and events of one append stand together."""
    seen: set[bytes] = set()
    before = None
    for each in rows:
        packed = salted(pack_event(_event(each)), each["salt"])
        digest = row_digest(_stream(each), each["append_id"], packed)
        assert digest == each["digest"], f"row at seq {each['seq']} is not what its digest says"
        if each["append_id"] != before:
            assert each["append_id"] not in seen, f"the append at seq {each['seq']} is torn apart"
            assert each["append_id"] == each["id"].bytes
            seen.add(each["append_id"])
            before = each["append_id"]


async def _check_identities(connection: Any, p: int, rows: list[Any]) -> None:
    """Each identity leads to all rows of one append."""
    by_seq = {each["seq"]: each for each in rows}
    sizes: dict[bytes, int] = defaultdict(int)
    for each in rows:
        sizes[each["append_id"]] += 1
    for claim in await connection.fetch("SELECT * FROM append_identity WHERE p = $1", p):
        first = by_seq[claim["seq"]]
        assert first["id"].bytes == first["append_id"]
        assert claim["count"] == sizes[first["append_id"]]
        assert claim["tenant"] == first["tenant"]


async def _check_redis(redis: Redis, keys: PartitionKeys, row: Any, rows: list[Any]) -> None:
    """What Redis calls committed is what Postgres holds, entry for entry."""
    meta = {name.decode(): value.decode() for name, value in (await redis.hgetall(keys.meta)).items()}
    if not meta:
        return
    assert int(meta["epoch"]) <= row["epoch"]
    c = int(meta["c"])
    assert c <= row["seq"]
    assert roll("", rows, c) == meta["ch"]
    if int(meta["epoch"]) < row["epoch"]:
        return
    assert int(meta["q"]) >= c
    for entry in await redis.eval(_ENTRIES, 1, keys.journal, c):
        _check_journal_entry(entry, rows)
    for stream in {_stream(each) for each in rows}:
        for entry in await redis.eval(_ENTRIES, 1, keys.stream(stream), "+"):
            _check_stream_entry(entry, c, stream, rows)


def _check_journal_entry(entry: Any, rows: list[Any]) -> None:
    for placed, chain in placed_from_journal(entry):
        _check_journaled(placed, chain, rows)


def _check_journaled(placed: SequencedAppend, chain: str, rows: list[Any]) -> None:
    there = rows[placed.first_seq - 1 : placed.last_seq]
    assert [each["digest"] for each in there] == [
        placed.digests[32 * n : 32 * n + 32] for n in range(len(placed.events))
    ]
    assert there[0]["version"] == placed.first_version
    assert roll("", rows, placed.last_seq) == chain


def _check_stream_entry(entry: Any, c: int, stream: Stream, rows: list[Any]) -> None:
    version, seq, packed = stream_entry(entry)
    if seq <= c:
        there = rows[seq - 1]
        assert there["version"] == version
        assert _event(there) == unpack_event(packed)
        assert _stream(there) == stream


def _stream(row: Any) -> Stream:
    return Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])


def _event(row: Any) -> Event:
    return Event(
        id=row["id"].bytes,
        type=row["type"],
        actor_type=row["actor_type"],
        actor_id=row["actor_id"],
        target_type=row["target_type"],
        target_id=row["target_id"],
        correlation_id=row["correlation_id"].bytes,
        causation_id=None if row["causation_id"] is None else row["causation_id"].bytes,
        spec_rev=row["spec_rev"],
        recorded_at_ms=row["recorded_at_ms"],
        extra=row["extra"],
        payload=row["payload"],
    )
