"""What Postgres and Redis hold, read past every gateway and link, for the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
from redis.asyncio import Redis

from gateway.appends import pack_event, unpack_event
from gateway.events import Event, Stream
from gateway.log.entries import placed_from_journal, stream_entry
from gateway.log.redis.keys import partition_keys
from tests.faults.cluster import Cluster
from tests.faults.history import StreamName

_ROWS = (
    "SELECT *, (extract(epoch FROM recorded_at) * 1000)::int8 AS recorded_at_ms FROM outbox ORDER BY p, seq"
)
_RANGE = "return redis.call('XRANGE', KEYS[1], '-', '+')"  # raw: a field may stand there twice


class Row(NamedTuple):
    """An event in the outbox. `packed` are its columns as the gateway packs them, without the salt."""

    partition: int
    seq: int
    version: int
    stream: StreamName
    """Its tenant is -1 where it is none of the run's."""
    event_id: str
    append_id: bytes
    digest: bytes
    payload: bytes
    place: Stream
    packed: bytes
    salt: bytes = b""


class Standing(NamedTuple):
    """A partition's row."""

    epoch: int
    seq: int
    chain: str


class Claim(NamedTuple):
    """A row of append_identity."""

    partition: int
    seq: int
    count: int


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash, where it is whole."""

    epoch: int
    q: int
    c: int
    chain_at_q: str
    chain_at_c: str


@dataclass(frozen=True, slots=True)
class SequencedAppend:
    """An append in a journal."""

    first_seq: int
    first_version: int
    packed: tuple[bytes, ...]
    chain: str


@dataclass(frozen=True, slots=True)
class Copy:
    """What Redis holds of one partition in its epoch: of each stream, (version, seq, packed event)."""

    meta: Meta
    journal: tuple[SequencedAppend, ...]
    streams: Mapping[Stream, tuple[tuple[int, int, bytes], ...]]


@dataclass(frozen=True, slots=True)
class Evidence:
    rows: list[Row]
    """By partition and seq."""
    standings: dict[int, Standing]
    claims: list[Claim] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    copies: dict[int, Copy] = field(default_factory=dict)


async def gather(cluster: Cluster, *, with_redis: bool) -> Evidence:
    """One snapshot of Postgres; with `with_redis`, what Redis holds after it, for a cluster at rest."""
    numbers = {tenant.id: n for n, tenant in enumerate(cluster.tenants)}
    connection = await asyncpg.connect(cluster.postgres_url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            rows = [_row(each, numbers) for each in await connection.fetch(_ROWS)]
            standings = {
                each["p"]: Standing(each["epoch"], each["seq"], each["chain"])
                for each in await connection.fetch("SELECT p, epoch, seq, chain FROM partition_log")
            }
            claims = [
                Claim(*each) for each in await connection.fetch("SELECT p, seq, count FROM append_identity")
            ]
            quarantined = [
                each["error"] for each in await connection.fetch("SELECT error FROM quarantined_append")
            ]
    finally:
        await connection.close()
    copies: dict[int, Copy] = {}
    if with_redis:
        async with cluster.redis.client(cluster.redis.master) as redis:
            for partition, standing in standings.items():
                copy = await _copy(redis, cluster, partition, standing, {row.place for row in rows})
                if copy is not None:
                    copies[partition] = copy
    return Evidence(rows, standings, claims, quarantined, copies)


async def read_meta(redis: Redis, cluster: Cluster, partition: int) -> Meta | None:
    """None where the hash is missing or not whole. Raises RedisError or OSError."""
    key = partition_keys(UUID(bytes=cluster.instance), partition, 0).meta
    found = await redis.hmget(key, ["epoch", "q", "c", "h", "ch"])
    if None in found:
        return None
    epoch, q, c, h, ch = (each.decode() for each in found)
    return Meta(int(epoch), int(q), int(c), h, ch)


async def _copy(
    redis: Redis, cluster: Cluster, partition: int, standing: Standing, places: set[Stream]
) -> Copy | None:
    meta = await read_meta(redis, cluster, partition)
    if meta is None or meta.epoch != standing.epoch:
        return None
    keys = partition_keys(UUID(bytes=cluster.instance), partition, meta.epoch)
    journal = []
    for entry in await redis.eval(_RANGE, 1, keys.journal):
        for placed, chain in placed_from_journal(entry):
            packed = tuple(pack_event(event) for event in placed.events)
            journal.append(SequencedAppend(placed.first_seq, placed.first_version, packed, chain))
    here = {tenant.id for tenant in cluster.tenants if tenant.partition == partition}
    streams = {}
    for place in places:
        if place.tenant in here:
            entries = await redis.eval(_RANGE, 1, keys.stream(place))
            streams[place] = tuple(map(_entry, entries))
    return Copy(meta, tuple(journal), streams)


def _entry(entry: Any) -> tuple[int, int, bytes]:
    """Without the salt, which an entry that was filled from Postgres does not have."""
    version, seq, packed = stream_entry(entry)
    return version, seq, pack_event(unpack_event(packed))


def _row(found: Any, tenants: Mapping[bytes, int]) -> Row:
    place = Stream(found["tenant"].bytes, found["aggregate_type"], found["aggregate_id"])
    return Row(
        partition=found["p"],
        seq=found["seq"],
        version=found["version"],
        stream=StreamName(tenants.get(place.tenant, -1), place.aggregate_type, place.key),
        event_id=str(found["id"]),
        append_id=found["append_id"],
        digest=found["digest"],
        payload=found["payload"],
        place=place,
        packed=pack_event(_event(found)),
        salt=found["salt"] or b"",
    )


def _event(found: Any) -> Event:
    causation = found["causation_id"]
    return Event(
        id=found["id"].bytes,
        type=found["type"],
        actor_type=found["actor_type"],
        actor_id=found["actor_id"],
        target_type=found["target_type"],
        target_id=found["target_id"],
        correlation_id=found["correlation_id"].bytes,
        causation_id=None if causation is None else causation.bytes,
        spec_rev=found["spec_rev"],
        recorded_at_ms=found["recorded_at_ms"],
        extra=found["extra"],
        payload=found["payload"],
    )
