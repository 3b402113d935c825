"""Appends to several aggregates, and on a condition, that need no second look: the counterpart of appends.py
for `POST /_/append`.

Owns: which of them are ordinary. Must not know: how such an append is judged or answered (api/several.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.admit.preconditions import ASKING, NOTHING_ASKED, read_asked_once
from gateway.admit.several import PATH as PATH_TEXT
from gateway.admit.several import Several
from gateway.appends import Appended
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal, Scope
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api.appends import correlation
from gateway.http.api.several import (
    Judge,
    SeveralAppends,
    answer_to_appended,
    asks_of_one_aggregate,
    lines_of_several,
)
from gateway.http.authentication import Authenticator
from gateway.http.fast_path.appends import may_append
from gateway.http.outcomes import Answer, refused, unforeseen
from gateway.http.server.fast_path import Reply
from gateway.log.append.pending import ToldLater, ToldTogether
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.edge")

PATH: Final = PATH_TEXT.encode()


class _Call(ToldLater, gc=False, eq=False):
    """A request whose append was handed over. `over`: it is answered."""

    principal: Principal
    judge: Judge
    judged: Several
    body: bytes
    minimal: bool
    correlation_id: str
    reply: Reply
    over: bool = False


class FastSeveral:
    def __init__(
        self,
        several: SeveralAppends,
        catalog: Catalog,
        callers: Authenticator,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self._several = several
        self._catalog = catalog
        self._callers = callers
        self._responses = metrics.responses
        self._body_bytes_max = config.body_bytes_max
        self._told = ToldTogether(self._answer, self._fail)
        self._telling: set[asyncio.Task[None]] = set()

    def take(self, headers: dict[bytes, bytes], body: bytes, reply: Reply) -> bool:
        """Takes a POST of PATH, of which each header was sent once; `reply` is called when its outcome is
        known. False: it is not ordinary, and nothing was done."""
        principal = self._callers.known(headers.get(b"authorization"))
        if principal is None or not may_append(principal, headers, body, self._body_bytes_max):
            return False
        deployed = self._catalog.deployed(principal.tenant.id)
        asked = NOTHING_ASKED if ASKING.isdisjoint(headers) else read_asked_once(headers)
        if deployed is None or isinstance(asked, Refusal) or asked.wait or asks_of_one_aggregate(asked):
            return False
        correlation_id, correlation_bytes = correlation(asked)
        found = self._several.judged_at_once(principal, deployed, asked, body, correlation_bytes)
        if found is None or not self._callers.begin_at_once(principal, Scope.WRITE):
            return False
        call = _Call(principal, *found, body, asked.minimal, correlation_id, reply, settled=self._told.add)
        try:
            self._several.hand_over(call.judged, call)
        except Exception:  # the append may be queued: judged once more, it could be committed twice
            self._fail(call)
        return True

    def _answer(self, call: _Call) -> None:
        outcome = call.outcome
        if call.over:
            return
        if type(outcome) is Appended:
            self._reply(call, answer_to_appended(outcome, call.judged.append.stream.aggregate_type))
        else:  # the words may have to be read first, or other keys tried
            task = asyncio.create_task(self._tell(call))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, call: _Call) -> None:
        assert call.outcome is not None
        try:
            answer = await self._several.settled(
                call.judge, call.judged, call.outcome, call.body, call.minimal
            )
        except Exception:
            told = {"method": "POST", "correlation_id": call.correlation_id}
            logger.exception("request_failed", extra=told)
            answer = refused(unforeseen("POST"), 1)
        self._reply(call, answer)

    def _fail(self, call: _Call) -> None:
        """Answers after a bug (within an `except`), unless that was done: the outcome of the append is
        unknown."""
        logger.exception("fast_path_failed", extra={"method": "POST", "correlation_id": call.correlation_id})
        if not call.over:
            self._reply(call, refused(unforeseen("POST"), 1))

    def _reply(self, call: _Call, answer: Answer) -> None:
        call.over = True
        self._callers.end(call.principal)
        self._responses["POST", answer.status] += 1
        lines = lines_of_several(answer, call.correlation_id)
        call.reply(answer.status, response.head_with(answer.body, lines), answer.body)
