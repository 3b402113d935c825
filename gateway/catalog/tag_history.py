"""Tags and a tenant's history: which stored events lack a declared tag, and giving it to them.

Owns: reading stored events for it, a page at a time in the order of their keys. What an event's data say now
is what counts: data of an earlier revision are brought to today's first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from gateway.appends import tag_key
from gateway.catalog.database import statement
from gateway.catalog.spec_use import (
    CHECK_S,
    EVENTS_CHECKED_MAX,
    Conflict,
    Notice,
    Use,
    present,
)
from gateway.json_values import decode_data
from gateway.partitions import partition_of
from spec.changes import Retagged, retagged
from spec.errors import below
from spec.model import AggregateType, Spec
from spec.tags import TagFault, TagRule, tags_of

_PAGE_EVENTS: Final = 500
_TURN_S: Final = 0.005

Pairs = list[tuple[UUID, int]]
"""Keys of tags, each with the seq of an event that has it, or should have."""
Readings = Callable[[Any], Awaitable[Sequence[bytes]]]
"""The forms in which the data of a row of `stored_events` give tags."""


async def look_for_tags(conn: Any, tenant_id: UUID, old: Spec, new: Spec, use: Use) -> None:
    """What stored events lack of the tags that `new` declares, and what they have of those that go."""
    changed = retagged(old, new)
    if not changed:
        return
    salt = await conn.fetchval("SELECT salt FROM tenant WHERE id = $1", tenant_id)
    until, left = time.monotonic() + CHECK_S, EVENTS_CHECKED_MAX
    for name, events in changed.items():
        declared = (new if name in new.aggregate_types else old).aggregate_types[name]
        lacking: dict[str, set[int]] = {event: set() for event in events}
        having: dict[str, set[int]] = {event: set() for event in events}
        whole = True
        presented = _presented(tenant_id, declared)
        async for read, found in pages_of_tags(conn, tenant_id, salt, name, _rules_of(events), presented):
            left -= read
            missing = await _missing(conn, [pair for _, _, pairs in found for pair in pairs])
            for event, rule, pairs in found:
                of, there = (lacking, False) if rule in events[event].added else (having, True)
                of[event].update([seq for key, seq in pairs if ((key, seq) not in missing) is there])
            if left <= 0 or time.monotonic() > until:
                whole = False
                break
        _tell(name, events, lacking, having, use, whole=whole)


def _rules_of(events: Mapping[str, Retagged]) -> dict[str, tuple[TagRule, ...]]:
    return {event: (*each.added, *each.removed) for event, each in events.items()}


def _tell(
    name: str,
    events: Mapping[str, Retagged],
    lacking: Mapping[str, set[int]],
    having: Mapping[str, set[int]],
    use: Use,
    *,
    whole: bool,
) -> None:
    for event, each in events.items():
        place = below("", "aggregate_types", name, "events", event, "tags")
        share = "" if whole else " or more (not all were searched)"
        if count := len(lacking[event]):
            stored = "1 stored event" if count == 1 else f"{count:,} stored events"
            lack = "lacks" if count == 1 and whole else "lack"
            how = "`sluice tags backfill` gives it."
            use.notices.append(Notice(place, f"{stored}{share} of the type {event} {lack} a tag: {how}"))
        if count := len(having[event]):
            tags = ", ".join(sorted({rule.prefix for rule in each.removed}))
            why = f"{count:,}{share} stored {event} events have a tag that is removed: {tags}."
            use.conflicts.append(Conflict(place, why))


def _presented(tenant_id: UUID, declared: AggregateType) -> Readings:
    async def presented(row: Any) -> Sequence[bytes]:
        event_type = declared.events.get(row["type"])
        return () if event_type is None else (await present(tenant_id, declared.name, event_type, row),)

    return presented


async def pages_of_tags(
    conn: Any,
    tenant_id: UUID,
    salt: bytes,
    name: str,
    rules: Mapping[str, Iterable[TagRule]],
    readings: Readings,
    most: int = _PAGE_EVENTS,
) -> AsyncIterator[tuple[int, list[tuple[str, TagRule, Pairs]]]]:
    """The stored events of an aggregate type, `most` at a time: how many a page has, and the tags of each by
    each rule of its type, where it gives any."""
    key, version = "", 0
    while True:
        rows = await conn.fetch(statement("stored_events"), tenant_id, name, key, version, [*rules], most)
        found, begun = [], time.monotonic()
        for row in rows:
            if row["payload"] is None or row["type"] not in rules:
                continue
            for data in map(decode_data, await readings(row)):
                for rule in rules[row["type"]]:
                    tags = tags_of((rule,), data, salt)
                    if tags and not isinstance(tags, TagFault):
                        pairs = [(UUID(bytes=tag_key(tenant_id.bytes, tag)), row["seq"]) for tag in tags]
                        found.append((row["type"], rule, pairs))
            if time.monotonic() - begun > _TURN_S:
                await asyncio.sleep(0)
                begun = time.monotonic()
        yield len(rows), found
        if len(rows) < most:
            return
        key, version = rows[-1]["aggregate_id"], rows[-1]["version"]


async def _missing(conn: Any, pairs: Pairs) -> set[tuple[UUID, int]]:
    """Those that are not stored."""
    rows = await conn.fetch(statement("missing_tags"), [key for key, _ in pairs], [seq for _, seq in pairs])
    return {(UUID(bytes=row["tag"].bytes), row["seq"]) for row in rows}


async def count_events(conn: Any, tenant_id: UUID, spec: Spec) -> int:
    """Of the aggregate types with tags: as far as a backfill has to read."""
    count: int = await conn.fetchval(statement("count_of_types"), tenant_id, list(_tagged(spec)))
    return count


async def backfill(conn: Any, tenant_id: UUID, spec: Spec) -> AsyncIterator[tuple[int, int]]:
    """Gives stored events the tags that they lack; yields, after each page, how many events it had and how
    many tags were given. Running it again gives nothing twice. At last it ends the epoch of the tenant's
    partition: Redis remembers the tags that events had, and conditions have to count the added ones."""
    salt = await conn.fetchval("SELECT salt FROM tenant WHERE id = $1", tenant_id)
    tagged = _tagged(spec)
    for name, rules in tagged.items():
        presented = _presented(tenant_id, spec.aggregate_types[name])
        async for read, found in pages_of_tags(conn, tenant_id, salt, name, rules, presented):
            pairs = [pair for _, _, each in found for pair in each]
            rows = await conn.fetch(
                statement("add_tags"), [key for key, _ in pairs], [seq for _, seq in pairs]
            )
            yield read, len(rows)
    if tagged:  # also where none was lacking: an earlier run may have been broken off
        partitions = await conn.fetchval("SELECT partitions FROM instance")
        await conn.execute(statement("end_epoch"), partition_of(tenant_id.bytes, partitions))


def _tagged(spec: Spec) -> dict[str, dict[str, Sequence[TagRule]]]:
    found: dict[str, dict[str, Sequence[TagRule]]] = {
        name: {event: each.tags for event, each in declared.events.items() if each.tags}
        for name, declared in spec.aggregate_types.items()
    }
    return {name: rules for name, rules in found.items() if rules}
