"""Who holds which unique value, by the table and by the events of the tenants.

Owns: how much of it is looked at: a tenant with more events that claim than a deployment reads is left out.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gateway.catalog import specs, tenants
from gateway.catalog.claim_history import ClaimHistory
from gateway.events import Stream
from gateway.operations.place import Place, statement
from gateway.operations.report import Report
from gateway.partitions import partition_of
from gateway.postgres.connection_errors import CONNECTION_ERRORS, mapped_to
from gateway.postgres.errors import PostgresTrouble
from spec.changes import claiming_events
from spec.model import Spec


async def check_unique_values(place: Place, report: Report) -> None:
    """Raises PostgresTrouble."""
    with mapped_to(PostgresTrouble, errors=CONNECTION_ERRORS):
        async with place.pool.acquire(timeout=10) as conn:
            for tenant in await tenants.every(conn):
                # One snapshot for the events and for the table.
                async with conn.transaction(isolation="repeatable_read", readonly=True):
                    await _check_tenant(place, conn, tenant.id, report)


async def _check_tenant(place: Place, conn: Any, tenant_id: UUID, report: Report) -> None:
    stored = await specs.stored(conn, tenant_id)
    spec = None if stored is None else await specs.readable_now(stored)
    if not isinstance(spec, Spec):
        return
    types = [name for name in spec.aggregate_types if claiming_events(spec, name)]
    history = ClaimHistory(tenant_id, spec, types)
    if not history.of_any:
        return
    await history.read_on(conn)
    if not history.whole:
        return
    p = partition_of(tenant_id.bytes, place.instance.partitions)
    wanted = {value: (Stream(tenant_id.bytes, *owner), name) for value, *owner, name, _, _ in history.held()}
    rows = await conn.fetch(statement("unique_values"), tenant_id)
    found = {
        row["value"]: (Stream(tenant_id.bytes, row["aggregate_type"], row["aggregate_id"]), row["name"])
        for row in rows
    }
    report.count("unique", len(wanted))
    for value in wanted.keys() | found.keys():
        by_events, by_table = wanted.get(value), found.get(value)
        if by_events != by_table:
            where = f"unique value {value.hex()} of tenant {tenant_id}"
            what = f"its events give it to {_told(by_events)}, the table to {_told(by_table)}"
            report.violated("unique", p, where, what)


def _told(holder: tuple[Stream, str] | None) -> str:
    return "no aggregate" if holder is None else f"{holder[0].aggregate_type} {holder[0].key}"
