"""Redis held against Postgres: watermark, journal, streams.

Owns: the order of the looks. What Redis calls committed is read first and must then be in Postgres, so that
appends which go on meanwhile can't make it look wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from asyncpg.pgproto.pgproto import UUID
from redis.exceptions import RedisError

from gateway.appends import pack_event, salted, salts_of
from gateway.events import Stream
from gateway.log.entries import event_of, placed_from_journal, stream_entry
from gateway.log.epoch.commit_evidence import CommitEvidence
from gateway.log.redis.keys import PartitionKeys
from gateway.log.redis.scripts import RedisTrouble
from gateway.operations.entries import PAGE_ENTRIES, Journaled, Meta, journaled, meta, read
from gateway.operations.place import Place
from gateway.operations.report import Report
from gateway.telemetry.redact import reason

JOURNAL_SAMPLED: Final = 200
"""Committed entries of a partition's journal, the oldest, that are looked at unless all are."""
_ATTEMPTS: Final = 3
"""A stream that looks wrong is looked at again: it may have been evicted between two pages."""


@dataclass(slots=True)
class Looked:
    """What Redis said of a partition before Postgres was asked. `sequenced` may not be committed yet: where
    Postgres has come so far in the same epoch, it must be this history."""

    meta: Meta
    committed: list[CommitEvidence] = field(default_factory=list)
    sequenced: list[CommitEvidence] = field(default_factory=list)

    def witness(self, each: Journaled) -> CommitEvidence:
        return CommitEvidence("Redis' journal", self.meta.epoch, each.placed.last_seq, each.chain)


async def look(place: Place, p: int, report: Report, *, deep: bool) -> Looked:
    """Reads the partition's meta hash and journal, and checks what they say of each other.
    Raises RedisTrouble."""
    looked = Looked(await meta(place.scripts, place.keys(p, 0)))
    if looked.meta.epoch < 0:
        return looked
    if looked.meta.c:
        seen = CommitEvidence("Redis", looked.meta.epoch, looked.meta.c, looked.meta.chain_at_c)
        looked.committed.append(seen)
    await _check_journal(place, p, looked, report, deep=deep)
    return looked


async def _check_journal(place: Place, p: int, looked: Looked, report: Report, *, deep: bool) -> None:
    """Two walks: over what is committed, from the oldest entry, and over what may not be yet, up to q."""
    keys, c = place.keys(p, looked.meta.epoch), looked.meta.c
    before: Journaled | None = None
    async for each in journaled(place.scripts, keys, 0, c, most=None if deep else JOURNAL_SAMPLED):
        report.count("journal")
        if before is None or (each.follows != before.placed.last_seq and await _trimmed(place, keys, before)):
            looked.committed.append(looked.witness(each))
        elif (trouble := _entry_trouble(before, each)) is not None:
            report.violated("journal", p, f"seq {each.placed.first_seq}", trouble)
        before = each
    if before is not None:
        looked.committed.append(looked.witness(before))
    if (trouble := await _tail_trouble(place, keys, looked, report)) is not None:
        report.violated("journal", p, f"seq {c + 1}…{looked.meta.q}", trouble)


def _entry_trouble(before: Journaled, each: Journaled) -> str | None:
    if each.follows != before.placed.last_seq:
        return f"the journal's entry before ends at seq {before.placed.last_seq}"
    if each.placed.chain_after(before.chain) != each.chain:
        return "the journal's entry is not what its chain says"
    return None


async def _trimmed(place: Place, keys: PartitionKeys, entry: Journaled) -> bool:
    """Whether the journal begins after this entry by now."""
    _, oldest = await read(place.scripts, keys, keys.journal, most=1)
    return not oldest or placed_from_journal(oldest[0])[0][0].first_seq > entry.placed.last_seq


async def _tail_trouble(place: Place, keys: PartitionKeys, looked: Looked, report: Report) -> str | None:
    """What is wrong with the entries that were beyond the watermark when the meta hash was read."""
    was = looked.meta
    seq, chain = was.c, was.chain_at_c
    async for each in journaled(place.scripts, keys, was.c, was.q):
        report.count("journal")
        if not each.continues(seq, chain):
            break
        seq, chain = each.placed.last_seq, each.chain
        looked.sequenced.append(looked.witness(each))
    if (seq, chain) == (was.q, was.h):
        return None
    if (await meta(place.scripts, keys)).epoch != was.epoch:
        return None  # the epoch ended meanwhile, and all of it with it
    return f"the journal does not continue the watermark after seq {seq}"


async def check_streams(place: Place, p: int, streams: list[Stream], report: Report) -> None:
    """Raises RedisTrouble, PostgresTrouble."""
    for stream in streams:
        report.count("streams")
        trouble = None
        for _ in range(_ATTEMPTS):
            trouble = await _stream_trouble(place, p, stream)
            if trouble is None:
                break
        else:
            where = f"stream {stream.aggregate_type}/{stream.key} of tenant {UUID(stream.tenant)}"
            report.violated("streams", p, where, str(trouble))


async def _stream_trouble(place: Place, p: int, stream: Stream) -> str | None:
    """What is wrong with it in Redis, None also where it is not there."""
    tenant = UUID(stream.tenant)
    row = await place.postgres.partition(p)
    head = (await place.postgres.fetch("heads", [tenant], [stream.aggregate_type], [stream.key]))[0]["head"]
    keys = place.keys(p, row.epoch)
    last = seq = 0
    while True:
        after = f"({last}-0" if last else "-"
        now, entries = await read(place.scripts, keys, keys.stream(stream), after, most=PAGE_ENTRIES)
        if now.epoch != row.epoch or not now.same_server:
            return None  # no gateway reads these keys any more
        for entry in entries:
            version, at, _ = stream_entry(entry)
            if (last and version != last + 1) or at <= seq:
                return f"version {version} at seq {at} stands after version {last} at seq {seq}"
            last, seq = version, at
        trouble = await _differing(place, stream, now.c, entries)
        if trouble is not None:
            return trouble
        if len(entries) < PAGE_ENTRIES:
            return f"it ends at version {last}, but {head} are committed" if 0 < last < head else None


async def _differing(place: Place, stream: Stream, c: int, entries: Any) -> str | None:
    """What Redis calls committed and Postgres has otherwise, or not at all."""
    committed = [entry for each in entries if (entry := stream_entry(each))[1] <= c]
    if not committed:
        return None
    tenant = UUID(stream.tenant)
    bounds = (committed[0][0], committed[-1][0], len(committed), 2**53)
    found = await place.postgres.fetch("page_asc", tenant, stream.aggregate_type, stream.key, *bounds)
    rows = {row["version"]: row for row in found}
    for version, seq, packed in committed:
        row = rows.get(version)
        if row is None:
            return f"version {version} is not in Postgres"
        if row["seq"] != seq:
            return f"version {version} stands at seq {seq}, in Postgres at {row['seq']}"
        # An entry that was filled from Postgres has no salt.
        if salted(pack_event(event_of(row)), salts_of([packed])) != packed:
            return f"version {version} is not what Postgres has, byte for byte"
    return None


async def every_stream(place: Place, p: int, epoch: int) -> AsyncIterator[Stream]:
    """The streams that Redis holds of a partition; some may come twice. Raises RedisTrouble."""
    prefix = f"{place.keys(p, epoch).prefix}s:"
    try:
        redis = (await place.scripts.server_of(prefix)).client
        async for key in redis.scan_iter(match=f"{prefix}*", count=1000):
            tenant, aggregate_type, name = key.decode()[len(prefix) :].split(":", 2)
            yield Stream(bytes.fromhex(tenant), aggregate_type, name)
    except (RedisError, OSError) as error:
        raise RedisTrouble(f"scan: {reason(error)}") from error
