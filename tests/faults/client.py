"""A client of the gateways: sends operations as HTTP requests and records what it is told.

Owns: the bytes of a request, how an answer is read, and when a careful client sends a request again (by the
contract's statuses). What clients want is in workload.py.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tests.faults.cluster import Cluster
from tests.faults.gateway_at import GatewayAt
from tests.faults.history import (
    AT_LEAST_ONE,
    History,
    Identity,
    Observation,
    Operation,
    Receipt,
    Seen,
    StreamName,
    Try,
    Verdict,
    never,
    now,
)
from tests.faults.spec import EVENT_TYPE
from tests.faults.wire import Answer, Caller

ACTOR = b'"actor":{"type":"user","id":"a0000000-0000-4000-a000-000000000001"}'
PATIENCE_S = (1.0, 6.0)
"""For an answer; beyond it a client gives up, and does not know."""
AGAIN_S = (0.01, 0.2)
"""Between a try and the next."""

# What an append may be answered: anything else is against the contract.
_APPEND_CODES = {
    (409, "version_conflict"),
    (422, "idempotency_mismatch"),
    (503, "not_committed"),
    (504, "outcome_unknown"),
}


class EventBody(msgspec.Struct):
    """An event in an answer; `data` stays as the bytes that it came in."""

    id: str
    version: int
    data: msgspec.Raw

    @property
    def seen(self) -> Seen:
        return Seen(self.version, self.id, bytes(self.data))


class Missed(msgspec.Struct):
    """What a 409 brings."""

    length: int
    missed: list[EventBody]
    missed_next: int | None


class Served(Protocol):
    """A gateway, as far as a client cares."""

    @property
    def number(self) -> int: ...

    @property
    def port(self) -> int: ...


class Client:
    """Sends one request at a time. `giving_up_at` is when it stops repeating what is not settled."""

    def __init__(self, name: str, cluster: Cluster, history: History, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.cluster = cluster
        self.history = history
        self.caller = Caller()
        self.known: dict[StreamName, int] = {}
        """Lengths that it was told."""
        self.giving_up_at: float | None = None
        self.rewound: frozenset[int] = frozenset()
        """Partitions in which an ETag without a mark matches nothing."""
        self._made = 0

    # -- operations

    def operation(
        self, kind: str, tenant: int, aggregate_type: str, key: str | None, *, events: int = 1, **more: Any
    ) -> Operation:
        """A new one, recorded; nothing is sent yet."""
        self._made += 1
        name = f"{self.name}.{self._made}"
        payloads = tuple(_payload(f"{name}#{n}", self.rng) for n in range(events))
        made = Operation(name, kind, tenant, aggregate_type, key, payloads, **more)
        self.history.operations.append(made)
        return made

    def pick(self, avoid: int | None = None) -> GatewayAt:
        """As a load balancer does: one that is up, usually; another one than for the last try."""
        gateways = self.cluster.gateways
        up = [each for each in gateways if each.serves and each.number != avoid]
        return self.rng.choice(up if up and self.rng.random() < 0.95 else gateways)

    async def attempt(
        self,
        wanted: Operation,
        gateway: Served,
        *,
        timeout_s: float | None = None,
        adopting: str | None = None,
        caller: Caller | None = None,
    ) -> Try:
        """One request, recorded with its answer. `adopting` is the event id that a 504 named."""
        one = Try(gateway.number, now(), adopts=adopting is not None)
        wanted.tries.append(one)
        target, headers, body = _request(wanted, adopting)
        headers.append(self.authorization(wanted.tenant))
        if self.rng.random() < 0.5:
            headers.append(("Prefer", "return=minimal"))
        patience_s = self.rng.uniform(*PATIENCE_S) if timeout_s is None else timeout_s
        answer = await (caller or self.caller).call(
            gateway.port, "POST", target, headers, body, timeout_s=patience_s
        )
        if isinstance(answer, Answer):
            self._record(wanted, one, answer)
        else:
            one.why, one.reached = answer.why, answer.reached
        return one

    async def settle(
        self, wanted: Operation, *, timeout_s: float | None = None, first: GatewayAt | None = None
    ) -> Verdict:
        """Tries until the contract says that it is settled, or that no further try could settle it."""
        gateway = first or self.pick()
        adopting: str | None = None
        while True:
            one = await self.attempt(wanted, gateway, timeout_s=timeout_s, adopting=adopting)
            if wanted.identity is Identity.ANSWERED:
                adopting = adopting or one.event_id
            repeatable = adopting is not None or wanted.identity in (Identity.KEY, Identity.EVENTS)
            if not _worth_repeating(one) or not (repeatable or all(map(never, wanted.tries))):
                return wanted.verdict
            if self.giving_up_at is not None and now() > self.giving_up_at:
                return wanted.verdict
            await asyncio.sleep(self.rng.uniform(*AGAIN_S))
            gateway = self.pick(avoid=gateway.number)

    def _record(self, wanted: Operation, one: Try, answer: Answer) -> None:
        one.answered, one.status = now(), answer.status
        told = json.loads(answer.body)
        one.code = told.get("code", "")
        if answer.status == 201:
            one.receipt = _receipt(told)
            one.replayed = answer.headers.get("idempotency-replayed") == "true"
            self.learn(StreamName(wanted.tenant, wanted.aggregate_type, told["key"]), told["length"])
        elif (answer.status, one.code) not in _APPEND_CODES:
            self.history.odd.append(f"{wanted.id}: {answer.status} {one.code}: {told.get('error')}")
        if answer.status == 409 and wanted.key is not None:
            one.length = told["length"]
            stream = StreamName(wanted.tenant, wanted.aggregate_type, wanted.key)
            self.learn(stream, told["length"])
            if told.get("missed"):
                marked = wanted.if_match and self.cluster.tenants[wanted.tenant].partition in self.rewound
                known = 0 if marked else max(wanted.expected or 0, 0)
                self._record_missed(stream, known, one, answer.body)
        if answer.status == 504:
            one.event_id = told.get("event_id")

    def _record_missed(self, stream: StreamName, known: int, one: Try, body: bytes) -> None:
        told = msgspec.json.decode(body, type=Missed)
        highest = told.length if told.missed_next is None else told.missed_next - 1
        events = tuple(each.seen for each in told.missed)
        self.history.observations.append(
            Observation(
                "missed", one.gateway, one.sent, one.answered, stream, None, events, known + 1, highest
            )
        )

    def authorization(self, tenant: int) -> tuple[str, str]:
        return "Authorization", f"Bearer {self.cluster.tenants[tenant].key}"

    def learn(self, stream: StreamName, length: int) -> None:
        self.known[stream] = max(length, self.known.get(stream, 0))


def record_append(one: Try, told: dict[str, Any]) -> None:
    """What the answer to an append says beside its status and its code."""
    if one.status == 201:
        one.receipt = _receipt(told)
    if one.status == 504:
        one.event_id = told.get("event_id")


def record_delivery(one: Try, told: dict[str, Any]) -> None:
    """Likewise of the answer to a webhook: 202 says that its event is committed, 503 that it may be."""
    if one.status == 202 and told.get("event_id"):
        one.status, one.replayed, one.event_id = 201, told["duplicate"], told["event_id"]
    elif one.status == 503:
        one.status = 504


def _worth_repeating(one: Try) -> bool:
    return one.status in (0, 500, 502, 503, 504)


def _payload(name: str, rng: random.Random) -> bytes:
    """Bytes that only survive if no proxy parses and writes them again."""
    blanks = " " * rng.choice((0, 0, 1, 2, 40))
    return b'{"op": "%s",%b"x":1.10, "s":"caf\\u00e9 \xc3\xa9", "big":12345678901234567890123}' % (
        name.encode(),
        blanks.encode(),
    )


def _request(wanted: Operation, adopting: str | None) -> tuple[str, list[tuple[str, str]], bytes]:
    """Target, headers and body: the same bytes at every try, but for an adopted event id."""
    headers: list[tuple[str, str]] = []
    metadata = [ACTOR]
    if wanted.idempotency_key is not None:
        headers.append(("Idempotency-Key", wanted.idempotency_key))
    if wanted.expected is not None:
        if wanted.expected == AT_LEAST_ONE:
            headers.append(("If-Match", "*"))
        elif wanted.if_match:
            headers.append(("If-Match", f'"{wanted.expected}"'))
        else:
            metadata.append(b'"previous_length":%d' % wanted.expected)
    target = f"/{wanted.aggregate_type}" + (f"/{wanted.key}" if wanted.key is not None else "")
    if wanted.batch:
        body = b'{"events":[%b],"metadata":{%b}}' % (_events(wanted), b",".join(metadata))
        return target, headers, body
    chosen = adopting or (wanted.event_ids[0] if wanted.event_ids else None)
    if chosen is not None:
        metadata.append(b'"event_id":"%b"' % chosen.encode())
    body = b'{"data":%b,"metadata":{%b}}' % (wanted.payloads[0], b",".join(metadata))
    return f"{target}/{EVENT_TYPE}", headers, body


def _events(wanted: Operation) -> bytes:
    ids: Sequence[str | None] = wanted.event_ids or (None,) * len(wanted.payloads)
    return b",".join(
        b'{"type":"%b","data":%b%b}'
        % (EVENT_TYPE.encode(), payload, b"" if each is None else b',"event_id":"%b"' % each.encode())
        for payload, each in zip(wanted.payloads, ids, strict=True)
    )


def _receipt(told: dict[str, Any]) -> Receipt:
    batch = "event_ids" in told
    ids = tuple(told["event_ids"]) if batch else (told["event_id"],)
    streams = told["stream_ids"] if batch else [told["stream_id"]]
    return Receipt(told["key"], ids, int(streams[0].removesuffix("-0")), told["length"])
