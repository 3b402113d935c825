"""The newest events of long streams as this gateway committed them: states that are kept are folded from
these, and none is read back.

Owns: which events are here, and when they still count. Must not know: how states are folded and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.events import Event, Recorded, Stream, event_bytes

RECENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all streams together. Beyond, events of a stream are read back: that costs more, and memory nothing."""
AGE_S: Final = 60.0
"""How long a stream's events stay without its state being kept. One that takes longer for so many events has
few, and what is erased in Postgres is not to be here much longer."""
_EVENT_BYTES: Final = 600  # an event without its data, rounded up

History = tuple[int, int]
"""How often the gateway has seen committed events of a stream's partition given up, and the epoch in which
they last were (log.py): what was committed in another history may be none of this one's."""


@dataclass(slots=True)
class _Run:
    """Events of a stream that follow on each other; `first` is the version of the first."""

    history: History
    since_s: float
    first: int
    events: list[Event]
    size: int = 0


class RecentEvents:
    """`history_of` takes a stream; `now` is a clock that never goes back."""

    def __init__(
        self,
        history_of: Callable[[Stream], History],
        now: Callable[[], float],
        bytes_max: int = RECENT_BYTES_MAX,
    ) -> None:
        self._history_of = history_of
        self._now = now
        self._bytes_max = bytes_max
        self._runs: dict[Stream, _Run] = {}  # in the order of `since_s`
        self.size_bytes = 0

    def __len__(self) -> int:
        """Of how many streams it holds events."""
        return len(self._runs)

    def begin(self, stream: Stream, first: int) -> bool:
        """The stream's events from version `first` on are held, if they are committed here. False: some are
        already, or there is no room."""
        now = self._now()
        while self._runs and now - next(iter(self._runs.values())).since_s > AGE_S:
            self._drop(next(iter(self._runs)))
        if stream in self._runs or self.size_bytes >= self._bytes_max:
            return False
        self._runs[stream] = _Run(self._history_of(stream), now, first, [])
        return True

    def add(self, stream: Stream, first: int, events: Sequence[Event]) -> bool:
        """Committed just now, at versions from `first` on. Whether they are held."""
        run = self._runs.get(stream)
        if run is None:
            return False
        if first != run.first + len(run.events):  # another gateway's came between
            self._drop(stream)
            return False
        run.events += events
        size = len(events) * _EVENT_BYTES
        for event in events:
            size += event_bytes(event)
        run.size += size
        self.size_bytes += size
        if self.size_bytes > self._bytes_max:
            self._drop(stream)
            return False
        return True

    def take(self, stream: Stream, first: int, count: int, history: History) -> tuple[Recorded, ...]:
        """These events, which are held no longer, nor are those before; none where one of them is missing.
        `history`: in which the state was folded that they follow on."""
        run = self._runs.get(stream)
        if run is None:
            return ()
        if run.history != history or self._now() - run.since_s > AGE_S:
            self._drop(stream)
            return ()
        begin = first - run.first
        taken = run.events[begin : begin + count] if begin >= 0 else []
        if len(taken) < count:
            return ()
        self._drop(stream)
        rest = _Run(history, self._now(), first + count, [])
        self._runs[stream] = rest
        self.add(stream, rest.first, run.events[begin + count :])
        return tuple([Recorded(stream, n, event) for n, event in enumerate(taken, first)])

    def _drop(self, stream: Stream) -> None:
        self.size_bytes -= self._runs.pop(stream).size
