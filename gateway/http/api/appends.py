"""POST /{type}/{id}/{event_type} and POST /{type}/{id}: the hot path.

Owns: how an outcome of the log is told over HTTP. Sees neither Redis nor Postgres: it hands an `Append` to
the log and awaits the outcome.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

import msgspec
from uuid_utils import uuid4, uuid7

from gateway.admit.address import Address, address, minting_address
from gateway.admit.append import (
    SPEC_REFUSALS,
    EventContext,
    Fault,
    before_the_head,
    compose,
    creation,
    is_light,
    retry_of,
)
from gateway.admit.preconditions import Asked, etag, read_asked
from gateway.aggregates.judging import is_ruled, refused_as_first
from gateway.aggregates.records import Records
from gateway.appends import Append, Retry, same_append
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import render, response
from gateway.http.api.aliases import Aliases
from gateway.http.api.parents import Parents, parent_of
from gateway.http.api.source_keys import SourceKeys
from gateway.http.authentication import SUSPENDED
from gateway.http.correlation import correlation_id_in
from gateway.http.outcomes import Answer, Outcomes, refused
from gateway.http.request import Head, Receive, Refused, Send, check_json_body, read_body
from gateway.json_values import decode_data
from gateway.log.log import Log
from gateway.names.aliases import Alias
from gateway.names.records import key_of_content, record_of
from gateway.outcomes import Conflict, Outcome, OutcomeUnknown, RuleViolated
from spec.identifiers import GLOBAL, HUMANE_RANDOM_BYTES, mint_humane
from spec.model import AggregateType, Spec
from spec.violations import WEIGHT_MIN
from spec.violations import is_light as judged_at_once

KEYS_AGAIN_MAX = 4
"""Among a million aggregates a humane code is taken once in 35 million: that often is no randomness."""


_Judged = TypeVar("_Judged")


class PathParams(msgspec.Struct, frozen=True, gc=False):
    """What the path says. `key` is None where its segment can't be decoded, `event_type` where there is none;
    `minting` where it ends after the type."""

    aggregate_type: str
    key: str | None = None
    event_type: str | None = None
    minting: bool = False
    refused: Refusal | None = None  # of an alias in place of the key


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request to append: who asks for what, and what the answer needs later."""

    principal: Principal
    head: Head
    names: PathParams
    asked: Asked
    correlation_id: str


class EventContexts:
    """What the events of a request take from outside, for every endpoint that appends."""

    def __init__(self, log: Log, catalog: Catalog, config: Config) -> None:
        self._log = log
        self._catalog = catalog
        self._event_bytes_max = config.event_bytes_max
        self._schema_work_max = config.schema_work_max

    def of(
        self, tenant: UUID, deployed: Deployed | None, correlation_id: bytes, *, importing: bool = False
    ) -> EventContext:
        """At this moment; `correlation_id` is 16 bytes."""
        return EventContext(
            tenant=tenant.bytes,
            spec_rev=0 if deployed is None else deployed.revision,
            now_ms=time.time_ns() // 1_000_000,
            correlation_id=correlation_id,
            mint=mint,
            event_bytes_max=self._event_bytes_max,
            schema_work_max=self._schema_work_max,
            rewound=self._log.rewound(tenant.bytes),
            not_stored=self._not_stored(tenant),
            salt=b"" if deployed is None else deployed.salt,
            importing=importing,
        )

    def _not_stored(self, tenant: UUID) -> Refusal | None:
        """Its storage is full, or it was suspended or deleted while its request was read or waited."""
        return SUSPENDED if self._catalog.resting(tenant) else self._log.storage.refusal(tenant.bytes)


class Appends:
    def __init__(
        self,
        log: Log,
        records: Records,
        catalog: Catalog,
        outcomes: Outcomes,
        aliases: Aliases,
        parents: Parents,
        sources: SourceKeys,
        aside: Aside,
        config: Config,
    ) -> None:
        self._sources = sources
        self._log = log
        self._records = records
        self._aside = aside
        self._contexts = EventContexts(log, catalog, config)
        self._parents = parents
        self._aliases = aliases
        self._outcomes = outcomes
        self._catalog = catalog
        self._state_bytes_max = config.state_bytes_max
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def append(
        self,
        principal: Principal,
        head: Head,
        headers: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
        names: PathParams,
    ) -> None:
        deployed = self._catalog.deployed(principal.tenant.id)
        place, body = _place(deployed, names), None
        read = read_asked(headers)
        asked = Asked(correlation_id=correlation_id_in(headers)) if isinstance(read, Refusal) else read
        correlation_id, correlation_bytes = correlation(asked)
        call = Call(principal, head, names, asked, correlation_id)
        if not isinstance(place, Refusal) and not isinstance(read, Refusal):
            unreadable = check_json_body(head, self._body_bytes_max)
            if unreadable is not None:
                await _send(send, call, refused(unreadable))
                return
            body = await read_body(receive, self._body_bytes_max, self._body_timeout_s)
            if self._catalog.deployed(principal.tenant.id) is not deployed:  # the body came slowly
                deployed = self._catalog.deployed(principal.tenant.id)
                place = _place(deployed, names)
        if isinstance(place, Refusal) or isinstance(read, Refusal):
            refusal = place if isinstance(place, Refusal) else read
            assert isinstance(refusal, Refusal)
            await self._refuse_by_head(call, refusal, body, receive, send)
            return
        assert deployed is not None and body is not None
        unmeant = None
        if names.minting:
            meant = await self._meant(principal, place, body)
            if isinstance(meant, Refusal):  # where nothing else is wrong with the body
                unmeant, meant = meant, msgspec.structs.replace(place, minted=False)
            place = meant
        minting = self._contexts.of(principal.tenant.id, deployed, correlation_bytes)
        judge = partial(compose, deployed.spec, place, asked, body, minting)
        append = judge() if is_light(place, body) else await self._judged_aside(principal, judge)
        if unmeant is not None and not isinstance(append, Fault):
            append = Fault(unmeant, None)
        batch, name = names.event_type is None, None
        if isinstance(append, Fault):
            answer = await self._outcomes.of_fault(append, batch=batch)
        elif place.minted and (parent := parent_of(body)) is not None:
            mint_key = partial(minted_key, place.aggregate_type)
            answer, name = await self._append_child(principal, deployed, parent, append, mint_key)
        else:
            append, outcome = await self._submit(place, append, body)
            answer = await self._outcomes.of_append(
                append, outcome, minimal=asked.minimal, batch=batch, only=principal.only
            )
        told = await self._with_aliases(call, answer, deployed.spec, body, name)
        await _send(send, call, told, self._log.rewound(principal.tenant.id.bytes))

    async def _submit(self, place: Address, append: Append, body: bytes) -> tuple[Append, Outcome]:
        """The append that was submitted last, and its outcome: where the gateway mints the key and it is
        taken, the append is made once more under another."""
        again = KEYS_AGAIN_MAX if place.minted else 0
        first = creation(place, append, body) or append
        try:
            outcome = await self._records.append(first)
            if first is not append and type(outcome) is Conflict:
                outcome = await self._records.append(append)
            while type(outcome) is Conflict and again:
                append, again = _under_another_key(place.aggregate_type, append), again - 1
                outcome = await self._records.append(append)
        except asyncio.CancelledError:  # a shutdown that waits no longer
            outcome = OutcomeUnknown(append.append_id)
        return append, outcome

    async def _meant(self, principal: Principal, place: Address, body: bytes) -> Address | Refusal:
        """Where an append without a key goes: to what a foreign id stands for, to the aggregate of its
        content, or to a new one."""
        declared, tenant = place.aggregate_type, principal.tenant.id
        found = await self._sources.of_body(tenant, declared.name, body, principal.only)
        if isinstance(found, Refusal):
            return found
        if found is not None:
            key, source = found
            return Address(declared, key, None, place.path, source=source)
        if declared.mint != "content":
            return place
        content = content_of_first(declared, body)
        if content is None:
            why = "The first event lacks the content that its aggregate's key is made of."
            return Refusal("missing_field", why, "events[0].data")
        return Address(declared, key_of_content(tenant, content), None, place.path)

    async def _judged_aside(self, principal: Principal, judge: Callable[[], _Judged]) -> _Judged:
        """Raises Refused: too much of this tenant's is judged just now."""
        try:
            return await self._aside.run(principal.tenant.id.bytes, judge)
        except Busy as busy:
            why = f"The event will never appear by this request. {busy.why}"
            raise Refused(Refusal("not_committed", why)) from busy

    async def _append_child(
        self,
        principal: Principal,
        deployed: Deployed,
        parent: str,
        append: Append,
        mint_key: Callable[[], str],
    ) -> tuple[Answer, Alias | None]:
        """As any append of a new aggregate, once it has its name, which is returned with the answer: what its
        receipt shows is there by then. What is settled already under the request's identities is told without
        taking a number, and without a name."""
        only = principal.only
        earlier = await self._outcomes.of_retry(append.retry, batch=True, only=only)
        if earlier is not None:
            return earlier, None
        violated = partial(self._violated, principal, append, deployed)
        child = await self._parents.child(principal, deployed.spec, parent, append, mint_key, violated)
        if isinstance(child, Answer):
            return child, None
        stream = msgspec.structs.replace(append.stream, key=child.key)
        append = same_append(append, stream, append.expected, append.retry)
        try:
            outcome = await self._records.append(append)
        except asyncio.CancelledError:  # a shutdown that waits no longer
            outcome = OutcomeUnknown(append.append_id)
        answer = await self._outcomes.of_append(append, outcome, minimal=True, batch=True, only=only)
        return answer, child.alias

    async def _violated(
        self, principal: Principal, append: Append, deployed: Deployed
    ) -> RuleViolated | None:
        """The rule of a child's events that would refuse it."""
        if not is_ruled(append.stream, deployed):
            return None
        judge = partial(refused_as_first, append, deployed, self._state_bytes_max)
        return await self._judged_aside(principal, judge)

    async def _with_aliases(
        self, call: Call, answer: Answer, spec: Spec | None, body: bytes, name: Alias | None = None
    ) -> Answer:
        """A receipt of a new aggregate with its names, where the request asks for them: by `Prefer: wait` all
        that it is given, else by its parent the one below the parent's, which is `name` if that is known. A
        replay's are those of what was created then."""
        done = answer.done
        if done is None or done.first_version != 1:
            return answer
        names = call.names
        if not call.asked.wait and not (names.minting and parent_of(body) is not None):
            return answer
        stream = Stream(call.principal.tenant.id.bytes, names.aggregate_type, done.key)
        try:
            if call.asked.wait:
                told = await self._aliases.given(spec, stream)
            elif name is not None:
                told = (name.text,)
            else:
                told = await self._aliases.as_a_child(stream)
        except asyncio.CancelledError:  # a shutdown: what is committed is told all the same
            told = ()
        if told is None:
            return answer
        return msgspec.structs.replace(answer, body=render.with_aliases(answer.body, told))

    async def _refuse_by_head(
        self, call: Call, refusal: Refusal, body: bytes | None, receive: Receive, send: Send
    ) -> None:
        """Path or headers are refused. The body is read, if it is not yet, where it can change the answer:
        the request may repeat one that an earlier spec accepted, or a batch may name event types that are
        looked at first."""
        names, tenant, retry, spec = call.names, call.principal.tenant.id, None, None
        batch = names.event_type is None
        if body is None and (batch or refusal.code in SPEC_REFUSALS):
            body = await self._readable_body(call.head, receive)
        if body is not None:
            deployed = self._catalog.deployed(tenant)
            spec = None if deployed is None else deployed.spec
            read = partial(_read_refused, spec, tenant.bytes, call, refusal, body)
            light = judged_at_once(body, WEIGHT_MIN)
            refusal, retry = read() if light else await self._judged_aside(call.principal, read)
        answer = await self._outcomes.of_fault(Fault(refusal, retry), batch=batch)
        told = await self._with_aliases(call, answer, spec, body or b"")
        await _send(send, call, told, self._log.rewound(tenant.bytes))

    async def _readable_body(self, head: Head, receive: Receive) -> bytes | None:
        """None for one that no request was accepted with. Raises Refused where it is not known what comes:
        it is too slow, or more than may be under way."""
        if check_json_body(head, self._body_bytes_max) is not None:
            return None
        try:
            return await read_body(receive, self._body_bytes_max, self._body_timeout_s)
        except Refused as why:
            if why.refusal.code != "too_large":
                raise
            return None


def _read_refused(
    spec: Spec | None, tenant: bytes, call: Call, refusal: Refusal, body: bytes
) -> tuple[Refusal, Retry | None]:
    """What answers, by the body too, a request that its head refuses; and what it may repeat."""
    names = call.names
    if names.event_type is None:
        refusal = before_the_head(spec, names.aggregate_type, body, refusal)
    if not names.minting and names.key is None:
        return refusal, None
    path = (names.aggregate_type, names.key, names.event_type)
    return refusal, retry_of(spec, tenant, *path, call.asked, body)


async def _send(send: Send, call: Call, answer: Answer, rewound: int = 0) -> None:
    """With the headers that go with it."""
    names = call.names
    lines = lines_of(answer, call.correlation_id, names.aggregate_type, rewound, minting=names.minting)
    await response.answer_with(send, answer.status, answer.body, lines)


def lines_of(
    answer: Answer, correlation_id: str, aggregate_type: str, rewound: int, *, minting: bool
) -> bytes:
    """What the header of an answer to an append says beside what all do, each line with its CR LF."""
    lines = f"x-correlation-id: {correlation_id}\r\n"
    length, done = answer.length, answer.done
    if length is not None:
        lines += f"etag: {etag(length, rewound)}\r\n"
    if done is not None:
        event = "" if minting else f"/events/{length}"
        lines += f"location: /{aggregate_type}/{done.key}{event}\r\n"
        if done.replayed:
            lines += "idempotency-replayed: true\r\n"
    if answer.retry_after_s is not None:
        lines += f"retry-after: {answer.retry_after_s}\r\n"
    return lines.encode()


def _place(deployed: Deployed | None, names: PathParams) -> Address | Refusal:
    spec = None if deployed is None else deployed.spec
    if names.minting:
        return minting_address(spec, names.aggregate_type, minted_key)
    return _address(spec, names)


def _address(spec: Spec | None, names: PathParams) -> Address | Refusal:
    """An alias that means nothing is refused where an identifier would be: after the types."""
    if names.refused is None:
        return address(spec, names.aggregate_type, names.key, names.event_type)
    place = address(spec, names.aggregate_type, GLOBAL, names.event_type)
    return place if isinstance(place, Refusal) else names.refused


def correlation(asked: Asked) -> tuple[str, bytes]:
    """What its events and its answer name as theirs, as text and as 16 bytes: the id that the request brings,
    or a new one."""
    if asked.correlation_id is None:
        minted = uuid7()
        return str(minted), minted.bytes
    return asked.correlation_id, bytes.fromhex(asked.correlation_id.replace("-", ""))


def mint() -> bytes:
    return uuid7().bytes


def _under_another_key(aggregate_type: AggregateType, append: Append) -> Append:
    """The one that was minted is an aggregate's already."""
    stream = msgspec.structs.replace(append.stream, key=minted_key(aggregate_type))
    return same_append(append, stream, append.expected, append.retry)


class _FirstData(msgspec.Struct):
    type: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _First(msgspec.Struct):
    events: list[_FirstData]


def content_of_first(declared: AggregateType, body: bytes) -> str | None:
    """The content of a batch's first event; None where it has none, or can't be read."""
    try:
        first = msgspec.json.decode(body, type=_First).events[0]
        data = decode_data(first.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError):
        return None
    record = None if declared.identity is None else record_of(declared.identity, data, "", first.type)
    return None if record is None else record.content


def minted_key(aggregate_type: AggregateType) -> str:
    if aggregate_type.mint == "humane":
        return mint_humane(os.urandom(HUMANE_RANDOM_BYTES))
    return str(uuid4())
