"""The outbox, read in (p, seq) order up to what is committed: pages without gaps, filtered if asked.

Owns: what a reader may ask for, and how far one page goes. Every page is one snapshot of Postgres, in which
all that was committed stands without a hole, so a page never skips what commits later. Nothing is handed on
before it is settled (log/epoch/settling.py), no event and no place. Must not know: HTTP, subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.admit.items import Items, matches
from gateway.events import Recorded, Stream, event_bytes, tag_key
from gateway.log.entries import event_of
from gateway.log.epoch.partition import partition_of
from gateway.log.postgres import Postgres
from gateway.relay.matches import matches_after
from gateway.relay.position import BEGINNING, START, Place, Position

# Positions that one statement looks at: bounds its time where nearly nothing passes the filter.
STRETCH = 20_000
# A page is read whole, so it is bounded in bytes too; an event that is larger comes alone.
PAGE_BYTES = 4 * 1024 * 1024
# For how long one page looks for events that pass its filter before it answers with those it has.
SEARCH_S = 2.0


Settled = Callable[[int, int, int, bytes], Awaitable[None]]
"""Returns once it is settled that an event stands there: p, the epoch it was read in, seq, its id. Raises
PostgresTrouble."""


class LostPlace(Exception):
    """Postgres holds no such event where a reader says that it stands."""


class Filter(msgspec.Struct, frozen=True):
    """Whose events, and which of them: empty sets take all that a spec could declare. The system's own, whose
    types begin with an underscore, are taken where they are named. With `items`, one of them has to match
    besides."""

    tenant: bytes
    types: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()
    items: Items = ()

    def takes_type(self, aggregate_type: str) -> bool:
        return aggregate_type in self.types if self.types else aggregate_type[0] != "_"

    def takes(self, stream: Stream, event_type: str) -> bool:
        """Whether it may take such events; with `items`, `picks` says which of them."""
        return (
            stream.tenant == self.tenant
            and self.takes_type(stream.aggregate_type)
            and (not self.event_types or event_type in self.event_types)
        )

    def picks(self, entry: Entry) -> bool:
        """Of an entry that has all its tags, as far as `items` name them."""
        recorded = entry.recorded
        return matches(self.items, recorded.stream, recorded.event.type, entry.tags)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A committed event with its place in the partition. `tags`: its declared ones, where they were asked
    for."""

    place: Place
    recorded: Recorded
    tags: tuple[str, ...] = ()


class Stretch(msgspec.Struct, frozen=True):
    """What was found between two places. `reached` lies behind all that was looked at, taken or not;
    `head` is the last committed seq."""

    entries: tuple[Entry, ...]
    reached: Place
    head: int

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
    """Every read raises PostgresTrouble when Postgres, or its standby, can't answer, LostPlace where nobody
    can stand."""

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

    async def page(self, wanted: Filter, after: Position, limit: int, bytes_max: int = PAGE_BYTES) -> Page:
        """The next events of a tenant, at most `limit`; fewer, even none, do not mean that it was all."""
        p = self.partition(wanted.tenant)
        if any(number != p for number, _ in after.places):
            raise LostPlace("It is a position of another tenant, or of another instance.")
        entries: list[Entry] = []
        place = after.at(p)
        loop = asyncio.get_running_loop()
        until, left = loop.time() + SEARCH_S, bytes_max
        while True:
            stretch = await self.stretch(p, wanted, place, limit - len(entries), left)
            entries += stretch.entries
            place = stretch.reached
            left -= sum(map(entry_bytes, stretch.entries))
            if stretch.caught_up or len(entries) >= limit or left <= 0 or loop.time() > until:
                return Page(p, tuple(entries), after.moved(p, place), stretch.caught_up)

    async def stretch(
        self, p: int, wanted: Filter, after: Place, limit: int, bytes_max: int = PAGE_BYTES
    ) -> Stretch:
        """The next events of a partition that pass, among the next `STRETCH` positions; of items with tags,
        as far as the index of tags leads at once."""
        if wanted.items:
            return await self._matching(p, wanted, after, limit, bytes_max)
        types, event_types = sorted(wanted.types) or None, sorted(wanted.event_types) or None
        rows = await self._postgres.fetch(
            "outbox_page", p, after.seq, STRETCH, [UUID(wanted.tenant)], types, event_types, limit, bytes_max,
            False,
        )  # fmt: skip
        return await self._stretch(p, rows, after, limit, bytes_max)

    async def _matching(self, p: int, wanted: Filter, after: Place, limit: int, bytes_max: int) -> Stretch:
        found = await matches_after(self._postgres, p, wanted.tenant, wanted.items, after.seq, limit, STRETCH)
        types, event_types = sorted(wanted.types) or None, sorted(wanted.event_types) or None
        rows = await self._postgres.fetch(
            "outbox_page_at", p, after.seq, max(found.reached - after.seq, 0), [UUID(wanted.tenant)], types,
            event_types, limit, bytes_max, False, found.seqs,
        )  # fmt: skip
        return await self._stretch(p, rows, after, limit, bytes_max)

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
            PAGE_BYTES, True,
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
        stretch, last = _stretch(rows, after, limit, bytes_max), rows[-1]
        seq = stretch.reached.seq
        if seq > after.seq:
            event_id = last["id"] if last["seq"] == seq else last["id_reached"]
            await self._settled(p, last["epoch"], seq, event_id.bytes)
        return stretch


def _stretch(rows: Sequence[Any], after: Place, limit: int, bytes_max: int) -> Stretch:
    """What a statement found. Raises LostPlace."""
    first, last = rows[0], rows[-1]
    if after.seq and bytes(first["mark_before"] or b"") != after.mark:
        raise LostPlace(
            "The event that it stands behind is not there: it is a position of another instance, or "
            "Postgres lost commits since."
        )
    if last["seq"] is None:
        return Stretch((), _reached(last, after), first["head"])
    entries = tuple([_entry(row) for row in rows])
    cut = len(entries) == limit or last["size_so_far"] >= bytes_max
    return Stretch(entries, entries[-1].place if cut else _reached(last, after), first["head"])


def _reached(row: Any, after: Place) -> Place:
    """The end of what was looked at; without progress the place as it was."""
    return Place(row["reached"], row["mark_reached"]) if row["reached"] > after.seq else after


def _entry(row: Any) -> Entry:
    stream = Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])
    return Entry(Place(row["seq"], row["mark"]), Recorded(stream, row["version"], event_of(row)))


def entry_bytes(entry: Entry) -> int:
    return event_bytes(entry.recorded.event)
