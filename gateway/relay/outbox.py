"""The outbox, read in (p, seq) order up to what is committed, or from there back: pages without gaps,
filtered if asked.

Owns: what a reader may ask for, and how far one page goes. Every page is one snapshot of Postgres, in which
all that was committed stands without a hole, so a page never skips what commits later. Nothing is handed on
before it is settled (log/epoch/settling.py), no event and no place. Must not know: HTTP, subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.appends import tag_key
from gateway.catalog.narrowness import Only
from gateway.events import Event, Recorded, Stream, event_bytes, revised
from gateway.items import Items, matches
from gateway.log.postgres import Postgres
from gateway.log.read.matches import matches_after, matches_before
from gateway.partitions import partition_of
from gateway.relay.position import BEGINNING, START, Place, Position

# Positions that one statement looks at: bounds its time where nearly nothing passes the filter.
STRETCH = 20_000
# A page is read whole, so it is bounded in bytes too; an event that is larger comes by itself.
PAGE_BYTES = 4 * 1024 * 1024
# For how long one page looks for events that pass its filter before it answers with those it has.
SEARCH_S = 2.0
# How far an event's time may be from the order of commits: gateways' clocks, and appends that wait to commit.
CLOCKS_DIFFER_MS = 30_000


Settled = Callable[[int, int, int, bytes], Awaitable[None]]
"""Returns once it is settled that an event stands there: p, the epoch it was read in, seq, its id. Raises
PostgresTrouble."""


class LostPlace(Exception):
    """Postgres has no event at the position of a reader."""


class Filter(msgspec.Struct, frozen=True):
    """The tenant, and which of its events: empty sets take all types that a spec can declare. System events,
    whose types begin with an underscore, are taken only by name. With `items`, one of them has to match
    besides."""

    tenant: bytes
    types: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()
    items: Items = ()
    correlation_id: bytes | None = None
    actor: tuple[str, str] | None = None
    """Its type and id."""
    only: Only | None = None
    """What the reader's key is narrowed to, where that is more than types."""

    @property
    def narrowed(self) -> tuple[Items, bytes | None, tuple[str, str] | None, Only | None]:
        """What depends on more than an event's types."""
        return self.items, self.correlation_id, self.actor, self.only

    def permits(self, entry: Entry) -> bool:
        """Whether the reader's key shows the event."""
        stream = entry.recorded.stream
        return self.only is None or self.only.shows(
            stream.aggregate_type, stream.key, entry.recorded.event.type
        )

    def permitted(self, entries: Sequence[Entry]) -> Iterable[Entry]:
        """Those of them."""
        return entries if self.only is None else filter(self.permits, entries)

    def takes_type(self, aggregate_type: str) -> bool:
        return aggregate_type in self.types if self.types else aggregate_type[0] != "_"

    def takes(self, stream: Stream, event_type: str) -> bool:
        """Whether it may take such events; where it is `narrowed`, `picks` says which of them."""
        return (
            stream.tenant == self.tenant
            and self.takes_type(stream.aggregate_type)
            and (not self.event_types or event_type in self.event_types)
        )

    def picks(self, entry: Entry) -> bool:
        """Of an entry that has all its tags, as far as `items` name them."""
        stream, event = entry.recorded.stream, entry.recorded.event
        return (
            self.correlation_id in (None, event.correlation_id)
            and self.actor in (None, (event.actor_type, event.actor_id))
            and (
                not self.items
                or matches(self.items, stream.aggregate_type, stream.key, event.type, entry.tags)
            )
            and self.permits(entry)
        )


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A committed event with its place in the partition. `tags`: its declared ones, where they were asked
    for."""

    place: Place
    recorded: Recorded
    tags: tuple[str, ...] = ()


class Stretch(msgspec.Struct, frozen=True):
    """What was found between two places. `reached` lies behind all that was looked at, taken or not;
    `head` is the last committed seq, `size` that of the entries in bytes. `within`: it ends within an
    append."""

    entries: tuple[Entry, ...]
    reached: Place
    head: int
    size: int
    within: bool

    @property
    def caught_up(self) -> bool:
        return self.reached.seq >= self.head


class Page(msgspec.Struct, frozen=True):
    """Events in order, all of partition `p`; the position behind them and behind all that was filtered out on
    the way; whether that was all there is."""

    p: int
    entries: tuple[Entry, ...]
    position: Position
    caught_up: bool


class Outbox:
    """Every read raises PostgresTrouble when Postgres, or its standby, can't answer, LostPlace where no
    reader can stand."""

    def __init__(self, postgres: Postgres, partitions: int, settled: Settled) -> None:
        self._postgres = postgres
        self._settled = settled
        self._partitions = partitions

    def partition(self, tenant: bytes) -> int:
        """Where all events of the tenant are."""
        return partition_of(tenant, self._partitions)

    async def settle(self, p: int, epoch: int, seq: int, event_id: bytes) -> None:
        """Returns once it is settled that this event stands there, as it was read in `epoch`."""
        await self._settled(p, epoch, seq, event_id)

    async def page(
        self,
        wanted: Filter,
        after: Position,
        limit: int,
        bytes_max: int = PAGE_BYTES,
        *,
        whole: bool = False,
    ) -> Page:
        """The next events of a tenant, at most `limit`; fewer, even none, do not mean that it was all. With
        `whole`, it ends between two appends, unless the first one is larger than a page."""
        p = self.partition(wanted.tenant)
        if any(number != p for number, _ in after.places):
            raise LostPlace("The position belongs to another tenant or another instance.")
        entries: list[Entry] = []
        place = after.at(p)
        loop = asyncio.get_running_loop()
        until, left = loop.time() + SEARCH_S, bytes_max
        while True:
            stretch = await self.stretch(p, wanted, place, limit - len(entries), left)
            entries += wanted.permitted(stretch.entries)
            place = stretch.reached
            left -= stretch.size
            if stretch.caught_up or len(entries) >= limit or left <= 0 or loop.time() > until:
                if whole and stretch.within:
                    place = await self._between(p, place)
                    if place.seq <= after.at(p).seq:
                        place = stretch.reached
                    entries = [each for each in entries if each.place.seq <= place.seq]
                return Page(p, tuple(entries), after.moved(p, place), stretch.caught_up)

    async def _between(self, p: int, place: Place) -> Place:
        """The place, or the one before the append that it is within."""
        rows = await self._postgres.fetch("append_around", p, place.seq)
        return Place(rows[0]["before"], rows[0]["mark"] or BEGINNING.mark) if rows else place

    async def stretch(
        self, p: int, wanted: Filter, after: Place, limit: int, bytes_max: int = PAGE_BYTES
    ) -> Stretch:
        """The next events of a partition that pass, among the next `STRETCH` positions; of items with tags,
        as far as the index of tags leads at once."""
        if wanted.items:
            return await self._matching(p, wanted, after, limit, bytes_max)
        args = _arguments(wanted, limit, bytes_max)
        rows = await self._postgres.of(wanted.tenant).fetch("outbox_page", p, after.seq, STRETCH, *args)
        return await self._stretch(p, rows, after, limit, bytes_max)

    async def _matching(self, p: int, wanted: Filter, after: Place, limit: int, bytes_max: int) -> Stretch:
        postgres = self._postgres.of(wanted.tenant)
        found = await matches_after(postgres, p, wanted.tenant, wanted.items, after.seq, limit, STRETCH)
        args, count = _arguments(wanted, limit, bytes_max), max(found.reached - after.seq, 0)
        rows = await postgres.fetch("outbox_page_at", p, after.seq, count, *args, found.seqs)
        return await self._stretch(p, rows, after, limit, bytes_max)

    async def page_back(
        self,
        wanted: Filter,
        after: Position | None,
        limit: int,
        bytes_max: int = PAGE_BYTES,
        *,
        floor: int = 1,
    ) -> Page:
        """The next older events of a tenant, the newest first: before the event that `after` stands behind,
        or from the newest of all; none below the seq `floor`. Its position is the `after` of the next one."""
        p = self.partition(wanted.tenant)
        if after is None:
            position = START
            below, mark = (await self.end_of(p)).seq + 1, None
        else:
            if any(number != p for number, _ in after.places):
                raise LostPlace("The position belongs to another tenant or another instance.")
            position, place = after, after.at(p)
            below, mark = place.seq, place.mark
        entries: list[Entry] = []
        loop = asyncio.get_running_loop()
        until, left = loop.time() + SEARCH_S, bytes_max
        while below > floor and len(entries) < limit and left > 0 and loop.time() < until:
            found, place = await self._back(p, wanted, below, floor, mark, limit - len(entries), left)
            entries += wanted.permitted(found)
            left -= sum(map(entry_bytes, found))
            position, below, mark = START.moved(p, place), place.seq, place.mark
        return Page(p, tuple(entries), position, below <= floor)

    async def _back(
        self, p: int, wanted: Filter, below: int, floor: int, mark: bytes | None, limit: int, bytes_max: int
    ) -> tuple[tuple[Entry, ...], Place]:
        """One statement: what passes before a seq, and the last place that was looked at. What stands at the
        seq is settled, and so is all of this."""
        args, bottom = _arguments(wanted, limit, bytes_max), max(below - STRETCH, floor)
        postgres = self._postgres.of(wanted.tenant)
        if wanted.items:
            matched = await matches_before(postgres, p, wanted.tenant, wanted.items, below, limit, STRETCH)
            count = below - max(matched.reached, floor)
            rows = await postgres.fetch("outbox_back_at", p, below, count, *args, matched.seqs)
        else:
            rows = await postgres.fetch("outbox_back", p, below, below - bottom, *args)
        first, last = rows[0], rows[-1]
        if mark is not None and bytes(first["mark_before"] or b"") != mark:
            raise LostPlace(_NOT_THERE)
        reached = Place(last["reached"], bytes(last["mark_reached"] or BEGINNING.mark))
        if last["seq"] is None:
            return (), reached
        entries = tuple([_entry(row) for row in rows])
        cut = len(entries) == limit or last["size_so_far"] >= bytes_max
        return entries, entries[-1].place if cut else reached

    async def before_time(self, tenant: bytes, at_ms: int) -> Place:
        """Behind the last event before the first one that was recorded at or after a time; behind all that is
        committed where there is none yet."""
        p, postgres = self.partition(tenant), self._postgres.of(tenant)
        ((seq,),) = await postgres.fetch("before_time", p, at_ms - CLOCKS_DIFFER_MS)
        while True:
            (row,) = await postgres.fetch("from_time", p, seq, STRETCH, at_ms)
            if row["seq"] is not None:
                return Place(row["seq"] - 1, bytes(row["mark"] or BEGINNING.mark))
            seq += STRETCH
            if seq >= row["head"]:
                return await self.end_of(p)

    async def tagged(self, entries: Sequence[Entry], tags: Collection[tuple[bytes, str]]) -> list[Entry]:
        """The entries of a stretch, in order, each with those of these tags, (tenant, tag), that it has."""
        if not entries or not tags:
            return list(entries)
        by_key = {tag_key(tenant, tag): tag for tenant, tag in tags}
        keys = [UUID(key) for key in by_key]
        rows = await self._postgres.fetch("tagged", keys, entries[0].place.seq - 1, entries[-1].place.seq)
        found: dict[int, tuple[str, ...]] = {}
        for row in rows:
            found[row["seq"]] = (*found.get(row["seq"], ()), by_key[row["tag"].bytes])
        return [Entry(each.place, each.recorded, found.get(each.place.seq, ())) for each in entries]

    async def stretch_of(self, p: int, tenants: Iterable[bytes], after: Place, limit: int) -> Stretch:
        """The same for all events of several tenants of the partition, the system's own among them."""
        rows = await self._postgres.fetch(
            "outbox_page", p, after.seq, STRETCH, [UUID(each) for each in tenants], None, None, limit,
            PAGE_BYTES, True, None, None, None,
        )  # fmt: skip
        return await self._stretch(p, rows, after, limit, PAGE_BYTES)

    async def end(self, tenant: bytes) -> Position:
        """Behind all that is committed now."""
        p = self.partition(tenant)
        return START.moved(p, await self.end_of(p))

    async def end_of(self, p: int) -> Place:
        """Behind all that is committed now to a partition."""
        head = (await self._postgres.fetch("outbox_end", p))[0]
        if head["id"] is not None:
            await self._settled(p, head["epoch"], head["seq"], head["id"].bytes)
        return Place(head["seq"], head["mark"] or BEGINNING.mark)

    async def _stretch(
        self, p: int, rows: Sequence[Any], after: Place, limit: int, bytes_max: int
    ) -> Stretch:
        """What a statement found, once it is settled. Raises LostPlace."""
        stretch, bounds, last = _stretch(rows, after, limit, bytes_max), rows[0], rows[-1]
        seq = stretch.reached.seq
        if seq > after.seq:
            event_id = last["id"] if last["seq"] == seq else bounds["id"]
            await self._settled(p, bounds["epoch"], seq, event_id.bytes)
        return stretch


_NOT_THERE = (
    "There is no event at this position: it is a position of another instance, or Postgres has lost commits "
    "since."
)


def _arguments(wanted: Filter, limit: int, bytes_max: int) -> tuple[Any, ...]:
    """$4 to $12 of the statements."""
    correlation_id = None if wanted.correlation_id is None else UUID(wanted.correlation_id)
    types, event_types = sorted(wanted.types) or None, sorted(wanted.event_types) or None
    actor = wanted.actor or (None, None)
    return [UUID(wanted.tenant)], types, event_types, limit, bytes_max, False, correlation_id, *actor


def _stretch(rows: Sequence[Any], after: Place, limit: int, bytes_max: int) -> Stretch:
    """What a statement found. Raises LostPlace."""
    bounds, *found = rows
    if after.seq and bytes(bounds["mark_before"] or b"") != after.mark:
        raise LostPlace(_NOT_THERE)
    entries = tuple([_entry(row) for row in found])
    size = found[-1]["size_so_far"] if found else 0
    if found and (len(entries) == limit or size >= bytes_max):
        reached, within = entries[-1].place, found[-1]["goes_on"]
    else:
        reached = Place(bounds["reached"], bounds["mark"]) if bounds["reached"] > after.seq else after
        within = bounds["goes_on"]
    return Stretch(entries, reached, bounds["head"], size, within is not None)


_ENTRY_COLUMNS: Final = 19


def _entry(row: Any) -> Entry:
    """Of a row of `outbox_page` or `outbox_back`: by the order of its first columns, in half the time that
    their names take."""
    (
        seq, mark, version, event_id, tenant, aggregate_type, key, event_type, actor_type, actor_id,
        target_type, target_id, correlation, causation, spec_rev, revision, recorded_at_ms, extra, payload,
    ) = row[:_ENTRY_COLUMNS]  # fmt: skip
    event = Event(
        event_id.bytes, event_type, actor_type, actor_id, target_type, target_id, correlation.bytes,
        None if causation is None else causation.bytes, spec_rev, recorded_at_ms, extra, payload,
    )  # fmt: skip
    if revision is not None:
        event = revised(event, revision)
    return Entry(Place(seq, mark), Recorded(Stream(tenant.bytes, aggregate_type, key), version, event))


def entry_bytes(entry: Entry) -> int:
    return event_bytes(entry.recorded.event)
