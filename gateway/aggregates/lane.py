"""One aggregate whose appends rules judge: what is known of its state, and the appends on their way to it.

Each append is judged on the state that the ones handed over before it will leave, so that many are under way
together; the log places none of them elsewhere (log/append/pending.py, Link).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.aggregates.running import Place
from gateway.appends import Append, Appended
from gateway.events import Recorded, Stream
from gateway.log.append.pending import Link, Waiter
from gateway.outcomes import Outcome, RuleViolated
from gateway.state import EMPTY, Folded
from gateway.state.rules import Violation

AHEAD_BYTES_MAX: Final = 1024 * 1024
"""Of the states that appends under way will leave: with larger ones, fewer are on their way together."""


class Asked:
    """One append to the aggregate, and who waits for its outcome. The log tells it as it tells any waiter.

    `came`: when; `handed`: when it was handed to the log; `after`: the state that it leaves there, by the
    handlers of `place`. `probing`: it is looked up whether it was committed before, since a rule refuses it
    (`violated`), or its length (None).
    """

    __slots__ = (
        "after", "append", "came", "deadline", "handed", "lane", "link", "number", "outcome", "place",
        "probing", "ruled", "violated", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        append: Append,
        waiter: Waiter,
        number: int,
        times: tuple[float, float],
        ruled: bool,
    ) -> None:
        self.lane = lane
        self.append = append
        self.waiter = waiter
        self.number = number
        self.came, self.deadline = times
        self.ruled = ruled
        self.handed = 0.0
        self.after = EMPTY
        self.link = Link(0)
        self.place = lane.place
        self.outcome: Outcome | None = None
        self.probing = False
        self.violated: RuleViolated | None = None

    def done(self) -> bool:
        """Its outcome counts although its own waiter is gone: others were judged on it."""
        return self.outcome is not None

    def set_result(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.lane.settled(self)

    def recorded(self, length: int) -> tuple[Recorded, ...]:
        stream = self.append.stream
        return tuple([Recorded(stream, length + n, each) for n, each in enumerate(self.append.events, 1)])


class Lane:
    """`tip` is the state that everything handed over leaves; None: not known. `base` was committed, and was
    the state of the stream at a moment not before `current`, by the loop's clock."""

    __slots__ = (
        "ahead_bytes", "base", "busy", "current", "judged", "link", "place", "probes", "settled", "size",
        "stream", "tip", "under_way", "waiting",
    )  # fmt: skip

    def __init__(self, stream: Stream, place: Place, settled: Callable[[Asked], None]) -> None:
        self.stream = stream
        self.settled = settled
        self.waiting: deque[Asked] = deque()
        self.busy = False  # something is read or judged beside the loop
        self.size = 0  # of `tip`, as it is counted
        self.under_way = 0
        self.probes = 0
        self.ahead_bytes = 0
        self.reset(place)

    def reset(self, place: Place) -> None:
        """Nothing that is known holds: another revision of the spec, or another history."""
        self.place = place
        self.base: Folded = EMPTY
        self.tip: Folded | None = None
        self.link: Link | None = None
        self.current = 0.0
        self.judged: tuple[Folded, Asked, Folded | Violation] | None = None

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.under_way or self.probes or self.busy)

    @property
    def room(self) -> bool:
        """Whether another append may be judged on those that are under way."""
        return not self.under_way or self.ahead_bytes < AHEAD_BYTES_MAX

    def read(self, state: Folded, began: float) -> None:
        """Nothing is under way, and this was the state at a moment after `began`."""
        self.base = self.tip = state
        self.link = None
        self.current = began

    def hand(self, asked: Asked, after: Folded, now: float) -> Link:
        """It leaves this state once it is appended; how it hangs on those before it."""
        assert self.tip is not None
        link = Link(self.tip.length + 1, self.link if self.under_way else None, free=not asked.ruled)
        asked.after, asked.link, asked.handed, asked.place = after, link, now, self.place
        self.tip, self.link = after, link
        self.under_way += 1
        self.ahead_bytes += after.size_bytes
        return link

    def over(self, asked: Asked) -> None:
        """It has its outcome."""
        self.under_way -= 1
        self.ahead_bytes -= asked.after.size_bytes
        if type(asked.outcome) is not Appended or not asked.link.placed:
            self.tip = None
        elif asked.place == self.place:
            self.base, self.current = asked.after, max(self.current, asked.handed)
        asked.after = EMPTY

    def take_back(self, asked: Asked) -> None:
        """To be judged once more, in the order in which they came."""
        asked.outcome, asked.probing, asked.violated = None, False, None
        self.waiting.append(asked)
        if len(self.waiting) > 1 and self.waiting[-2].number > asked.number:
            self.waiting = deque(sorted(self.waiting, key=lambda each: each.number))
