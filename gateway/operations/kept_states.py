"""A sample of the kept states, held against folds from the first event.

Owns: how much of them is looked at. What is not counted: states that gateways would not use either, as those
of other handlers.
"""

from __future__ import annotations

import secrets
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.aggregates.folder import Handlers
from gateway.aggregates.kept import decoded, handlers_digest
from gateway.catalog import specs
from gateway.catalog.model import Deployed
from gateway.events import Recorded, Stream
from gateway.log.entries import event_of
from gateway.operations.place import Place
from gateway.operations.report import Report
from gateway.partitions import partition_of
from gateway.postgres.connection_errors import CONNECTION_ERRORS, mapped_to
from gateway.postgres.errors import PostgresTrouble
from gateway.state import EMPTY, STATE_BYTES_MAX, Folded, fold
from spec.errors import Faults
from spec.parse import parse_deployed

SAMPLED: Final = 64
EVENTS_MAX: Final = 200_000
"""Folded in all: some seconds. The shortest of the sample first."""
PAGE_EVENTS: Final = 500


async def check_kept_states(place: Place, report: Report, *, deep: bool) -> None:
    """`deep`: a larger sample, whatever it takes. Raises PostgresTrouble."""
    most = 16 * SAMPLED if deep else SAMPLED
    rows = await place.postgres.fetch("kept_sample", most, secrets.token_hex(8))
    left, deployed = EVENTS_MAX, {}
    for row in sorted(rows, key=lambda each: each["version"]):
        left -= row["version"]
        if left < 0 and not deep:
            return
        tenant = UUID(bytes=row["tenant"].bytes)
        if tenant not in deployed:
            deployed[tenant] = await _deployed(place.pool, tenant)
        if (spec := deployed[tenant]) is not None:
            await _check(place, row, spec, report)


async def _deployed(pool: asyncpg.Pool, tenant: UUID) -> Deployed | None:
    with mapped_to(PostgresTrouble, errors=CONNECTION_ERRORS):
        async with pool.acquire(timeout=10) as connection:
            stored = await specs.stored(connection, tenant)
    if stored is None:
        return None
    spec = parse_deployed(stored.document)
    return None if isinstance(spec, Faults) else Deployed(stored.revision, spec, stored.document)


async def _check(place: Place, row: Any, deployed: Deployed, report: Report) -> None:
    stream = Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])
    if row["handlers"] != handlers_digest(deployed.spec.aggregate_types.get(stream.aggregate_type)):
        return
    kept = decoded(row["folded"])
    if kept is not None and len(kept.data_json) > STATE_BYTES_MAX // 2:
        return  # what it may be at most is a gateway's setting
    folded = await _folded(place, stream, row["version"], Handlers(deployed, stream.aggregate_type))
    report.count("kept")
    if folded != kept:
        p = partition_of(stream.tenant, place.instance.partitions)
        where = f"stream {stream.aggregate_type}/{stream.key} of tenant {row['tenant']}"
        report.violated(
            "kept",
            p,
            where,
            f"the kept state of version {row['version']} differs from the fold",
        )


async def _folded(place: Place, stream: Stream, last: int, handlers: Handlers) -> Folded:
    folded = EMPTY
    while folded.length < last:
        rows = await place.postgres.fetch(
            "page_asc", UUID(bytes=stream.tenant), stream.aggregate_type, stream.key,
            folded.length + 1, last, PAGE_EVENTS, 16 * 1024 * 1024,
        )  # fmt: skip
        if not rows:
            break
        events = [Recorded(stream, row["version"], event_of(row)) for row in rows]
        folded = fold(folded, events, handlers, present=handlers.present)
    return folded
