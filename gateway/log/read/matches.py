"""Where the events are that a query's items match, found by the index of tags.

Owns: how much of the index one look takes, and how far what it found is complete. Must not know: the events
themselves, pages, positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.appends import tag_key
from gateway.items import Condition, Items, tags_of
from gateway.log.postgres import Look, Postgres

POSITIONS_A_LOOK: Final = 20_000
"""Of items without tags: there is no index of types."""

EVENTS_OF_A_TAG: Final = 1000
"""That one look takes from the index: bounds its time where hardly one of them has the other tags too."""


class Matches(msgspec.Struct, frozen=True):
    """The seqs of what matches, in the order of reading, and the seq up to which that is all."""

    seqs: tuple[int, ...]
    reached: int


class LastTagged(msgspec.Struct, frozen=True):
    """What one look at Postgres tells of a condition: whether certainly no event matches (`none`) up to
    `seq`, where the partition stood in `epoch`; the mark of the event at its position, None where there is
    none; and the seq of the last event with each of its tags, 0: none has it."""

    epoch: int
    seq: int
    none: bool
    mark: bytes | None
    lasts: tuple[int, ...]


async def last_tagged(
    postgres: Postgres, p: int, asked: Sequence[tuple[bytes, Condition]]
) -> list[LastTagged]:
    """Of each condition, with its tenant, by the last event of each of its tags. Raises PostgresTrouble."""
    tags = {(tenant, tag): None for tenant, condition in asked for tag in tags_of(condition.items)}
    parts = [tag.split(":", 1) for _, tag in tags]
    rows = await postgres.fetch(
        "last_tagged",
        p,
        [UUID(tenant) for tenant, _ in tags],
        [UUID(tag_key(*each)) for each in tags],
        [prefix for prefix, _ in parts],
        [key for _, key in parts],
        [condition.after for _, condition in asked],
    )
    marks = {row["n"]: row for row in rows if row["kind"] == "position"}
    lasts = {row["n"]: row["last"] or 0 for row in rows if row["kind"] == "tag"}
    last = {each: lasts[n] for n, each in enumerate(tags, 1)}
    found = []
    for n, (tenant, condition) in enumerate(asked, 1):
        row, after = marks[n], condition.after
        none = all(any(last[tenant, tag] <= after for tag in item.tags) for item in condition.items)
        of_each = tuple([last[tenant, tag] for tag in tags_of(condition.items)])
        found.append(LastTagged(row["epoch"], row["seq"], none, row["mark"], of_each))
    return found


class FirstMatch(msgspec.Struct, frozen=True):
    """What one look at Postgres tells of a condition: the seq of the first event that matches, 0: none up to
    `seq`, where the partition stood in `epoch`; and the mark of the event at `after`, None where there is
    none."""

    epoch: int
    seq: int
    matched: int
    mark: bytes | None


async def first_match(
    postgres: Look, p: int, tenant: bytes, items: Items, after: int, up_to: int | None = None
) -> FirstMatch:
    """Behind `after`, up to that seq or as far as the partition is committed. Raises PostgresTrouble."""
    args = _arguments(tenant, items)
    at, first = after, None
    while True:
        end = at + POSITIONS_A_LOOK
        (row,) = await postgres.fetch(
            "matches_asc", p, UUID(tenant), at, up_to, EVENTS_OF_A_TAG, 1, at, *args, end
        )
        first = first or row
        up_to = first["head"] if up_to is None else up_to
        reached = min([up_to, *row["told_up_to"], *([end] if _searches_types(items) else [])])
        found = [seq for seq in row["seqs"] if seq <= reached]
        if found or reached >= up_to:
            return FirstMatch(first["epoch"], up_to, found[0] if found else 0, first["mark_after"])
        at = reached


async def matches_after(
    postgres: Look, p: int, tenant: bytes, items: Items, after: int, limit: int, stretch: int
) -> Matches:
    """The next matches behind `after`, at most `limit`. Of items without tags, `stretch` positions are looked
    at. Raises PostgresTrouble."""
    end, args = after + stretch, _arguments(tenant, items)
    (row,) = await postgres.fetch(
        "matches_asc", p, UUID(tenant), after, None, EVENTS_OF_A_TAG, limit, after, *args, end
    )
    reached = min([row["head"], *row["told_up_to"], *([end] if _searches_types(items) else [])])
    within = tuple([seq for seq in row["seqs"] if seq <= reached])
    return Matches(within, within[-1] if len(within) == limit else reached)


async def matches_before(
    postgres: Look, p: int, tenant: bytes, items: Items, below: int, limit: int, stretch: int
) -> Matches:
    """The next matches before `below`, the newest first; `reached` is the seq down to which that is all.
    Raises PostgresTrouble."""
    bottom, upper = max(below - stretch, 1), below - 1
    args = _arguments(tenant, items)
    (row,) = await postgres.fetch(
        "matches_desc", p, UUID(tenant), 0, upper, EVENTS_OF_A_TAG, limit, bottom - 1, *args, upper
    )
    reached = max([1, *row["told_up_to"], *([bottom] if _searches_types(items) else [])])
    within = tuple([seq for seq in row["seqs"] if seq >= reached])
    return Matches(within, within[-1] if len(within) == limit else reached)


def _searches_types(items: Items) -> bool:
    """Whether an item has no tags: types have no index, so only a stretch of positions is looked at."""
    return any(not item.tags for item in items)


def _arguments(tenant: bytes, items: Items) -> tuple[Any, ...]:
    """$8 to $15 of the statement."""
    tags = [(n, tag) for n, item in enumerate(items) for tag in sorted(item.tags)]
    parts = [tag.split(":", 1) for _, tag in tags]
    types = [(n, *each) for n, item in enumerate(items) for each in sorted(item.types)]
    return (
        [n for n, _ in tags],
        [UUID(tag_key(tenant, tag)) for _, tag in tags],
        [prefix for prefix, _ in parts],
        [key for _, key in parts],
        [n for n, _, _ in types],
        [aggregate_type for _, aggregate_type, _ in types],
        [event_type for _, _, event_type in types],
        [n for n, item in enumerate(items) if not item.tags],
    )
