"""What Postgres holds by itself: rows and chains, streams, identities. Page by page, at constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.operations.place import Place, fetch
from gateway.operations.report import Report
from gateway.operations.rows import PAGE_BYTES, PAGE_ROWS, RowWalk
from gateway.partitions import partition_of

_PAGE: Final = 2_000
_VERSION_BEFORE_ANY: Final = -(2**63)
_LAST_TENANT: Final = UUID(int=2**128 - 1)

Advance = Callable[[int], None]
"""Told how many rows more were looked at."""


async def walk_page(pool: asyncpg.Pool, p: int, walk: RowWalk, to_seq: int, most: int) -> int:
    """Takes the walk on by a page, at most to `to_seq`; how many rows that were. A long row is checked beside
    the event loop. Raises PostgresTrouble."""
    rows = await fetch(pool, "rows", p, walk.seq, to_seq, most, PAGE_BYTES)
    deleted: frozenset[UUID] = frozenset()
    if any(row["aggregate_type"] == "" for row in rows):
        deleted = frozenset([UUID(bytes=row["tenant"].bytes) for row in await fetch(pool, "deleted_tenants")])
    if sum([len(row["payload"] or b"") for row in rows]) > PAGE_BYTES:
        await asyncio.to_thread(walk.check, rows, deleted)
    else:
        walk.check(rows, deleted)
    return len(rows)


async def check_rows(place: Place, p: int, walk: RowWalk, row: Any, advance: Advance) -> None:
    """All rows of a partition that stands at `row` (standing.sql). Raises PostgresTrouble."""
    while walk.seq < row["seq"]:
        taken = await walk_page(place.pool, p, walk, row["seq"], PAGE_ROWS)
        advance(taken)
        if not taken:
            break
    walk.finish(row["seq"], row["chain"], row["last_seq"])


async def check_partitions(place: Place, report: Report) -> None:
    """No row is in a partition that there is not. Raises PostgresTrouble."""
    bounds = (await place.fetch("bounds"))[0]
    for p in {bounds["lowest"], bounds["highest"]} - {None}:
        if not 0 <= p < place.instance.partitions:
            report.violated("tenants", p, "outbox", f"there are {place.instance.partitions} partitions")


async def check_storage(place: Place, p: int, report: Report) -> None:
    """The counts of the tenants add up to where the mark stands. Raises PostgresTrouble."""
    row = (await place.fetch("storage", p))[0]
    report.count("storage", row["events"])
    if row["events"] != row["seq"]:
        what = f"{row['events']} events are counted, the mark is at seq {row['seq']}"
        report.violated("storage", p, "tenant_storage", what)


async def check_streams(place: Place, only: int | None, report: Report, advance: Advance) -> None:
    """Versions 1…n in each stream, in the order of seq. Raises PostgresTrouble."""
    tenant = UUID(int=0)
    while found := await place.fetch("next_tenant", tenant):
        tenant = UUID(bytes=found[0]["tenant"].bytes)
        home = partition_of(tenant.bytes, place.instance.partitions)
        if only in (None, home):
            report.count("tenants")
            await _check_tenant(place, tenant, home, report, advance)
        if tenant == _LAST_TENANT:
            return
        tenant = UUID(int=tenant.int + 1)


async def _check_tenant(place: Place, tenant: UUID, home: int, report: Report, advance: Advance) -> None:
    """Walks one index from end to end. What is appended meanwhile comes last in its stream, so it fits."""
    after = ("", "", _VERSION_BEFORE_ANY)
    seq = version = 0
    while rows := await place.fetch("versions", tenant, *after, _PAGE):
        advance(len(rows))
        for row in rows:
            here = (row["aggregate_type"], row["aggregate_id"], row["version"])
            if here[0] == "":  # of a tenant that is deleted, as the walk over the rows has seen
                after = here
                continue
            if here[:2] != after[:2]:
                report.count("versions")
                seq = version = 0
            where = f"stream {here[0]}/{here[1]} of tenant {tenant}"
            if row["version"] != version + 1:
                what = f"version {row['version']} follows {version or 'nothing'}"
                report.violated("versions", home, where, what)
            elif row["seq"] <= seq:
                what = f"version {row['version']} stands at seq {row['seq']}, the one before at {seq}"
                report.violated("versions", home, where, what)
            if row["p"] != home:
                report.violated(
                    "tenants", home, where, f"version {row['version']} is in partition {row['p']}"
                )
            after, seq, version = here, row["seq"], row["version"]


async def check_identities(place: Place, only: int | None, report: Report) -> None:
    """Each leads to all rows of one append of its tenant. Raises PostgresTrouble."""
    tenant, identity = UUID(int=0), b""
    while rows := await place.fetch("identities", only, tenant, identity, _PAGE):
        for row in rows:
            report.count("identities")
            if (what := _identity_trouble(place, row)) is not None:
                where = f"identity {row['identity'].hex()} of tenant {row['tenant']}"
                report.violated("identities", row["p"], where, what)
        tenant, identity = UUID(bytes=rows[-1]["tenant"].bytes), rows[-1]["identity"]


def _identity_trouble(place: Place, row: Any) -> str | None:
    at = f"seq {row['seq']}"
    if row["p"] != partition_of(row["tenant"].bytes, place.instance.partitions):
        return "it is not in its tenant's partition"
    if row["first_id"] is None:
        return f"there is no row at {at}"
    if row["first_tenant"] != row["tenant"]:
        return f"the row at {at} is another tenant's"
    if row["first_id"].bytes != row["append_id"]:
        return f"the row at {at} is not the first of its append"
    if row["rows"] != row["count"]:
        return f"the append at {at} has {row['rows']} rows there, not {row['count']}"
    if row["next_append_id"] == row["append_id"]:
        return f"the append at {at} has more than {row['count']} rows"
    if row["digest_bytes"] != 32:
        return "its request digest is not a SHA-256"
    return None
