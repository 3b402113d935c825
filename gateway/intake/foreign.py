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
from gateway.intake import store
from gateway.intake.normalize import Foreign, Held
from gateway.names.source_ids import Unusable, read


class Led(msgspec.Struct, frozen=True, gc=False):
    """`keys` has all that was asked for; `newest`, by key, the `extra` of each stream's last event."""

    keys: dict[Foreign, str | Held]
    newest: dict[str, bytes]


async def led(pool: asyncpg.Pool, tenant: Tenant, wanted: Collection[Foreign]) -> Led:
    """The aggregates of ids of one source, each at its first sight minted. Raises CatalogUnavailable and
    PostgresTrouble."""
    keys: dict[Foreign, str | Held] = {}
    usable: dict[str, Foreign] = {}
    for each in wanted:
        sighted = read(each.source, each.aggregate_type, each.source_id)
        if isinstance(sighted, Unusable):
            keys[each] = Held("no_source_id", sighted.reason)
        else:
            usable[each.source_id] = each
    if not usable:
        return Led(keys, {})
    of = next(iter(usable.values()))
    found = await source_ids.keys_of(pool, tenant.id, of.source, of.aggregate_type, usable)
    keys |= {usable[source_id]: key for source_id, key in found.items()}
    return Led(keys, await store.newest(pool, tenant.id.bytes, of.aggregate_type, found.values()))
