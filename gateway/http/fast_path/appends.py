"""Appends that need no second look, webhooks among them: from the parser to the log and back without a task.

Nine of ten requests of a busy gateway are single appends with a known key, a whole body and nothing wrong.
Judging such a one is synchronous, and it waits for one outcome, so ASGI's machinery (a task, messages both
ways, a dozen coroutines) is a cost beside the checks (docs/decisions/0017), and so is a future. What is not
of this kind is left untouched for the application: it judges again and finds the words.

Owns: what counts as ordinary. Must not know: how an append is judged or answered (admit, appends, outcomes).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from gateway.admit.address import Address, address
from gateway.admit.append import EventContext, Fault, compose, is_light
from gateway.admit.path import split
from gateway.admit.preconditions import ASKING, NOTHING_ASKED, read_asked_once
from gateway.aggregates.records import creates_project
from gateway.aggregates.ruled import Ruled
from gateway.appends import Append, Appended
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal, Scope
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api.appends import correlation, lines_of, mint
from gateway.http.api.webhooks import PREFIX as WEBHOOKS
from gateway.http.api.webhooks import Webhooks
from gateway.http.authentication import Authenticator
from gateway.http.outcomes import Answer, Outcomes, appended, refused, unforeseen
from gateway.http.request import JSON
from gateway.http.server.fast_path import Reply
from gateway.log.append.pending import ToldLater, ToldTogether
from gateway.log.log import Log
from gateway.telemetry.metrics import Metrics
from spec.model import Spec

logger = logging.getLogger("sluice.edge")

ADDRESSES_MAX: Final = 10_000
"""Paths of which it is remembered where they lead, some 600 bytes each: more than are busy at a time."""


class Call(ToldLater, gc=False, eq=False):
    """A request whose append was handed over. `over`: it is answered."""

    principal: Principal
    append: Append
    minimal: bool
    correlation_id: str
    reply: Reply
    over: bool = False


class FastAppends:
    def __init__(
        self,
        log: Log,
        ruled: Ruled,
        catalog: Catalog,
        callers: Authenticator,
        outcomes: Outcomes,
        webhooks: Webhooks,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self._webhooks = webhooks
        self._log = log
        self._ruled = ruled
        self._catalog = catalog
        self._callers = callers
        self._outcomes = outcomes
        self._responses = metrics.responses
        self._body_bytes_max = config.body_bytes_max
        self._event_bytes_max = config.event_bytes_max
        self._schema_work_max = config.schema_work_max
        self._addresses: dict[bytes, tuple[Spec, Address]] = {}
        self._told = ToldTogether(self._answer, self._fail)
        self._telling: set[asyncio.Task[None]] = set()

    def take(self, raw_path: bytes, headers: dict[bytes, bytes], body: bytes, reply: Reply) -> bool:
        """Takes a POST, of which each header was sent once; `reply` is called when its outcome is known.
        False: it is not ordinary, and nothing was done."""
        principal = self._callers.known(headers.get(b"authorization"))
        if principal is None:
            return raw_path.startswith(WEBHOOKS) and self._webhooks.take(raw_path, headers, body, reply)
        if not may_append(principal, headers, body, self._body_bytes_max):
            return False
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return False
        place = self._address(deployed.spec, raw_path)
        asked = NOTHING_ASKED if ASKING.isdisjoint(headers) else read_asked_once(headers)
        if place is None or isinstance(asked, Refusal) or asked.wait or not is_light(place, body):
            return False
        correlation_id, correlation_bytes = correlation(asked)
        tenant = principal.tenant.stream_tenant
        minting = EventContext(
            tenant,
            deployed.revision,
            time.time_ns() // 1_000_000,
            correlation_bytes,
            mint,
            self._event_bytes_max,
            self._schema_work_max,
            self._log.rewound(tenant),
            self._log.storage.refusal(tenant),
            deployed.salt,
        )
        append = compose(deployed.spec, place, asked, body, minting)
        if isinstance(append, Fault) or _waits(deployed.spec, place, append):
            return False
        if not self._callers.begin_at_once(principal, Scope.WRITE):
            return False
        call = Call(principal, append, asked.minimal, correlation_id, reply, settled=self._told.add)
        try:
            if deployed.spec.ruled or deployed.spec.implies:
                self._ruled.take(append, call, deployed)
            else:
                self._log.append_told(append, call)
        except Exception:  # the append may be queued: judged once more, it could be committed twice
            self._fail(call)
        return True

    def _address(self, spec: Spec, raw_path: bytes) -> Address | None:
        """Where the path leads by this spec; None: to no event of an aggregate."""
        found = self._addresses.get(raw_path)
        if found is not None and found[0] is spec:
            return found[1]
        segments = split(raw_path)
        if segments is None or len(segments) != 3:
            return None
        aggregate_type, key, event_type = segments
        if aggregate_type is None or key is None or event_type is None:
            return None
        place = address(spec, aggregate_type, key, event_type)
        if isinstance(place, Refusal):
            return None
        if len(self._addresses) >= ADDRESSES_MAX:
            self._addresses.clear()
        self._addresses[raw_path] = spec, place
        return place

    def _answer(self, call: Call) -> None:
        outcome = call.outcome
        if call.over:
            return
        if type(outcome) is Appended:
            self._reply(call, appended(outcome, batch=False))
        else:  # the words may have to be read first: what a conflict's caller missed
            task = asyncio.create_task(self._tell(call))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, call: Call) -> None:
        assert call.outcome is not None
        try:
            answer = await self._outcomes.of_append(call.append, call.outcome, minimal=call.minimal)
        except Exception:
            told = {"method": "POST", "correlation_id": call.correlation_id}
            logger.exception("request_failed", extra=told)
            answer = refused(unforeseen("POST"), 1)
        self._reply(call, answer)

    def _fail(self, call: Call) -> None:
        """Answers after a bug (within an `except`), unless that was done: the outcome of the append is
        unknown."""
        logger.exception("fast_path_failed", extra={"method": "POST", "correlation_id": call.correlation_id})
        if not call.over:
            self._reply(call, refused(unforeseen("POST"), 1))

    def _reply(self, call: Call, answer: Answer) -> None:
        call.over = True
        self._callers.end(call.principal)
        self._responses["POST", answer.status] += 1
        stream = call.append.stream
        rewound = self._log.rewound(stream.tenant)
        lines = lines_of(answer, call.correlation_id, stream.aggregate_type, rewound, minting=False)
        call.reply(answer.status, response.head_with(answer.body, lines), answer.body)


def may_append(principal: Principal, headers: dict[bytes, bytes], body: bytes, most: int) -> bool:
    """Whether nothing in the head, nor the length of the body, refuses an append by this key."""
    return (
        principal.scope >= Scope.WRITE
        and principal.only is None
        and headers.get(b"content-type") == JSON
        and b"content-encoding" not in headers
        and len(body) <= most
    )


def _waits(spec: Spec, place: Address, append: Append) -> bool:
    """Whether it takes more than its part of one call: to be known again, graded, or to claim a key."""
    declared = place.aggregate_type
    if spec.public_ids is not None and creates_project(spec, append):
        return True
    return declared.identity is not None or (declared.idempotent_create and not append.chosen)
