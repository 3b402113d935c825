"""The states of aggregates as they are committed, kept in memory by aggregate and revision of the spec.

Owns: how far a state is known, and what reading on from there takes: pages of the log, folded where that
holds up nothing else. Must not know: HTTP, and what a state is read for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from gateway.aggregates.prefix_cache import PrefixCache
from gateway.aggregates.running import History, Place, RunningStates
from gateway.aside import Aside
from gateway.catalog.model import Deployed
from gateway.events import Joined, Recorded, Stream
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.state import (
    AT_ONCE_LOOKS,
    EMPTY,
    Folded,
    Present,
    TakesLong,
    fold,
    is_light,
    merged,
    merged_joined,
    presenting,
)
from spec.handlers import DEFAULT_HANDLER, Handler
from spec.model import EventType
from spec.rules import Rule

KEPT_BYTES_MAX: Final = 72 * 1024 * 1024  # also of states as long as can be, with their errors
"""Together with what their streams take in Redis, enough for the aggregates that are read again and again."""
PIECE_S: Final = 0.5
EVENTS_A_PAGE: Final = 1000

FIRST_PAGE: Final = 256
"""Of an aggregate of which nothing is known, as many events as Redis holds of a long stream: more than most
have, and few to have read in vain where its state is kept."""
AT_ONCE_EVENTS: Final = 250
"""Light ones are folded behind appends in less time than a thread would take the event loop."""
LONG: Final = 500
"""So many events are folded rather than a kept state looked for."""
_NONE: Final[Mapping[str, Handler]] = MappingProxyType({})
_NO_EVENTS: Final[Mapping[str, EventType]] = MappingProxyType({})


class Handlers:
    """How events of one type are folded, by one revision of the spec. What the spec no longer declares is
    folded as if it had no handler."""

    __slots__ = ("_by_type", "present")

    present: Present | None
    """What brings events to their present revision; None where all are of it."""

    def __init__(self, deployed: Deployed, aggregate_type: str) -> None:
        declared = deployed.reading.aggregate_types.get(aggregate_type)
        self._by_type: Mapping[str, Handler] = _NONE if declared is None else declared.handlers
        revised = declared is not None and declared.revised
        self.present = presenting(deployed.reading) if revised else None

    def __call__(self, event_type: str) -> Handler:
        return self._by_type.get(event_type, DEFAULT_HANDLER)

    def presented(self, events: tuple[Recorded, ...]) -> tuple[Recorded, ...]:
        """Events that were admitted by an earlier spec, as this one folds them."""
        present = self.present
        return events if present is None else tuple([present(each) for each in events])


class Rules:
    """Which rules an event must keep, by one revision of the spec."""

    __slots__ = ("_events",)

    def __init__(self, deployed: Deployed, aggregate_type: str) -> None:
        declared = deployed.reading.aggregate_types.get(aggregate_type)
        self._events: Mapping[str, EventType] = _NO_EVENTS if declared is None else declared.events

    def __call__(self, event_type: str) -> tuple[Rule, ...]:
        found = self._events.get(event_type)
        return () if found is None else found.rules


class Store(Protocol):
    """What is kept of states beyond this gateway's memory."""

    async def nearest(self, place: Place, deployed: Deployed, last: int) -> Folded:
        """The newest one up to version `last`; that of an empty stream where there is none."""

    @property
    def step(self) -> int:
        """Events between two states that are kept."""

    @property
    def fold_step(self) -> int:
        """Events between two that are folded; a part of `step`."""

    def worth(self, folded: Folded, last: int) -> bool:
        """Whether it is kept on the way to version `last`, or there."""

    async def keep(self, stream: Stream, deployed: Deployed, folded: Folded, rewound: int) -> None:
        """`rewound`: the log's, before the first of its events was read. Raises PostgresTrouble."""


def page_limit(folded: Folded) -> int:
    """How many events are read on from a state at a time."""
    return EVENTS_A_PAGE if folded.length else FIRST_PAGE


class Folder:
    """`nearest` and `keep` are those of kept states (kept.py), where there are any; `due` hears of a stream
    whose state ought to be kept."""

    def __init__(self, log: Log, aside: Aside, bytes_max: int, store: Store | None = None) -> None:
        self._log = log
        self._aside = aside
        self._store = store
        self.bytes_max = bytes_max
        self.due: Callable[[Stream], None] = lambda _: None
        self.kept = PrefixCache(EMPTY, KEPT_BYTES_MAX)
        self.running = RunningStates(self._history, time.monotonic, bytes_max)

    def place(self, stream: Stream, deployed: Deployed) -> Place:
        return stream, deployed.revision, self._log.rewinds(stream.tenant)

    def _history(self, stream: Stream) -> History:
        return self._log.rewinds(stream.tenant), self._log.rewound(stream.tenant)

    async def committed(self, stream: Stream, deployed: Deployed, base: Folded = EMPTY) -> Folded:
        """The state at a moment after the call, read on from `base`, which is one of this place, or from a
        newer one that is kept. Raises PostgresTrouble and Busy."""
        place = self.place(stream, deployed)
        kept = self.kept.get(place)
        folded = kept if kept.length > base.length else base
        looked = False
        while True:
            wanted = Range(stream, folded.length + 1, limit=page_limit(folded), known=folded.length)
            page = await self._log.page(wanted)
            if page.events and not looked:
                looked, before = True, folded
                folded = await self.nearest(place, deployed, before, page.length)
                if folded is not before:
                    continue
            if page.events:
                handlers = Handlers(deployed, stream.aggregate_type)
                folded = await self._folded(place, folded, page.events, handlers)
            if folded.length >= page.length:
                return folded

    async def at(self, stream: Stream, deployed: Deployed, version: int) -> Folded:
        """The state after a committed event. Raises PostgresTrouble and Busy."""
        folded = await self.committed(stream, deployed)
        if folded.length == version:
            return folded
        place, handlers = self.place(stream, deployed), Handlers(deployed, stream.aggregate_type)
        folded = EMPTY if self._store is None else await self._store.nearest(place, deployed, version)
        while folded.length < version:
            limit = min(EVENTS_A_PAGE, version - folded.length)
            page = await self._log.page(Range(stream, folded.length + 1, limit=limit, known=folded.length))
            first, last = folded.length, folded.length + len(page.events)
            while folded.length < last:
                events = page.events[folded.length - first :]
                work = partial(_fold_for, PIECE_S, folded, events, handlers, self.bytes_max)
                folded = await self._aside.run(stream.tenant, work)
            if first == last:
                break  # its history was cut off
        return folded

    async def nearest(self, place: Place, deployed: Deployed, folded: Folded, last: int) -> Folded:
        """`folded`, or the newest kept state up to version `last` where that is much newer. What follows is
        kept then, if it is much too."""
        if self._store is None or last - folded.length <= LONG:
            return folded
        kept = await self._store.nearest(place, deployed, last)
        found = kept if kept.length > folded.length else folded
        if last - found.length > LONG:
            self.due(place[0])
        return found

    async def keep_up(self, stream: Stream, deployed: Deployed, length: int | None = None) -> None:
        """Keeps the newest state at a multiple of the store's step, and on a long way to it others, and folds
        on to the newest at a multiple of its `fold_step`: from what this gateway committed, where that is
        here, else from what it reads. `length`: how long the stream is at least; None: that is read. Raises
        PostgresTrouble and Busy."""
        store = self._store
        assert store is not None
        rewound, place = self._log.rewound(stream.tenant), self.place(stream, deployed)
        history = place[2], rewound
        if length is None:
            length = await self._log.length(stream)
        target = length // store.fold_step * store.fold_step
        last = target // store.step * store.step  # to be kept
        folded, handlers = self.kept.get(place), Handlers(deployed, stream.aggregate_type)
        if folded.length > target and not last:
            return
        known = 0 < folded.length <= target
        # A reader has folded so far, perhaps, who kept none.
        ahead = folded.length == last == target or (folded.length > last and folded.length % store.fold_step)
        if last and (ahead or not known):
            stored = await store.nearest(place, deployed, target)
            if folded.length == last > stored.length:
                await store.keep(stream, deployed, folded, rewound)
            elif stored.length < last or not known:
                folded = stored
        while folded.length < target:
            begun = time.monotonic()
            first = folded.length
            most = min(store.step - first % store.step, target - first)
            held = self.running.take(stream, first + 1, most, history)
            if not (events := held):
                page = await self._log.page(Range(stream, first + 1, limit=most, known=first))
                events = page.events
            at_once = len(events) <= AT_ONCE_EVENTS
            folded = await self._folded(place, folded, events, handlers, at_once=at_once, admitted=bool(held))
            if self.place(stream, deployed) != place or not events:
                return  # its history was cut off meanwhile
            if folded.length % store.step == 0 and store.worth(folded, last):
                await store.keep(stream, deployed, folded, rewound)
            if folded.length < target:  # others have at least half of the time
                await asyncio.sleep(time.monotonic() - begun)
        if handlers.present is None:
            self.running.start(place, rewound, folded, handlers)

    async def _folded(
        self,
        place: Place,
        folded: Folded,
        events: Sequence[Recorded],
        handlers: Handlers,
        *,
        at_once: bool = True,
        admitted: bool = False,
    ) -> Folded:
        """The state after the events: `at_once` if that is light, else beside the event loop."""
        light = self.at_once(place, folded, events, handlers, admitted=admitted) if at_once else None
        if light is not None:
            return light
        first, last = folded.length, folded.length + len(events)
        while folded.length < last:
            folded = await self.piece(place, folded, events[folded.length - first :], handlers)
        return folded

    def at_once(
        self,
        place: Place,
        folded: Folded,
        events: Sequence[Recorded],
        handlers: Handlers,
        *,
        admitted: bool = False,
    ) -> Folded | None:
        """The state after the events, which is kept; None where folding them takes too long to be done where
        everything else waits. `admitted`: as `merged` has it."""
        present, after = handlers.present, None
        if present is None:
            after = merged(folded, events, handlers, self.bytes_max, admitted=admitted)
        if after is None:
            if not is_light(folded, events, handlers):
                return None
            try:
                after = fold(folded, events, handlers, None, self.bytes_max, AT_ONCE_LOOKS, present)
            except TakesLong:
                return None
        self.kept.put(place, after)
        return after

    def merged_at_once(self, place: Place, joined: Joined) -> Folded | None:
        """The same of a stream whose events do no more than merge their data."""
        after = merged_joined(joined, self.bytes_max)
        if after is not None:
            self.kept.put(place, after)
        return after

    async def piece(
        self, place: Place, folded: Folded, events: Sequence[Recorded], handlers: Handlers
    ) -> Folded:
        """The state after as many of the events as PIECE_S and an event allow, folded beside the event loop,
        and kept: between two pieces others of the tenant have their turn. Raises Busy."""
        work = partial(_fold_for, PIECE_S, folded, events, handlers, self.bytes_max)
        folded = await self._aside.run(place[0].tenant, work)
        self.kept.put(place, folded)
        return folded


def _fold_for(
    seconds: float, folded: Folded, events: Sequence[Recorded], handlers: Handlers, bytes_max: int
) -> Folded:
    ends = time.monotonic() + seconds
    return fold(
        folded, events, handlers, lambda: time.monotonic() < ends, bytes_max, present=handlers.present
    )
