"""POST /_/bulk: NDJSON in, NDJSON out, one independent append a line.

Owns: reading and answering at the same time, at constant memory, and the order of the lines of one
aggregate. Lines of different aggregates are on their way together; of one aggregate, the next line is handed
over once the one before it has its outcome, so that after a failure none of the later ones is written.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from uuid_utils import uuid7

from gateway.admit.append import Fault, Minting
from gateway.admit.line import judge_line
from gateway.admit.preconditions import read_correlation_id
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.edge import respond
from gateway.edge.appends import mint
from gateway.edge.outcomes import Answer, Outcomes, appended
from gateway.edge.request import ClientGone, Head, Receive, Refused, Scope, Send, check_json_body
from gateway.errors import Refusal
from gateway.events import Append, Appended, NotCommitted, Outcome, OutcomeUnknown, Stream
from gateway.log.log import Log

logger = logging.getLogger("sluice.edge")

LINES_MAX = 100_000
# Appends handed over and not yet settled: enough for full batches, few enough to be held in memory.
_UNDER_WAY_MAX = 2_000
# Answers are sent in pieces of about this size.
_PIECE_BYTES = 16 * 1024
_UNREAD_BYTES = 1024 * 1024
"""Receipts that wait as they are for a client to read them: what a slow connection has under way."""
NDJSON = b"application/x-ndjson"

_AFTER_A_FAILURE = NotCommitted("an earlier line of this aggregate was not settled")


@dataclass(slots=True)
class _Line:
    """A line on its way: what it asked for, and its outcome once there is one."""

    number: int
    append: Append | None
    outcome: Outcome | Fault | None = None


class Bulk:
    def __init__(self, log: Log, catalog: Catalog, outcomes: Outcomes, config: Config) -> None:
        self._log = log
        self._catalog = catalog
        self._outcomes = outcomes
        self._bulk_bytes_max = config.bulk_bytes_max
        self._line_bytes_max = config.body_bytes_max
        self._event_bytes_max = config.event_bytes_max

    async def bulk(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        head = Head(scope)
        refusal = check_json_body(head, self._bulk_bytes_max, NDJSON)
        if refusal is not None:
            await respond.refuse(send, refusal)
            return
        correlation_id = read_correlation_id(head.get(b"x-correlation-id")) or str(uuid7())
        run = _Run(self._log.append)
        headers = [
            (b"content-type", NDJSON),
            (b"x-correlation-id", correlation_id.encode()),
            respond.API_VERSION,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        reading = asyncio.get_running_loop().create_task(self._read(principal, correlation_id, receive, run))
        try:
            await self._answer(run, send)
        finally:
            # Whoever hung up still gets what was handed over appended; nothing more is read for them.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    # -- reading

    async def _read(self, principal: Principal, correlation_id: str, receive: Receive, run: _Run) -> None:
        number = 0
        try:
            async for several in lines(receive, self._bulk_bytes_max, self._line_bytes_max):
                judge = self._judge(principal, correlation_id)
                for line in several:
                    if number == LINES_MAX:
                        raise Refused(Refusal("too_large", f"At most {LINES_MAX} lines are read at a time."))
                    number += 1
                    if line is None:
                        fault = Refusal("too_large", f"The line is larger than {self._line_bytes_max} bytes.")
                        run.add(_Line(number, None, Fault(fault, None)))
                    elif line.strip():
                        run.add(judge(number, line))
                        if run.full:
                            await run.room()
                            judge = self._judge(principal, correlation_id)
            run.end(None)
        except Refused as refused:
            run.end(_Line(number + 1, None, Fault(refused.refusal, None)))
        except ClientGone:
            run.end(None)
        except Exception:
            run.end(_Line(number + 1, None, NotCommitted("the gateway failed to read on")))
            logger.exception("request_failed", extra={"method": "POST", "correlation_id": correlation_id})

    def _judge(self, principal: Principal, correlation_id: str) -> Callable[[int, bytes], _Line]:
        """By the spec and the clock of this moment: for as many lines as are judged in one go."""
        deployed = self._catalog.deployed(principal.tenant.id)
        spec = None if deployed is None else deployed.spec
        minting = Minting(
            tenant=principal.tenant.id.bytes,
            spec_rev=0 if deployed is None else deployed.revision,
            now_ms=time.time_ns() // 1_000_000,
            correlation_id=bytes.fromhex(correlation_id.replace("-", "")),
            mint=mint,
            event_bytes_max=self._event_bytes_max,
        )

        def judge(number: int, line: bytes) -> _Line:
            judged = judge_line(spec, line, minting)
            return _Line(number, None, judged) if isinstance(judged, Fault) else _Line(number, judged)

        return judge

    # -- answering

    async def _answer(self, run: _Run, send: Send) -> None:
        piece: list[bytes] = []
        size = 0
        async for told in run.settled():
            piece.append(told if isinstance(told, bytes) else _as_line(told.number, await self._tell(told)))
            size += len(piece[-1])
            if size >= _PIECE_BYTES or run.idle:
                await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
                piece.clear()
                size = 0
        await send({"type": "http.response.body", "body": b"".join(piece)})

    async def _tell(self, line: _Line) -> Answer:
        outcome = line.outcome
        assert outcome is not None
        if isinstance(outcome, Fault):
            return await self._outcomes.of_fault(outcome)
        return await self._outcomes.of_append(line.append, outcome, minimal=False)


def _as_line(number: int, answer: Answer) -> bytes:
    """The single answer's body with `line` and `status` in front."""
    replayed = b'"replayed":true,' if answer.replayed else b""
    return b'{"line":%d,"status":%d,%b%b\n' % (number, answer.status, replayed, answer.body[1:])


class _Run:
    """The lines of one request between reading and answering."""

    def __init__(self, append: Callable[[Append], asyncio.Future[Outcome]]) -> None:
        self._append = append
        self._lines: deque[_Line] = deque()  # not settled, or behind such
        self._told = _Told()
        self._waiting: dict[Stream, deque[_Line]] = {}  # behind the line of the stream that is under way
        self._failed: set[Stream] = set()
        self._under_way = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    # -- from the reader

    def add(self, line: _Line) -> None:
        self._lines.append(line)
        if line.append is None:
            self._changed.set()
            return
        self._under_way += 1
        behind = self._waiting.get(line.append.stream)
        if behind is not None:
            behind.append(line)
        else:
            self._waiting[line.append.stream] = deque()
            self._hand_over(line)

    @property
    def full(self) -> bool:
        return self._under_way >= _UNDER_WAY_MAX

    async def room(self) -> None:
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self, last: _Line | None) -> None:
        if last is not None:
            self._lines.append(last)
        self._ended = True
        self._changed.set()

    # -- to the log and back

    def _hand_over(self, line: _Line) -> None:
        assert line.append is not None
        if line.append.stream in self._failed:
            self._settle(line, _AFTER_A_FAILURE)
            return
        future = self._append(line.append)
        future.add_done_callback(lambda done: self._settle(line, done.result()))

    def _settle(self, line: _Line, outcome: Outcome) -> None:
        assert line.append is not None
        line.outcome = outcome
        stream = line.append.stream
        if isinstance(outcome, NotCommitted | OutcomeUnknown):
            self._failed.add(stream)
        self._under_way -= 1
        if self._lines[0] is line:
            self._collect()
            self._changed.set()
        self._room.set()
        behind = self._waiting[stream]
        if behind:
            self._hand_over(behind.popleft())
        else:
            del self._waiting[stream]

    def _collect(self) -> None:
        """Takes the settled lines in their order; of what was appended, the receipts alone are kept."""
        while self._lines and (outcome := self._lines[0].outcome) is not None:
            line = self._lines.popleft()
            if isinstance(outcome, Appended):
                self._told.add(_as_line(line.number, appended(outcome, batch=False)))
            else:
                self._told.close()
                self._told.pieces.append(line)

    # -- to the answerer

    @property
    def idle(self) -> bool:
        """Nothing further can be told at this moment."""
        return not self._told

    async def settled(self) -> AsyncIterator[bytes | _Line]:
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


class _Told:
    """What waits to be sent. A client may send all of its lines before it reads an answer: beyond
    `_UNREAD_BYTES`, receipts wait compressed."""

    def __init__(self) -> None:
        self.pieces: deque[bytes | _Line | _Packed] = deque()
        self._open: list[bytes] = []
        self._open_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.pieces or self._open)

    def add(self, receipt: bytes) -> None:
        self._open.append(receipt)
        self._open_bytes += len(receipt)
        if self._open_bytes >= _PIECE_BYTES:
            self.close()

    def close(self) -> None:
        """What is added next begins another piece."""
        if self._open:
            piece = b"".join(self._open)
            waits = len(self.pieces) * _PIECE_BYTES >= _UNREAD_BYTES
            self.pieces.append(_Packed(zlib.compress(piece, 1)) if waits else piece)
            self._open, self._open_bytes = [], 0

    def take(self) -> bytes | _Line:
        """What is to be sent next. There is something."""
        if not self.pieces:
            self.close()
        piece = self.pieces.popleft()
        return zlib.decompress(piece.receipts) if isinstance(piece, _Packed) else piece


@dataclass(frozen=True, slots=True)
class _Packed:
    receipts: bytes


async def lines(
    receive: Receive, bytes_max: int, line_bytes_max: int
) -> AsyncIterator[Sequence[bytes | None]]:
    """The lines of a streamed body, as many at a time as a part of it ends; None for one that is larger than
    `line_bytes_max`, which is not kept.

    Raises Refused when the whole is larger than `bytes_max`, ClientGone when it breaks off.
    """
    rest, size, skipping, more = b"", 0, False, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:  # what is whole until there counts, however it was cut into packets
            part = part[: bytes_max - size]
        ended = part.split(b"\n")
        following = ended.pop()
        if ended:
            ended[0] = rest + ended[0]
            kept = [None if len(line) > line_bytes_max else line for line in ended]
            if skipping:
                kept[0] = None
            yield kept
            rest, skipping = following, False
        elif not skipping:
            rest += following
        if size > bytes_max:
            raise Refused(
                Refusal("too_large", f"The body is larger than {bytes_max} bytes; send it in parts.")
            )
        if len(rest) > line_bytes_max:
            rest, skipping = b"", True
    if skipping or rest:
        yield [None if skipping else rest]
