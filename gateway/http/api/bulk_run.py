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
from gateway.admit.line import Creation
from gateway.events import (
    Append,
    Appended,
    ConditionFailed,
    Conflict,
    NotCommitted,
    Outcome,
    OutcomeUnknown,
    Quarantined,
    Stream,
    Unchanged,
)
from gateway.http import render
from gateway.http.api.bulk_responses import Doubted, Missed, ResponseBuffer, Told, as_line
from gateway.http.outcomes import known, refused, to_look_up, unforeseen

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
    """What is known of a line that a bug of ours kept from being judged: its aggregate, if it names one."""

    stream: Stream | None


class Line:
    """What a line asks for, as long as that is under way; then its outcome. The log tells it."""

    __slots__ = ("append", "behind", "number", "otherwise", "outcome", "run")

    def __init__(self, number: int, judged: Append | Creation | Fault | NotCommitted | Broken) -> None:
        self.number = number
        self.append: Append | None = None
        self.outcome: Outcome | Missed | Fault | Broken | None = None
        self.otherwise: Append | None = None  # in place of one that creates, where there are events already
        if isinstance(judged, Creation):
            self.append, self.otherwise = judged
        elif isinstance(judged, Append):
            self.append = judged
        else:
            self.outcome = judged
        self.behind: Line | None = None  # the next one of its aggregate
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
                if isinstance(line.outcome, Broken) and line.outcome.stream is not None:
                    self._failed.add(line.outcome.stream)
                continue
            stream = append.stream
            if self._failed and stream in self._failed:
                line.append, line.outcome = None, _AFTER_A_FAILURE
                continue
            line.run = self
            self._under_way += 1
            self._under_way_bytes += append.size_bytes
            ahead = self._last.get(stream)
            self._last[stream] = line
            if ahead is None:
                first.append((append, line))
            else:
                ahead.behind = line
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
            append, outcome, behind = line.append, line.outcome, line.behind
            assert append is not None
            if type(outcome) is not Appended:
                if isinstance(outcome, Conflict) and line.otherwise is not None:
                    line.append, line.otherwise, line.outcome = line.otherwise, None, None
                    following.append((line.append, line))
                    continue
                if isinstance(outcome, _FAILURES):
                    self._fail(behind, append.stream)
                    behind = None
                elif isinstance(outcome, Conflict):
                    line.outcome = Missed(line.number, append.stream, append.expected, outcome.length)
            if behind is not None:
                assert behind.append is not None
                following.append((behind.append, behind))
            else:
                del self._last[append.stream]
            self._let_go(line, append)
        self._hand_over(following)
        self._collect()
        self._room.set()

    def _fail(self, behind: Line | None, stream: Stream) -> None:
        """None of the later lines of the stream is handed over."""
        self._failed.add(stream)
        while behind is not None:
            assert behind.append is not None
            behind.outcome = _AFTER_A_FAILURE
            self._let_go(behind, behind.append)
            behind = behind.behind

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
                receipt = render.receipt_json(outcome)
                waiting.add(as_line(line.number, 201, receipt, replayed=outcome.replayed))
            else:
                waiting.add(_refused(line))
        if waiting:
            self._changed.set()


def _refused(line: Line) -> Told:
    outcome = line.outcome
    assert outcome is not None and not isinstance(outcome, Conflict | ConditionFailed)
    match outcome:
        case Missed():
            return outcome
        case Fault():
            if to_look_up(outcome) is not None:
                return Doubted(line.number, outcome)
            answer = refused(outcome.refusal)
        case Broken():
            answer = refused(unforeseen("POST"))
        case _:
            answer = known(outcome, batch=False)
    return as_line(line.number, answer.status, answer.body, replayed=answer.replayed)
