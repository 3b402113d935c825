"""POST /_/append: events of several aggregates, all or none.

Owns: how such a request is read and answered. Must not know how it is judged (admit/several.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar
from uuid import UUID

import msgspec

from gateway.admit.append import EventContext, Fault
from gateway.admit.preconditions import Asked, read_asked
from gateway.admit.several import PlaceOf, Several, judge_ordinary, judge_several, with_sources
from gateway.admit.several_names import first_type, may_name_aliases, names_sent
from gateway.aggregates.records import Records
from gateway.appends import ANY_LENGTH, Appended, FeedPlace
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import render, response
from gateway.http.api.aliases import Aliases
from gateway.http.api.appends import KEYS_AGAIN_MAX, EventContexts, correlation, minted_key
from gateway.http.api.source_keys import SOURCE, NamedBody, SourceKeys
from gateway.http.correlation import correlation_id_of
from gateway.http.outcomes import Answer, Outcomes
from gateway.http.request import Head, Receive, Refused, Scope, Send, check_json_body, read_body
from gateway.log.append.pending import Waiter
from gateway.log.log import Log
from gateway.names.aliases import SIGIL
from gateway.outcomes import Conflict, Outcome, OutcomeUnknown
from gateway.relay.position import decode_in
from spec.model import Spec
from spec.violations import WEIGHT_MIN, is_light

_Judged = TypeVar("_Judged")

Judge = Callable[[], Awaitable[Several | Fault]]
"""Raises Refused."""


class SeveralAppends:
    def __init__(
        self,
        log: Log,
        records: Records,
        catalog: Catalog,
        outcomes: Outcomes,
        aliases: Aliases,
        sources: SourceKeys,
        aside: Aside,
        config: Config,
    ) -> None:
        self._log = log
        self._records = records
        self._catalog = catalog
        self._outcomes = outcomes
        self._aliases = aliases
        self._sources = sources
        self._aside = aside
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s
        self._contexts = EventContexts(log, catalog, config)

    async def append(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises Refused."""
        head = Head(scope)
        read = read_asked(scope["headers"])
        if asks_of_one_aggregate(read):
            sent = next(name for name in _OF_ONE if head.joined(name.lower().encode()) is not None)
            raise Refused(Refusal("bad_request", _OF_ONE[sent], sent))
        body = await self._body(head, read, receive)
        named = await self._with_keys(principal, body) if SOURCE in body else NamedBody(body)
        asked = Asked(correlation_id=correlation_id_of(head)) if isinstance(read, Refusal) else read
        correlation_id, correlation_bytes = correlation(asked)
        judge = await self._judge(principal, read, named, correlation_bytes)
        judged = await judge()
        if isinstance(judged, Fault):
            answer = await self._of_fault(judged, named.body)
        else:
            answer = await self.settled(judge, judged, await self._outcome(judged), named.body, asked.minimal)
        if asked.wait and answer.done is not None:
            answer = await self._with_aliases(principal.tenant.id, answer, answer.done, named.body)
        await response.answer_with(send, answer.status, answer.body, lines_of_several(answer, correlation_id))

    async def _body(self, head: Head, read: Asked | Refusal, receive: Receive) -> bytes:
        """Raises Refused: where it can't be read, a header that can't be comes first."""
        refusal = check_json_body(head, self._body_bytes_max)
        if refusal is not None:
            raise Refused(read if isinstance(read, Refusal) else refusal)
        try:
            return await read_body(receive, self._body_bytes_max, self._body_timeout_s)
        except Refused as refused:
            if isinstance(read, Refusal) and refused.refusal.code == "too_large":
                raise Refused(read) from refused
            raise

    def judged_at_once(
        self, principal: Principal, deployed: Deployed, asked: Asked, body: bytes, correlation_id: bytes
    ) -> tuple[Judge, Several] | None:
        """The append that is asked for, and how it is judged once more, with new keys where it has none.
        None: it is refused, or takes more than a look at the body."""
        if not is_light(body, deployed.spec.weight):
            return None
        tenant, spec = principal.tenant.id.bytes, deployed.spec
        minting = self._contexts.of(principal.tenant.id, deployed, correlation_id)
        place_of = partial(place_in, self._log, tenant)
        judged = judge_ordinary(spec, asked, body, minting, minted_key, place_of)
        return None if judged is None else (partial(_again, spec, asked, body, minting, place_of), judged)

    def hand_over(self, judged: Several, waiter: Waiter) -> None:
        """`waiter` is told the outcome."""
        append = judged.append
        self._records.append_each(append.stream.tenant, ((append, waiter),))

    async def settled(
        self, judge: Judge, judged: Several, outcome: Outcome, body: bytes, minimal: bool
    ) -> Answer:
        """The answer to an outcome. Where a key that was minted is an aggregate's already, others are tried
        first. Raises Refused."""
        again = KEYS_AGAIN_MAX
        while isinstance(outcome, Conflict) and outcome.which in judged.minted and again:
            again -= 1
            following = await judge()
            if isinstance(following, Fault):
                return await self._of_fault(following, body)
            judged, outcome = following, await self._outcome(following)
        aggregate_type = judged.append.stream.aggregate_type
        if isinstance(outcome, Appended):
            return answer_to_appended(outcome, aggregate_type)
        answer = await self._outcomes.of_several(judged.append, outcome, minimal=minimal)
        return receipt_of_several(answer, aggregate_type)

    async def _with_aliases(self, tenant: UUID, answer: Answer, done: Appended, body: bytes) -> Answer:
        """A receipt with the names of each aggregate that the append created."""
        deployed, of_type = self._catalog.deployed(tenant), first_type(body)
        spec = None if deployed is None else deployed.spec
        created = {
            n: Stream(tenant.bytes, stream.aggregate_type, stream.key)
            for n, (stream, version) in enumerate(render.places_of(done, of_type))
            if version == 1
        }
        try:
            given = await asyncio.gather(*[self._aliases.given(spec, each) for each in created.values()])
        except asyncio.CancelledError:  # a shutdown: what is committed is told all the same
            return answer
        names = {n: told for n, told in zip(created, given, strict=True) if told is not None}
        return msgspec.structs.replace(answer, body=render.receipt_of_several_json(done, of_type, names))

    async def _outcome(self, judged: Several) -> Outcome:
        try:
            return await self._records.append(judged.append)
        except asyncio.CancelledError:  # a shutdown that waits no longer
            return OutcomeUnknown(judged.append.append_id)

    async def _of_fault(self, fault: Fault, body: bytes) -> Answer:
        answer = await self._outcomes.of_fault(fault, batch=True)
        return answer if answer.done is None else receipt_of_several(answer, first_type(body))

    async def _with_keys(self, principal: Principal, body: bytes) -> NamedBody:
        """The body with keys in place of foreign ids: a retry has the same, since they stand for one key
        permanently. Raises Refused."""
        deployed = self._catalog.deployed(principal.tenant.id)
        spec = None if deployed is None else deployed.spec
        found = await self._sources.of_events(principal.tenant.id, spec, body)
        if isinstance(found, Refusal):
            raise Refused(found)
        return found

    async def _judge(
        self, principal: Principal, read: Asked | Refusal, named: NamedBody, correlation_id: bytes
    ) -> Judge:
        """Judges the request, each time with new keys where it has none. Raises Refused."""
        body, deployed = named.body, self._catalog.deployed(principal.tenant.id)
        aliases = await self._named(principal, body)
        judge = self._judge_of(principal, deployed, read, body, correlation_id, aliases)
        light = is_light(body, WEIGHT_MIN if deployed is None else deployed.spec.weight)

        async def judged() -> Several | Fault:
            found = judge() if light else await self._judged_aside(principal, judge)
            if named.refusal is not None and not isinstance(found, Fault):
                return Fault(named.refusal, None)
            if isinstance(found, Fault) or not named.sources:
                return found
            return msgspec.structs.replace(found, append=with_sources(found.append, named.sources))

        return judged

    def _judge_of(
        self,
        principal: Principal,
        deployed: Deployed | None,
        read: Asked | Refusal,
        body: bytes,
        correlation_id: bytes,
        aliases: Mapping[tuple[str, str], str | Refusal],
    ) -> Callable[[], Several | Fault]:
        tenant = principal.tenant.id.bytes
        minting = self._contexts.of(principal.tenant.id, deployed, correlation_id)
        return partial(
            judge_several,
            None if deployed is None else deployed.spec,
            read,
            body,
            minting,
            minted_key,
            aliases,
            partial(place_in, self._log, tenant),
        )

    async def _judged_aside(self, principal: Principal, judge: Callable[[], _Judged]) -> _Judged:
        try:
            return await self._aside.run(principal.tenant.id.bytes, judge)
        except Busy as busy:
            why = f"The event will never appear by this request. {busy.why}"
            raise Refused(Refusal("not_committed", why)) from busy

    async def _named(self, principal: Principal, body: bytes) -> dict[tuple[str, str], str | Refusal]:
        """What the aliases in the body name. Raises Refused where that is not known now."""
        if not may_name_aliases(body):
            return {}
        sent = {each for each in names_sent(body) if each[1].startswith(SIGIL)}
        return {each: await self._aliases.exact(principal, *each) for each in sorted(sent)}


def place_in(log: Log, tenant: bytes, text: str) -> FeedPlace | None:
    """Where a position of the feed is, in the tenant's partition; None: nowhere."""
    p = log.partition(tenant)
    place = decode_in(text, p)
    return None if place is None else FeedPlace(p, place.seq, place.mark)


def answer_to_appended(done: Appended, aggregate_type: str) -> Answer:
    """`aggregate_type` is that of its first event."""
    return Answer(201, render.receipt_of_several_json(done, aggregate_type), done=done)


def receipt_of_several(answer: Answer, aggregate_type: str) -> Answer:
    """A receipt as this path gives it."""
    if answer.done is None:
        return answer
    body = render.receipt_of_several_json(answer.done, aggregate_type)
    return msgspec.structs.replace(answer, body=body)


def lines_of_several(answer: Answer, correlation_id: str) -> bytes:
    """What the header of an answer says beside what all do, each line with its CR LF."""
    lines = f"x-correlation-id: {correlation_id}\r\n"
    if answer.replayed:
        lines += "idempotency-replayed: true\r\n"
    if answer.retry_after_s is not None:
        lines += f"retry-after: {answer.retry_after_s}\r\n"
    return lines.encode()


def asks_of_one_aggregate(read: Asked | Refusal) -> bool:
    """Whether a header asks for what only an append to one aggregate can have, or tries to."""
    if isinstance(read, Asked):
        return read.expected != ANY_LENGTH or read.skip_unchanged
    return read.path in _OF_ONE


async def _again(
    spec: Spec, asked: Asked, body: bytes, minting: EventContext, place_of: PlaceOf
) -> Several | Fault:
    return judge_several(spec, asked, body, minting, minted_key, {}, place_of)


_NO_LENGTH = "Require a length by `previous_length` of an event here, not by `If-Match` or `If-None-Match`."
_OF_ONE = {
    "If-Match": _NO_LENGTH,
    "If-None-Match": _NO_LENGTH,
    "Sluice-If-Unchanged": "An append to several aggregates is written whole: only one to a single aggregate "
    "takes `Sluice-If-Unchanged`.",
}
