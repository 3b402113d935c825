"""The lines of one bulk request between reading and answering.

Owns: the order of the lines of one aggregate, and of the answers. Lines of different aggregates are on their
way together; of one aggregate, the next line is handed over once the one before it has its outcome, so that
after a failure none of the later ones is written (docs/decisions/0007). One commit settles hundreds, so what
follows from it is done for all of them at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from isal import isal_zlib

from gateway.admit.append import Fault
from gateway.edge import render
from gateway.events import Append, Appended, NotCommitted, Outcome, OutcomeUnknown, Stream

UNDER_WAY_MAX: Final = 2_000
"""Appends handed over and not yet settled: enough for full batches, few enough to be held in memory."""
PIECE_BYTES: Final = 16 * 1024
"""Answers are sent in pieces of about this size."""
_UNREAD_BYTES: Final = 1024 * 1024
"""Receipts that wait as they are for a client to read them: what a slow connection has under way."""

_AFTER_A_FAILURE: Final = NotCommitted("an earlier line of this aggregate was not settled")


class Line:
    """What a line asks for, or the fault it has; and its outcome once there is one. The log tells it."""

    __slots__ = ("append", "behind", "number", "outcome", "run")

    def __init__(self, number: int, judged: Append | Fault | NotCommitted) -> None:
        self.number = number
        self.append: Append | None = None
        self.outcome: Outcome | Fault | None = None
        if isinstance(judged, Append):
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
        self._lines: deque[Line] = deque()  # not settled, or behind such
        self._told = _Told()
        self._last: dict[Stream, Line] = {}  # of each stream that has a line under way
        self._failed: set[Stream] = set()
        self._settled: list[Line] = []
        self._under_way = 0
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
                self._changed.set()
                continue
            stream = append.stream
            if self._failed and stream in self._failed:
                line.outcome = _AFTER_A_FAILURE
                self._changed.set()
                continue
            line.run = self
            self._under_way += 1
            ahead = self._last.get(stream)
            self._last[stream] = line
            if ahead is None:
                first.append((append, line))
            else:
                ahead.behind = line
        self._hand_over(first)

    async def room(self) -> None:
        """Returns when more lines may be added."""
        while self._under_way >= UNDER_WAY_MAX:
            self._room.clear()
            await self._room.wait()

    def end(self, last: Line | None) -> None:
        if last is not None:
            self._lines.append(last)
        self._ended = True
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
            assert line.append is not None
            behind = line.behind
            if isinstance(line.outcome, NotCommitted | OutcomeUnknown):
                self._fail(line, line.append.stream)
            elif behind is None:
                del self._last[line.append.stream]
            else:
                assert behind.append is not None
                following.append((behind.append, behind))
        self._under_way -= len(settled)
        self._hand_over(following)
        self._collect()
        self._changed.set()
        self._room.set()

    def _fail(self, line: Line, stream: Stream) -> None:
        """None of the later lines of the stream is handed over."""
        self._failed.add(stream)
        del self._last[stream]
        behind = line.behind
        while behind is not None:
            behind.outcome = _AFTER_A_FAILURE
            self._under_way -= 1
            behind = behind.behind

    # -- to the answerer

    @property
    def idle(self) -> bool:
        """Nothing further can be told at this moment."""
        return not self._told

    async def settled(self) -> AsyncIterator[bytes | Line]:
        """Receipts in the order of their lines, several at a time, and between them the lines refused."""
        while True:
            self._collect()
            if self._told:
                yield self._told.take()
            elif self._ended and not self._lines:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _collect(self) -> None:
        """Takes the settled lines in their order; of what was appended, the receipts alone are kept."""
        lines, told = self._lines, self._told
        while lines and (outcome := lines[0].outcome) is not None:
            line = lines.popleft()
            if isinstance(outcome, Appended):
                told.add(as_line(line.number, 201, render.receipt_json(outcome), replayed=outcome.replayed))
            else:
                told.put(line)


def as_line(number: int, status: int, body: bytes, *, replayed: bool) -> bytes:
    """The single answer's body with `line` and `status` in front."""
    again = b'"replayed":true,' if replayed else b""
    return b'{"line":%d,"status":%d,%b%b\n' % (number, status, again, body[1:])


class _Told:
    """What waits to be sent. A client may send all of its lines before it reads an answer: beyond
    `_UNREAD_BYTES`, receipts wait compressed."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | Line | _Packed] = deque()
        self._open: list[bytes] = []
        self._open_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces or self._open)

    def add(self, receipt: bytes) -> None:
        self._open.append(receipt)
        self._open_bytes += len(receipt)
        if self._open_bytes >= PIECE_BYTES:
            self._close()

    def put(self, line: Line) -> None:
        """One that was refused."""
        self._close()
        self._pieces.append(line)

    def _close(self) -> None:
        """What is added next begins another piece."""
        if self._open:
            piece = b"".join(self._open)
            waits = len(self._pieces) * PIECE_BYTES >= _UNREAD_BYTES
            self._pieces.append(_Packed(isal_zlib.compress(piece, 1)) if waits else piece)
            self._open, self._open_bytes = [], 0

    def take(self) -> bytes | Line:
        """What is to be sent next. There is something."""
        if not self._pieces:
            self._close()
        piece = self._pieces.popleft()
        return isal_zlib.decompress(piece.receipts) if isinstance(piece, _Packed) else piece


@dataclass(frozen=True, slots=True)
class _Packed:
    receipts: bytes
