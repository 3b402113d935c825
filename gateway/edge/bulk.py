"""POST /_/bulk: NDJSON in, NDJSON out, one independent append a line.

Owns: reading and answering at the same time, at constant memory; and that other requests get their turn
meanwhile. What is between the two, and the order of the lines of one aggregate: bulk_run.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

from uuid_utils import uuid7

from gateway.admit.append import Fault, Minting
from gateway.admit.envelope import Shared
from gateway.admit.line import judge_line
from gateway.admit.preconditions import read_correlation_id
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.edge import respond
from gateway.edge.appends import mint
from gateway.edge.bulk_run import PIECE_BYTES, Line, Run, as_line
from gateway.edge.outcomes import Answer, Outcomes
from gateway.edge.request import ClientGone, Head, Receive, Refused, Scope, Send, check_json_body
from gateway.errors import Refusal
from gateway.events import NotCommitted
from gateway.log.log import Log

logger = logging.getLogger("sluice.edge")

LINES_MAX = 100_000
_AT_A_TIME = 32
"""Lines that are judged in one go, about half a millisecond. Then whatever Redis, Postgres and other clients
have sent has its turn: both servers would wait for a gateway that goes on reading."""
NDJSON = b"application/x-ndjson"


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
        run = Run(partial(self._log.append_each, principal.tenant.id.bytes))
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

    async def _read(self, principal: Principal, correlation_id: str, receive: Receive, run: Run) -> None:
        number = 0
        try:
            async for several in lines(receive, self._bulk_bytes_max, self._line_bytes_max):
                for at in range(0, len(several), _AT_A_TIME):
                    await run.room()
                    part = several[at : at + min(_AT_A_TIME, LINES_MAX - number)]
                    run.add(self._judge(principal, correlation_id, part, number + 1))
                    number += len(part)
                    if number == LINES_MAX and at + len(part) < len(several):
                        raise Refused(_TOO_MANY)
                    await asyncio.sleep(0)
            run.end(None)
        except Refused as refused:
            run.end(Line(number + 1, Fault(refused.refusal, None)))
        except ClientGone:
            run.end(None)
        except Exception:
            run.end(Line(number + 1, NotCommitted("the gateway failed to read on")))
            logger.exception("request_failed", extra={"method": "POST", "correlation_id": correlation_id})

    def _judge(
        self, principal: Principal, correlation_id: str, several: Sequence[bytes | None], number: int
    ) -> list[Line]:
        """By the spec and the clock of this moment. `number` is that of the first; empty ones are none."""
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
        judged = []
        known: dict[bytes, Shared] = {}
        for n, line in enumerate(several, number):
            if line is None:
                fault = Refusal("too_large", f"The line is larger than {self._line_bytes_max} bytes.")
                judged.append(Line(n, Fault(fault, None)))
            elif line.strip():
                judged.append(Line(n, judge_line(spec, line, minting, known)))
        return judged

    # -- answering

    async def _answer(self, run: Run, send: Send) -> None:
        piece: list[bytes] = []
        size = 0
        async for told in run.settled():
            piece.append(told if isinstance(told, bytes) else await self._tell(told))
            size += len(piece[-1])
            if size >= PIECE_BYTES or run.idle:
                await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
                piece.clear()
                size = 0
        await send({"type": "http.response.body", "body": b"".join(piece)})

    async def _tell(self, line: Line) -> bytes:
        outcome = line.outcome
        assert outcome is not None
        answer: Answer
        if isinstance(outcome, Fault):
            answer = await self._outcomes.of_fault(outcome)
        else:
            answer = await self._outcomes.of_append(line.append, outcome, minimal=False)
        return as_line(line.number, answer.status, answer.body, replayed=answer.replayed)


_TOO_MANY = Refusal("too_large", f"At most {LINES_MAX} lines are read at a time.")


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
