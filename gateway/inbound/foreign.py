"""Deliveries that a foreign system's id leads to an aggregate: to which, and what was told of it last.

Owns: that all deliveries of a request are looked up together, in as few statements as one of them. Must not
know what becomes of them.
"""

from __future__ import annotations

from collections.abc import Collection

import asyncpg
import msgspec

from gateway.catalog import source_ids
from gateway.catalog.model import Tenant
from gateway.inbound import store
from gateway.inbound.normalize import Foreign, Quarantine, begins_with, former_begins_with
from gateway.names.source_ids import Unusable, read


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """`keys` has all that was asked for; `newest` the `extra` of the last event that is a record of each."""

    keys: dict[Foreign, str | Quarantine]
    newest: dict[Foreign, bytes]


async def led(pool: asyncpg.Pool, tenant: Tenant, wanted: Collection[Foreign]) -> Resolution:
    """The aggregates of ids of one source, each at its first sight minted. Raises CatalogUnavailable and
    PostgresTrouble."""
    keys: dict[Foreign, str | Quarantine] = {}
    usable: dict[str, Foreign] = {}
    for each in wanted:
        sighted = read(each.source, each.aggregate_type, each.source_id)
        if isinstance(sighted, Unusable):
            keys[each] = Quarantine("no_source_id", sighted.reason)
        else:
            usable[each.source_id] = each
    if not usable:
        return Resolution(keys, {})
    of = next(iter(usable.values()))
    found = await source_ids.keys_of(pool, tenant.id, of.source, of.aggregate_type, usable, of.aggregate_type)
    keys |= {usable[source_id]: key for source_id, key in found.items()}
    begins = [(key, begins_with(usable[source_id])) for source_id, key in found.items()]
    former = former_begins_with(of.source)
    told = await store.newest(pool, tenant.id.bytes, of.aggregate_type, begins, former)
    newest = {usable[each]: extra for each, extra in zip(found, told, strict=True) if extra is not None}
    return Resolution(keys, newest)
