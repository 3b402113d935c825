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
from gateway.names.source_ids import SourceId, Unusable
from spec.errors import shown


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """`keys` has all that was asked for; `newest` the `extra` of the last event that is a record of each."""

    keys: dict[Foreign, str | Quarantine]
    newest: dict[Foreign, bytes]


async def led(pool: asyncpg.Pool, tenant: Tenant, wanted: Collection[Foreign]) -> Resolution:
    """The aggregates of ids of one source, each at its first sight minted. Raises PostgresTrouble."""
    keys: dict[Foreign, str | Quarantine] = {}
    usable: dict[Foreign, SourceId] = {}
    for each in wanted:
        sighted = each.sighted
        if isinstance(sighted, Unusable):
            keys[each] = Quarantine("no_source_id", sighted.reason)
        else:
            usable[each] = sighted
    if not usable:
        return Resolution(keys, {})
    of = next(iter(usable))
    mapped = await source_ids.mappings(
        pool, tenant.id, [*usable.values()], mint=True, aggregate_type=of.aggregate_type
    )
    found: dict[Foreign, str] = {}
    for each, mapping in zip(usable, mapped, strict=True):
        assert mapping is not None
        if mapping.aggregate_type != of.aggregate_type:
            why = f"{shown(each.source_id)} is mapped to the {mapping.aggregate_type} {mapping.key}."
            keys[each] = Quarantine("source_taken", why)
        else:
            found[each] = mapping.key
    begins = [(key, begins_with(each)) for each, key in found.items()]
    former = former_begins_with(of.source)
    told = await store.newest(pool, tenant.id.bytes, of.aggregate_type, begins, former)
    newest = {each: extra for each, extra in zip(found, told, strict=True) if extra is not None}
    return Resolution({**keys, **found}, newest)
