"""The tags of a tenant that is being deleted. A tag is stored as a hash, with the seq of its event and
without the tenant, so its row is found by the content of the event.

Owns which declarations count: those of all revisions of the tenant's spec, on the data as they are stored and
as the newest spec sees them, since tags come from appends and from backfills.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.catalog.database import statement
from gateway.catalog.spec_use import present
from gateway.catalog.tag_history import Readings, pages_of_tags
from spec.errors import Report
from spec.model import Spec
from spec.parse import parse_deployed
from spec.tags import TagRule, read_tags

_PAGE_EVENTS: Final = 100
"""Their data are in memory together."""
_PAGE_SPECS: Final = 20
_LATEST: Final = 2**31 - 1

Declared = dict[str, dict[str, dict[TagRule, None]]]
"""The rules of each event type of each aggregate type."""


async def delete_tags(conn: Any, tenant_id: UUID) -> AsyncIterator[int]:
    """Yields, after each page of events, how many rows went. Again, it deletes what is left."""
    declared, newest = await _declared(conn, tenant_id)
    salt = await conn.fetchval("SELECT salt FROM tenant WHERE id = $1", tenant_id)
    for name, rules in declared.items():
        readings = _readings(tenant_id, name, newest)
        async for _, found in pages_of_tags(conn, tenant_id, salt, name, rules, readings, _PAGE_EVENTS):
            pairs = {pair for _, _, each in found for pair in each}
            tags, seqs = [tag for tag, _ in pairs], [seq for _, seq in pairs]
            yield await conn.fetchval(statement("delete_tags"), tenant_id, tags, seqs) if pairs else 0


def _readings(tenant_id: UUID, name: str, newest: Spec | None) -> Readings:
    """The data as they are stored, and as the newest spec sees them where that is another thing."""
    of_type = None if newest is None else newest.aggregate_types.get(name)

    async def readings(row: Any) -> Sequence[bytes]:
        stored = bytes(row["payload"])
        event_type = None if of_type is None else of_type.events.get(row["type"])
        shown = stored if event_type is None else await present(tenant_id, name, event_type, row)
        return (stored,) if shown == stored else (stored, shown)

    return readings


async def _declared(conn: Any, tenant_id: UUID) -> tuple[Declared, Spec | None]:
    """With the newest spec, where it can be read."""
    found: Declared = {}
    newest: Spec | None = None
    before = _LATEST
    while True:
        rows = await conn.fetch(statement("spec_documents"), tenant_id, before, _PAGE_SPECS)
        for row in rows:
            if before == _LATEST:
                read = await asyncio.to_thread(parse_deployed, bytes(row["document"]))
                newest = read if isinstance(read, Spec) else None
            before = row["revision"]
            for name, event, rules in await asyncio.to_thread(_rules, row["document"]):
                found.setdefault(name, {}).setdefault(event, {}).update(dict.fromkeys(rules))
        if len(rows) < _PAGE_SPECS:
            return found, newest


def _rules(document: bytes) -> list[tuple[str, str, tuple[TagRule, ...]]]:
    """Of one document, which may be of a release that took what this one does not."""
    sent = msgspec.json.decode(document)
    spec = sent["spec"] if isinstance(sent, dict) and "spec" in sent else sent
    found = [
        (name, event, read_tags(declared.get("tags", []), "", True, Report()))
        for name, of_type in _objects(spec, "aggregate_types")
        for event, declared in _objects(of_type, "events")
    ]
    return [each for each in found if each[2]]


def _objects(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    within = value.get(key) if isinstance(value, dict) else None
    for name, each in within.items() if isinstance(within, dict) else ():
        if isinstance(each, dict):
            yield name, each
