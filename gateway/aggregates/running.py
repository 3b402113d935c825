"""States of long streams that follow the commits of this gateway, event by event: none is read back.

Owns: which states run and still hold, and what was committed since. What takes long to fold only waits here,
for a fold beside the event loop. Must not know: how states are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.events import Event, Recorded, Stream, event_bytes
from gateway.log.entries import SequencedAppend
from gateway.state import AT_ONCE_LOOKS, Budget, Folded, Folding, TakesLong, is_simple
from gateway.state.values import Fields, decode_fields
from spec.handlers import DEFAULT_HANDLER, Handler

RUNNING_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all streams together. Beyond, events of a stream are read back: that costs more, and memory nothing."""
AGE_S: Final = 60.0
"""How long a stream is followed without a state that is published. One that takes longer for so many events
has few, and what is erased in Postgres is not to be here much longer."""
PUBLISH_EVERY: Final = 250
"""Events between two states that are published; to publish one takes as long as to merge ten."""
STATE_BYTES_MAX: Final = 64 * 1024
DATA_BYTES_MAX: Final = 16 * 1024
MERGE_BYTES_MAX: Final = 4 * 1024
"""Of a state that runs, with what was merged into it since it was published; of an event's data; and of data
that merge where the event loop has committed them. Larger ones wait, for a fold in pieces."""
FOLDED_AT_ONCE: Final = 25
"""Events of one stream, whatever their handlers do: under 10 ms."""
MERGED_BYTES_MAX: Final = 400_000
"""Of one commit's events, each with _EVENT_BYTES: under 10 ms, whatever fields the data have."""
_EVENT_BYTES: Final = 600  # an event without its data, rounded up
_RUN_BYTES: Final = 2_000  # a state that runs, without its fields
_OBJECT: Final = ord("{")

History = tuple[int, int]
"""How often the gateway has seen committed events of a stream's partition given up, and the epoch in which
they last were (log.py): what was committed in another history may be none of this one's."""

Place = tuple[Stream, int, int]
"""The stream, the spec's revision, and how often the stream's history was cut off."""
Part = tuple[Stream, int, Sequence[Event]]
"""Events of a stream that follow on each other, the first of which has this version."""
Published = tuple[Place, int, Folded]
"""A state, where it holds, and the epoch of the last rewind before it."""


@dataclass(slots=True)
class _Run:
    """Events of a stream that follow on each other; `first` is the version of the first. `folding` is the
    state before them, where it runs: at `place`, by `handler_of`. `waits`: it no longer may."""

    history: History
    since_s: float
    first: int
    events: list[Event] = field(default_factory=list)
    size: int = 0
    waits: bool = False
    folding: Folding | None = None
    place: Place = (Stream(b"", "", ""), 0, 0)
    handler_of: Callable[[str], Handler] = lambda _: DEFAULT_HANDLER
    published: int = 0
    """The version that follows on the last state that was published."""
    fields: Fields = field(default_factory=dict)
    """Of `folding`, which does not know yet of `merged` bytes, the last of which were recorded `at_ms`."""
    merges: bool = False
    """Whether more may merge: the state runs, and nothing waits or is to be published."""
    merged: int = 0
    at_ms: int = 0
    simple: dict[str, bool] = field(default_factory=dict)
    merging: set[str] = field(default_factory=set)
    """Of the event types that were seen, those whose data merge."""

    def is_simple(self, event_type: str) -> bool:
        """Whether events of the type are folded at once."""
        found = self.simple.get(event_type)
        if found is None:
            handler = self.handler_of(event_type)
            found = self.simple[event_type] = is_simple(handler)
            if handler == DEFAULT_HANDLER:
                self.merging.add(event_type)
        return found


class RunningStates:
    """`history_of` takes a stream; `now` is a clock that never goes back; `state_bytes_max` is what a state
    may be."""

    def __init__(
        self,
        history_of: Callable[[Stream], History],
        now: Callable[[], float],
        state_bytes_max: int,
        bytes_max: int = RUNNING_BYTES_MAX,
    ) -> None:
        self._history_of = history_of
        self._now = now
        self._state_bytes_max = state_bytes_max
        self._bytes_max = bytes_max
        self._full = bytes_max // 2  # the rest is for what is to be followed yet
        self._may_run = state_bytes_max >= 2 * STATE_BYTES_MAX  # what is merged surely fits
        self._runs: dict[Stream, _Run] = {}  # in the order of `since_s`
        self.size_bytes = 0
        self.behind: dict[Stream, None] = {}
        """Whose states run, and have not come to what was committed last."""

    def __contains__(self, stream: Stream) -> bool:
        """Whether it is followed."""
        return stream in self._runs

    def begin(self, stream: Stream, first: int) -> bool:
        """The stream is followed from version `first` on. False: it is already, or there is no room."""
        now = self._now()
        while self._runs and now - next(iter(self._runs.values())).since_s > AGE_S:
            self.drop(next(iter(self._runs)))
        if stream in self._runs or self.size_bytes >= self._bytes_max:
            return False
        self._runs[stream] = _Run(self._history_of(stream), now, first)
        return True

    def merge(self, placed: Sequence[SequencedAppend]) -> list[Part]:
        """Folds what was committed just now, as far as its data merge into states that run; returns the rest,
        which is to be added. In one loop, since each append pays for it."""
        runs, rest, left = self._runs, list[Part](), MERGED_BYTES_MAX
        for each in placed:
            stream, first, events = each.stream, each.first_version, each.events
            if each.spread is not None:
                parts = zip(each.places(), events, strict=True)
                rest += [(stream, version, (event,)) for (stream, version), event in parts]
                continue
            run = runs.get(stream)
            if run is None or run.first != first:
                rest.append((stream, first, events))
                continue
            for event in events:
                data = event.payload
                if not run.merges or event.type not in run.merging or not data or data[0] != _OBJECT:
                    break
                size = len(data)
                if size > MERGE_BYTES_MAX or left < 0:
                    break
                try:
                    if not data.isascii():
                        data.decode()  # as `read` does
                    fields = decode_fields(data)
                except ValueError:  # none that the edge let in
                    break
                run.fields.update(fields)
                run.at_ms = event.recorded_at_ms
                run.merged += size
                run.size += size
                self.size_bytes += size
                run.first += 1
                left -= size + _EVENT_BYTES
                if (
                    run.first % PUBLISH_EVERY == 1
                    or run.merged > STATE_BYTES_MAX
                    or self.size_bytes > self._full
                ):
                    self.behind[stream] = None
                    run.merges = False
            if run.first < first + len(events):
                rest.append((stream, run.first, events[run.first - first :]))
        return rest

    def add(self, stream: Stream, first: int, events: Sequence[Event]) -> bool:
        """Committed just now, at versions from `first` on. Whether the stream is followed."""
        run = self._runs.get(stream)
        if run is None:
            return False
        if first != run.first + len(run.events):  # another gateway's came between
            self.drop(stream)
            return False
        run.events += events
        run.merges = False
        size = len(events) * _EVENT_BYTES + sum(map(event_bytes, events))
        run.size += size
        self.size_bytes += size
        if self.size_bytes > self._bytes_max:
            self.drop(stream)
            return False
        if run.folding is not None:
            self.behind[stream] = None
        return True

    def start(self, place: Place, rewound: int, folded: Folded, handler_of: Callable[[str], Handler]) -> None:
        """From `folded` on, which was folded at this place in the epoch `rewound`, the state runs, if the
        stream is followed without a gap."""
        stream, _, rewinds = place
        run = self._runs.get(stream)
        if run is None or run.folding is not None or run.waits or not self._may_run:
            return
        known = folded.length + 1 - run.first
        if run.history != (rewinds, rewound) or not 0 <= known <= len(run.events):
            self.drop(stream)
            return
        self._begin_with(run, run.first + known)
        run.place, run.handler_of, run.simple, run.merging = place, handler_of, {}, set()
        self._go_on(stream, run, folded)

    def fold_on(self, stream: Stream) -> Published | None:
        """Folds what was committed to a stream that is `behind`, as far as one state that is published; None:
        there is none to publish, and perhaps the stream is followed no longer. With an event that may take
        long, the state runs no longer."""
        del self.behind[stream]
        run = self._runs[stream]
        folding = run.folding
        assert folding is not None
        if run.merged:
            folding.merged(run.first - 1, run.at_ms, run.merged)
            run.merged = 0
        taken = 0
        try:
            for event in run.events[:FOLDED_AT_ONCE]:
                run.waits = len(event.payload or b"") > DATA_BYTES_MAX or not run.is_simple(event.type)
                if run.waits or self._publishes(run, folding):
                    break
                folding.add(Recorded(stream, run.first, event), Budget(self._state_bytes_max, AT_ONCE_LOOKS))
                run.first += 1
                taken += 1
        except TakesLong:
            self.drop(stream)
            return None
        except Exception:  # a bug: it is not known how far the events were folded
            self.drop(stream)
            raise
        del run.events[:taken]
        self._resize(run, run.size - taken * _EVENT_BYTES)
        if not (run.waits or self._publishes(run, folding)):
            if run.events:
                self.behind[stream] = None
            run.merges = not run.events
            return None
        if not self._holds(run, self._history_of(stream)):
            self.drop(stream)
            return None
        folded = folding.folded()
        self._go_on(stream, run, folded)
        return run.place, run.history[1], folded

    def take(self, stream: Stream, first: int, count: int, history: History) -> tuple[Recorded, ...]:
        """These events, which are held no longer, nor are those before; none where one of them is missing.
        `history`: in which the state was folded that they follow on."""
        run = self._runs.get(stream)
        if run is None:
            return ()
        if not self._holds(run, history):
            self.drop(stream)
            return ()
        begin = first - run.first
        taken = run.events[begin : begin + count] if begin >= 0 else []
        if len(taken) < count:
            return ()
        self._begin_with(run, first + count)
        self._go_on(stream, run)
        return tuple([Recorded(stream, n, event) for n, event in enumerate(taken, first)])

    def drop(self, stream: Stream) -> None:
        self.size_bytes -= self._runs.pop(stream).size
        self.behind.pop(stream, None)

    def _publishes(self, run: _Run, folding: Folding) -> bool:
        """Whether the state that runs is to be published."""
        at_multiple = run.first % PUBLISH_EVERY == 1
        return run.first > run.published and (
            at_multiple or self.size_bytes > self._full or folding.size_at_most > STATE_BYTES_MAX
        )

    def _holds(self, run: _Run, history: History) -> bool:
        return run.history == history and self._now() - run.since_s <= AGE_S

    def _go_on(self, stream: Stream, run: _Run, folded: Folded | None = None) -> None:
        """Follows the stream for another while, from a state on, if it may run."""
        size = len(run.events) * _EVENT_BYTES + sum(map(event_bytes, run.events))
        run.folding, run.merged, run.merges = None, 0, False
        self.behind.pop(stream, None)
        if folded is not None:
            run.waits |= len(folded.data_json) > STATE_BYTES_MAX // 2 or folded.too_large_at is not None
            run.published = run.first
            if not run.waits:
                run.folding = Folding(folded, run.handler_of, self._state_bytes_max)
                run.fields = run.folding.fields
                size += _RUN_BYTES + len(folded.data_json)
                run.merges = not run.events
                if run.events:
                    self.behind[stream] = None
        self._resize(run, size)
        run.since_s = self._now()
        self._runs[stream] = self._runs.pop(stream)

    def _begin_with(self, run: _Run, version: int) -> None:
        """Its events before this version are folded elsewhere."""
        del run.events[: version - run.first]
        run.first = version

    def _resize(self, run: _Run, size: int) -> None:
        self.size_bytes += size - run.size
        run.size = size
