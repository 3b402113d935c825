"""The tags of a tenant that is going. A tag is stored as a hash, with the seq of its event and nothing of the
tenant, so its row is found by what the event says.

Owns which declarations count: those of all revisions of the tenant's spec, on the data as they are stored and
as the newest spec sees them, since tags come from appends and from backfills.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.catalog.database import statement
from gateway.catalog.spec_use import present
from gateway.events import tag_key
from spec.errors import Report
from spec.model import EventType, Spec
from spec.parse import parse
from spec.tags import TagFault, TagRule, read_tags, tags_of

_PAGE_EVENTS: Final = 100
_PAGE_SPECS: Final = 20
_LATEST: Final = 2**31 - 1

Declared = dict[str, dict[str, dict[TagRule, None]]]
"""The rules of each event type of each aggregate type."""


async def delete_tags(conn: Any, tenant_id: UUID) -> AsyncIterator[int]:
    """Yields, after each page of events, how many rows went. Again, it deletes what is left."""
    declared, newest = await _declared(conn, tenant_id)
    salt = await conn.fetchval("SELECT salt FROM tenant WHERE id = $1", tenant_id)
    for name, events in declared.items():
        of_type = None if newest is None else newest.aggregate_types.get(name)
        key, version = "", 0
        while True:
            rows = await conn.fetch(
                statement("stored_events"), tenant_id, name, key, version, [*events], _PAGE_EVENTS
            )
            pairs: set[tuple[UUID, int]] = set()
            for row in rows:
                if row["payload"] is None:
                    continue
                event_type = None if of_type is None else of_type.events.get(row["type"])
                for data in await _readings(tenant_id, name, event_type, row):
                    for tag in _tags(events[row["type"]], data, salt):
                        pairs.add((UUID(bytes=tag_key(tenant_id.bytes, tag)), row["seq"]))
            tags, seqs = [tag for tag, _ in pairs], [seq for _, seq in pairs]
            yield await conn.fetchval(statement("delete_tags"), tenant_id, tags, seqs) if pairs else 0
            if len(rows) < _PAGE_EVENTS:
                break
            key, version = rows[-1]["aggregate_id"], rows[-1]["version"]


async def _readings(tenant_id: UUID, name: str, event_type: EventType | None, row: Any) -> list[object]:
    """The data as they are stored, and as the newest spec sees them where that is another thing."""
    stored = bytes(row["payload"])
    found = [stored]
    if event_type is not None and (shown := await present(tenant_id, name, event_type, row)) != stored:
        found.append(shown)
    return [msgspec.json.decode(each) for each in found]


def _tags(rules: dict[TagRule, None], data: object, salt: bytes) -> Iterator[str]:
    for rule in rules:
        tags = tags_of((rule,), data, salt)
        if not isinstance(tags, TagFault):
            yield from tags


async def _declared(conn: Any, tenant_id: UUID) -> tuple[Declared, Spec | None]:
    """With the newest spec, where it can be read."""
    found: Declared = {}
    newest: Spec | None = None
    before = _LATEST
    while True:
        rows = await conn.fetch(statement("spec_documents"), tenant_id, before, _PAGE_SPECS)
        for row in rows:
            if before == _LATEST:
                read = parse(bytes(row["document"]))
                newest = read if isinstance(read, Spec) else None
            before = row["revision"]
            for name, event, rules in _rules(msgspec.json.decode(row["document"])):
                found.setdefault(name, {}).setdefault(event, {}).update(dict.fromkeys(rules))
        if len(rows) < _PAGE_SPECS:
            return found, newest


def _rules(document: Any) -> Iterator[tuple[str, str, tuple[TagRule, ...]]]:
    """Of one document, which may be of a release that took what this one does not."""
    spec = document["spec"] if isinstance(document, dict) and "spec" in document else document
    for name, of_type in _objects(spec, "aggregate_types"):
        for event, declared in _objects(of_type, "events"):
            rules = read_tags(declared.get("tags", []), "", True, Report())
            if rules:
                yield name, event, rules


def _objects(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    within = value.get(key) if isinstance(value, dict) else None
    for name, each in within.items() if isinstance(within, dict) else ():
        if isinstance(each, dict):
            yield name, each
