"""The lines of one bulk request between reading and answering.

Owns: the order of the lines of one aggregate, and of the answers; and how much is held of them. Lines of
different aggregates are on their way together; of one aggregate, the next line is handed over once the one
before it has its outcome, so that after a failure none of the later ones is written (docs/decisions/0007).
One commit settles hundreds, so what follows from it is done for all of them at once. What waits to be sent:
bulk_told.py.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

import msgspec

from gateway.admit.append import Fault
from gateway.admit.line import Creation, SeveralLine
from gateway.appends import Append, Appended
from gateway.events import Stream
from gateway.http import render
from gateway.http.api.bulk_responses import ConditionMissed, Doubted, Missed, ResponseBuffer, Told, as_line
from gateway.http.outcomes import known, refused, to_look_up, unforeseen
from gateway.outcomes import (
    ConditionFailed,
    Conflict,
    NotCommitted,
    Outcome,
    OutcomeUnknown,
    Quarantined,
    Unchanged,
)

UNDER_WAY_MAX: Final = 2_000
"""Appends handed over, or behind one of their aggregate: enough for full batches."""
UNDER_WAY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Their bytes, which take 2.5 times as much memory: sixteen of the largest calls to Redis, and a quarter of
what may wait in a partition's queue."""
HELD_MAX: Final = 20_000
"""Lines that have no answer yet, or wait for an earlier one that has none: those take 0.4 KB each."""

_FAILURES: Final = (NotCommitted, OutcomeUnknown, Quarantined)
"""What is answered 503 or 504."""
_AFTER_A_FAILURE: Final = NotCommitted("an earlier line of this aggregate was not settled")


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A bug of ours kept a line from being judged."""


Settled = Outcome | Missed | ConditionMissed | Fault | Broken
"""What becomes of a line."""


class Line:
    """What a line asks for, as long as that is under way; then its outcome. The log tells it."""

    __slots__ = ("append", "behind", "failed", "first_type", "number", "otherwise", "outcome", "run", "waits")

    def __init__(
        self,
        number: int,
        judged: Append | Creation | SeveralLine | Fault | NotCommitted | Broken,
        first_type: str | None = None,
        failed: tuple[Stream, ...] = (),
    ) -> None:
        self.number = number
        self.failed = failed  # what it would append to, where it is answered 503 or 504 without that
        self.first_type = first_type  # of one whose events name their aggregates
        self.append: Append | None = None
        self.outcome: Settled | None = None
        self.otherwise: Append | None = None  # in place of one that creates, where there are events already
        if isinstance(judged, Creation):
            self.append, self.otherwise = judged
        elif isinstance(judged, SeveralLine):
            self.append, self.first_type = judged
        elif isinstance(judged, Append):
            self.append = judged
        else:
            self.outcome = judged
        self.behind: tuple[Line, ...] = ()  # the next ones of its aggregates
        self.waits = 0  # for so many
        self.run: Run

    def done(self) -> bool:
        return self.outcome is not None

    def set_result(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.run.settle(self)


class Run:
    def __init__(self, hand_over: Callable[[Iterable[tuple[Append, Line]]], None]) -> None:
        self._hand_over = hand_over
        self._lines: deque[Line] = deque()  # under way, or behind such
        self._waiting = ResponseBuffer()
        self._last: dict[Stream, Line] = {}  # of each stream that has a line under way
        self._failed: set[Stream] = set()
        self._settled: list[Line] = []
        self._under_way = self._under_way_bytes = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # the request's, for its traces

    # -- from the reader

    def add(self, lines: Iterable[Line]) -> None:
        first: list[tuple[Append, Line]] = []
        for line in lines:
            self._lines.append(line)
            append = line.append
            if append is None:
                self._failed.update(line.failed)
                continue
            streams = append.streams
            if self._failed and not self._failed.isdisjoint(streams):
                line.append, line.outcome = None, _AFTER_A_FAILURE
                self._failed.update(streams)
                continue
            line.run = self
            self._under_way += 1
            self._under_way_bytes += append.size_bytes
            for stream in streams:
                ahead = self._last.get(stream)
                self._last[stream] = line
                if ahead is not None and line not in ahead.behind:
                    ahead.behind += (line,)
                    line.waits += 1
            if not line.waits:
                first.append((append, line))
        self._hand_over(first)
        self._collect()

    @property
    def full(self) -> bool:
        """Whether no more lines may be added now. It does not depend on the client, who may send all of its
        lines before it reads an answer."""
        return (
            self._under_way >= UNDER_WAY_MAX
            or self._under_way_bytes >= UNDER_WAY_BYTES_MAX
            or len(self._lines) >= HELD_MAX
        )

    async def room(self) -> None:
        """Returns when more lines may be added."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self, last: Line | None) -> None:
        if last is not None:
            self._lines.append(last)
        self._ended = True
        self._collect()
        self._changed.set()

    # -- from the log

    def settle(self, line: Line) -> None:
        """It has its outcome. What follows from that is done soon, for all that have theirs by then."""
        if not self._settled:
            self._loop.call_soon(self._go_on, context=self._context)
        self._settled.append(line)

    def _go_on(self) -> None:
        settled, self._settled = self._settled, []
        following: list[tuple[Append, Line]] = []
        for line in settled:
            append, outcome = line.append, line.outcome
            assert append is not None and outcome is not None
            if type(outcome) is not Appended:
                if isinstance(outcome, Conflict) and line.otherwise is not None:
                    line.append, line.otherwise, line.outcome = line.otherwise, None, None
                    following.append((line.append, line))
                    continue
                if isinstance(outcome, _FAILURES):
                    self._fail(line, append)
                else:
                    line.outcome = _to_read(line, append, outcome)
            for stream in append.streams:
                if self._last.get(stream) is line:
                    del self._last[stream]
            for behind in line.behind:
                behind.waits -= 1
                if not behind.waits and behind.append is not None:
                    following.append((behind.append, behind))
            self._let_go(line, append)
        self._hand_over(following)
        self._collect()
        self._room.set()

    def _fail(self, line: Line, append: Append) -> None:
        """None of the later lines of its aggregates is handed over."""
        self._failed.update(append.streams)
        left = [*line.behind]
        while left:
            behind = left.pop()
            if behind.append is None:
                continue
            for stream in behind.append.streams:
                self._failed.add(stream)
                if self._last.get(stream) is behind:
                    del self._last[stream]
            left += behind.behind
            behind.outcome = _AFTER_A_FAILURE
            self._let_go(behind, behind.append)

    def _let_go(self, line: Line, append: Append) -> None:
        """It may wait for long until it is told; what it asked for is not held meanwhile."""
        line.append = None
        self._under_way -= 1
        self._under_way_bytes -= append.size_bytes

    # -- to the answerer

    async def settled(self) -> AsyncIterator[list[Told]]:
        """What is told in the order of the lines, several at a time."""
        while True:
            if self._waiting:
                yield self._waiting.take()
            elif self._ended and not self._lines:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _collect(self) -> None:
        """Takes the settled lines in their order. All that is kept of them is what is to be told."""
        lines, waiting = self._lines, self._waiting
        while lines and lines[0].append is None:
            line = lines.popleft()
            outcome = line.outcome
            if type(outcome) is Unchanged:
                answer = known(outcome, batch=False)
                waiting.add(as_line(line.number, answer.status, answer.body, replayed=False))
            elif type(outcome) is Appended:
                receipt = _receipt(line, outcome)
                waiting.add(as_line(line.number, 201, receipt, replayed=outcome.replayed))
            else:
                waiting.add(_refused(line))
        if waiting:
            self._changed.set()


def _refused(line: Line) -> Told:
    outcome = line.outcome
    assert outcome is not None and not isinstance(outcome, Conflict | ConditionFailed)
    match outcome:
        case Missed() | ConditionMissed():
            return outcome
        case Fault():
            if to_look_up(outcome) is not None:
                return Doubted(line.number, outcome, line.first_type)
            answer = refused(outcome.refusal)
        case Broken():
            answer = refused(unforeseen("POST"))
        case _:
            answer = known(outcome, batch=line.first_type is not None)
    return as_line(line.number, answer.status, answer.body, replayed=answer.replayed)


def _receipt(line: Line, done: Appended) -> bytes:
    if line.first_type is not None:
        return render.receipt_of_several_json(done, line.first_type)
    return render.receipt_json(done)


def _to_read(line: Line, append: Append, outcome: Settled) -> Settled:
    """What has to be read for a line's answer."""
    if isinstance(outcome, ConditionFailed):
        assert append.condition is not None
        return ConditionMissed(line.number, append.stream.tenant, append.condition)
    if not isinstance(outcome, Conflict):
        return outcome
    which = outcome.which
    first = 0 if append.spread is None else append.spread.order.index(which)
    path = None if line.first_type is None else f"events[{first}].previous_length"
    expected = append.lengths[which]
    return Missed(line.number, append.streams[which], expected, outcome.length, path)
