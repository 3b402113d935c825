"""States of aggregates as they were after an event, for rules that see `^`.

Owns: the states that are kept while events are folded. What is not kept is folded from the outbox, up to the
event: so a state depends on the stream and the spec's revision, and on nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway.events import Recorded, Stream
from gateway.follow.events import PAGE_BYTES, Events
from gateway.follow.model import ROWS_BYTES_MAX, Event
from gateway.follow.threads import Steps, Turn, data_bytes, fold_in_turns, folding
from gateway.state import EMPTY, Folded, presenting
from spec.handlers import DEFAULT_HANDLER, Handler
from spec.model import Spec

BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the states that are kept, and of those that are folded together."""
_EVENTS_AT_ONCE: Final = 1000


class AggregateStates:
    """Of one tenant in partition `p`, by one revision of the spec."""

    def __init__(self, spec: Spec, events: Events, p: int, bytes_max: int = BYTES_MAX) -> None:
        self._events = events
        self._p = p
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Stream, Folded] = OrderedDict()
        self._bytes = 0
        self._reached = -1
        self._present: Final = presenting(spec)
        self._handlers: Final = {
            (name, event): each.handler
            for name, declared in spec.aggregate_types.items()
            for event, each in declared.events.items()
        }

    def _handler(self, aggregate_type: str, event_type: str) -> Handler:
        return self._handlers.get((aggregate_type, event_type), DEFAULT_HANDLER)

    def bound(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._evict()

    async def after(self, events: Sequence[Event], wanted: Callable[[Event], bool]) -> Mapping[int, bytes]:
        """By their seqs, the states after those of the events that are `wanted`, as JSON: as many as are no
        longer than ROWS_BYTES_MAX together. `events` are all of their aggregates' in a page."""
        of: dict[Stream, list[Event]] = {}
        for each in events:
            of.setdefault(each.recorded.stream, []).append(each)
        needed = {stream: found for stream, found in of.items() if any(map(wanted, found))}
        states: dict[int, bytes] = {}
        before: dict[Stream, Folded] = {}
        size = 0
        for stream, found in needed.items():
            version, seq = found[0].recorded.version, found[0].place.seq
            before[stream] = await self._before(stream, version - 1, seq - 1)
            size += len(before[stream].data_json)
            if size > BYTES_MAX:
                await self._fold_all({each: needed[each] for each in before}, before, wanted, states)
                before, size = {}, 0
        await self._fold_all({each: needed[each] for each in before}, before, wanted, states)
        return states

    async def at(self, stream: Stream, up_to: int) -> Folded:
        """As it is after its events up to the seq `up_to`, where `advance` has come."""
        kept = self._kept.get(stream)
        if kept is not None and self._reached == up_to:
            self._kept.move_to_end(stream)
            return kept
        return await self._before(stream, None, up_to)

    async def advance(self, events: Sequence[Event], reached: int) -> None:
        """Folds the events of a page, which are all of their aggregates', into the states that are kept; from
        here on `at` takes those for what they are at the seq `reached`, without a look."""
        of: dict[Stream, list[Event]] = {}
        for each in events:
            if each.recorded.stream in self._kept:
                of.setdefault(each.recorded.stream, []).append(each)
        for stream, found in of.items():
            if self._kept[stream].length != found[0].recorded.version - 1:
                self._forget(stream)
        known = {stream: found for stream, found in of.items() if stream in self._kept}
        before = {stream: self._kept[stream] for stream in known}
        await self._fold_all(known, before, lambda _: False, {})
        self._reached = reached

    async def _fold_all(
        self,
        of: Mapping[Stream, Sequence[Event]],
        before: Mapping[Stream, Folded],
        wanted: Callable[[Event], bool],
        states: dict[int, bytes],
    ) -> None:
        found = [each for events in of.values() for each in events]
        size = data_bytes(found) + sum([len(each.data_json) for each in before.values()])
        held = sum(map(len, states.values()))
        await folding(len(found), size, partial(self._fold, of, before, wanted, states, held))

    def _forget(self, stream: Stream) -> None:
        self._bytes -= self._kept.pop(stream).size_bytes

    async def _before(self, stream: Stream, length: int | None, up_to: int) -> Folded:
        """The state after `length` events, those up to the seq `up_to`; None: as many as there are."""
        if length == 0:
            return EMPTY
        folded = self._kept.get(stream, EMPTY)
        if folded.length == length:
            return folded
        if length is not None and folded.length > length:
            folded = EMPTY
        while length is None or folded.length < length:
            page = await self._events.stream(stream, folded.length + 1, self._p, up_to, _EVENTS_AT_ONCE)
            if not page:
                break
            size = data_bytes(page)
            recorded = [each.recorded for each in page]
            work = partial(self._folded, folded, recorded)
            folded = await folding(len(page), size + len(folded.data_json), work)
            if len(page) < _EVENTS_AT_ONCE and size < PAGE_BYTES:
                break
        self._keep(stream, folded)
        return folded

    def _folded(self, before: Folded, events: Sequence[Recorded], turn: Turn) -> Steps[Folded]:
        handler = partial(self._handler, events[0].stream.aggregate_type)
        clean = replace(before, errors=(), errors_total=0)
        return fold_in_turns(clean, events, handler, turn, self._present)

    def _fold(
        self,
        of: Mapping[Stream, Sequence[Event]],
        before: Mapping[Stream, Folded],
        wanted: Callable[[Event], bool],
        states: dict[int, bytes],
        held: int,
        turn: Turn,
    ) -> Steps[None]:
        for stream, events in of.items():
            folded, pending = before[stream], list[Recorded]()
            for each in events:
                pending.append(each.recorded)
                if wanted(each):
                    folded, pending = (yield from self._folded(folded, pending, turn)), []
                    held += len(folded.data_json)
                    if held <= ROWS_BYTES_MAX:
                        states[each.place.seq] = folded.data_json
            if pending:
                folded = yield from self._folded(folded, pending, turn)
            self._keep(stream, folded)

    def _keep(self, stream: Stream, folded: Folded) -> None:
        gone = self._kept.pop(stream, None)
        self._bytes += folded.size_bytes - (0 if gone is None else gone.size_bytes)
        self._kept[stream] = folded
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._bytes_max and self._kept:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.size_bytes
