"""A tenant's committed events for followers, in pages that never end within an append.

Owns: where a page may end. Every page is one snapshot of Postgres, and settled (relay/outbox.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.events import Recorded, Stream
from gateway.follow.database import fetch
from gateway.follow.model import Event
from gateway.follow.recent import Recent, end_of
from gateway.follow.threads import Steps, in_turns
from gateway.log.entries import SequencedAppend, event_of
from gateway.relay.outbox import LostPlace, Outbox
from gateway.relay.position import MARK_BYTES, Place

APPEND_EVENTS_MAX: Final = 1000
"""As many as one append has at most; a page has room for two."""

STRETCH: Final = 20_000
PAGE_EVENTS: Final = 2000
"""Some ten milliseconds of a process' event loop, together with what they are written as."""

HANDED_EVENTS: Final = 6000
"""Of those that this gateway has committed: they come from no statement, and the more there are at once, the
fewer rows are written for them."""

PAGE_BYTES: Final = 4 * 1024 * 1024


class Page(msgspec.Struct, frozen=True):
    """Events of whole appends, and the place behind them, and behind all that are other tenants'. `head` is
    the last committed seq of the partition."""

    events: Sequence[Event]
    reached: Place
    head: int

    @property
    def caught_up(self) -> bool:
        return self.reached.seq >= self.head

    def up_to(self, place: Place) -> Page:
        """No further than `place`, where another follower stands."""
        if self.reached.seq <= place.seq:
            return self
        return Page([each for each in self.events if each.place.seq <= place.seq], place, self.head)

    def first_half(self) -> Page:
        """Half of its appends, about, where it has several."""
        events = self.events
        ends = [n for n in range(1, len(events)) if events[n].append_id != events[n - 1].append_id]
        return self.up_to(events[ends[len(ends) // 2] - 1].place)


class Events:
    """Raises PostgresTrouble, and LostPlace where Postgres holds no such event."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        outbox: Outbox,
        *,
        events_max: int = PAGE_EVENTS,
        recent: Recent | None = None,
    ) -> None:
        assert events_max > APPEND_EVENTS_MAX
        self._pool = pool
        self._outbox = outbox
        self._events_max = events_max
        self._recent = recent

    async def committed_here(
        self, tenant: bytes, p: int, after: Place, types: Collection[str], head: int
    ) -> Page | None:
        """The next ones, where this gateway has just committed them; None where it did not. `head` is the
        last committed seq that is known."""
        appends = self.appends_here(p, after)
        if not appends:
            return None
        found = await in_turns(_events_of_all(appends, tenant, types))
        reached = end_of(appends[-1])
        return Page(found, reached, max(head, reached.seq))

    def appends_here(self, p: int, after: Place) -> Sequence[SequencedAppend]:
        """The next ones of all tenants, where this gateway has just committed them; none where it did not."""
        return [] if self._recent is None else self._recent.behind(p, after, HANDED_EVENTS)

    async def page(self, tenant: bytes, p: int, after: Place, types: Collection[str]) -> Page:
        """The next ones; without data where their aggregate type is none of `types`."""
        found: list[Event] = []
        reached = after
        while True:
            rows = await fetch(
                self._pool, "page", p, reached.seq, STRETCH, UUID(tenant), sorted(types), self._events_max,
                PAGE_BYTES,
            )  # fmt: skip
            cut, reached = _read(rows, tenant, reached, self._events_max, found)
            head = rows[0]["head"]
            await self._settled(p, rows, reached, after)
            if reached.seq >= head:
                return Page(found, reached, head)
            if not found:
                return Page(found, reached, head)
            if not cut and reached.seq - found[-1].place.seq >= APPEND_EVENTS_MAX:
                return Page(found, reached, head)  # no event of the last append can be further away
            whole = _without_last(found)
            if whole:
                return Page(whole, whole[-1].place, head)

    async def _settled(self, p: int, rows: Sequence[Any], reached: Place, after: Place) -> None:
        last = rows[-1]
        if reached.seq > after.seq:
            event_id = last["id"] if last["seq"] == reached.seq else last["id_reached"]
            await self._outbox.settle(p, last["epoch"], reached.seq, event_id.bytes)

    async def stream(self, stream: Stream, first: int, p: int, up_to: int, limit: int) -> list[Event]:
        """An aggregate's events from a version on, no further than the seq `up_to`: fewer than `limit`, and
        less than PAGE_BYTES, are all there are."""
        rows = await fetch(
            self._pool, "stream", UUID(stream.tenant), stream.aggregate_type, stream.key, first, p, up_to,
            limit, PAGE_BYTES,
        )  # fmt: skip
        return [
            Event(Place(row["seq"], row["mark"]), Recorded(stream, row["version"], event_of(row)), b"")
            for row in rows
        ]


def _events_of_all(
    appends: Sequence[SequencedAppend], tenant: bytes, types: Collection[str]
) -> Steps[list[Event]]:
    found: list[Event] = []
    for append in appends:
        if append.stream.tenant == tenant:
            found += events_of(append, types)
            yield
    return found


def events_of(append: SequencedAppend, types: Collection[str]) -> list[Event]:
    """As `page` has them."""
    if len(append.events) == 1:  # as nearly always
        if append.stream.aggregate_type[0] == "_" and append.stream.aggregate_type not in types:
            return []
        place = Place(append.last_seq, append.digests[:MARK_BYTES])
        return [
            Event(place, Recorded(append.stream, append.first_version, append.events[0]), append.append_id)
        ]
    marks = [append.digests[at : at + MARK_BYTES] for at in range(0, len(append.digests), 32)]
    found = []
    for n, (stream, version) in enumerate(append.places()):
        if stream.aggregate_type[0] != "_" or stream.aggregate_type in types:
            place = Place(append.first_seq + n, marks[n])
            found.append(Event(place, Recorded(stream, version, append.events[n]), append.append_id))
    return found


def _read(
    rows: Sequence[Any], tenant: bytes, after: Place, limit: int, found: list[Event]
) -> tuple[bool, Place]:
    """Adds the events of a statement; whether it was cut short, and how far it went. Raises LostPlace."""
    first, last = rows[0], rows[-1]
    if after.seq and bytes(first["mark_before"] or b"") != after.mark:
        raise LostPlace(
            "The last event that a follower processed is missing in Postgres: commits were lost since."
        )
    if last["seq"] is None:
        return False, _reached(last, after)
    for row in rows:
        stream = Stream(tenant, row["aggregate_type"], row["aggregate_id"])
        recorded = Recorded(stream, row["version"], event_of(row))
        found.append(Event(Place(row["seq"], row["mark"]), recorded, row["append_id"]))
    cut = len(rows) == limit or last["size_so_far"] >= PAGE_BYTES
    return cut, found[-1].place if cut else _reached(last, after)


def _reached(row: Any, after: Place) -> Place:
    return Place(row["reached"], row["mark_reached"]) if row["reached"] > after.seq else after


def _without_last(events: Sequence[Event]) -> list[Event]:
    """All but those of the last append, of which there may be more."""
    last = events[-1].append_id
    end = len(events)
    while end and events[end - 1].append_id == last:
        end -= 1
    return list(events[:end])
