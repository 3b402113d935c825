"""A request with two faults is answered for the one that the contract's table names first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.accounts import Account
from tests.support.calls import ACTOR, appended, bulk, new_event_id, new_id, refused

MEBIBYTE = 1024 * 1024


@dataclass
class Request:
    """An append that would be accepted, taken apart."""

    account: Account
    method: str = "POST"
    aggregate_type: str = "order"
    key: str | None = "ABC123XYZ"
    source: Any = None
    event_type: str = "was_placed"
    more_path: str = ""
    authorization: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    data: Any = field(default_factory=lambda: {"total": 1})
    metadata: dict[str, Any] = field(
        default_factory=lambda: {"actor": dict(ACTOR), "target": {"type": "order", "id": "ABC123XYZ"}}
    )
    more_body: dict[str, Any] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    garbled: bool = False
    oversized: bool = False

    @property
    def single(self) -> dict[str, Any]:
        return {"data": self.data, "metadata": self.metadata, **self.more_body}

    @property
    def several(self) -> dict[str, Any]:
        events = [{"type": "was_noted", "data": 1}, {"type": self.event_type, "data": self.data}]
        return {"events": events, "metadata": self.metadata, **self.more_body}

    @property
    def named(self) -> dict[str, Any]:
        named = {"key": self.key, "source": self.source}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def of_several(self) -> dict[str, Any]:
        """Of several aggregates: a bulk line, or the body of /_/append."""
        first = {"aggregate_type": "order", "key": "global", "type": "was_noted", "data": 1}
        last = {"aggregate_type": self.aggregate_type, "type": self.event_type, **self.named}
        metadata = dict(self.metadata)
        if "previous_length" in metadata:
            last["previous_length"] = metadata.pop("previous_length")
        return {"events": [first, {**last, "data": self.data}], "metadata": metadata, **self.more_body}

    @property
    def line_of_several(self) -> bytes:
        return json.dumps(self.of_several).encode() + b"}" * self.garbled

    @property
    def line(self) -> bytes:
        names = {"aggregate_type": self.aggregate_type, **self.named, "type": self.event_type}
        sent = {name: value for name, value in {**names, **self.single}.items() if name not in self.without}
        return json.dumps(sent).encode() + b"}" * self.garbled

    async def send(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
        content = json.dumps(body).encode() + b"}" * self.garbled
        content = content.ljust(MEBIBYTE + 1) if self.oversized else content
        keys = self.authorization or [self.account.write]
        headers = [("authorization", f"Bearer {key}") for key in keys if key]
        return await client.request(
            self.method, path + self.more_path, content=content, headers=[*headers, *self.headers.items()]
        )


@dataclass(frozen=True)
class Fault:
    """`slot` is what it changes: two faults of one slot exclude each other."""

    status: int
    code: str
    path: str | None
    slot: str
    make: Callable[[Request], object]


def metadata(**more: object) -> Callable[[Request], object]:
    return lambda request: request.metadata.update(more)


def header(name: str, value: str) -> Callable[[Request], object]:
    return lambda request: request.headers.update({name: value})


def change(**attributes: object) -> Callable[[Request], object]:
    return lambda request: [setattr(request, name, value) for name, value in attributes.items()]


def more(**fields: object) -> Callable[[Request], object]:
    return lambda request: request.more_body.update(fields)


def without(name: str) -> Callable[[Request], object]:
    return lambda request: request.without.add(name)


def actor(**more: object) -> Callable[[Request], object]:
    return lambda request: request.metadata.get("actor", {}).update(more)


def target(**more: object) -> Callable[[Request], object]:
    return lambda request: request.metadata["target"].update(more)


HEAD = [
    Fault(
        400,
        "bad_request",
        None,
        "key",
        lambda r: setattr(r, "authorization", [r.account.write, r.account.read]),
    ),
    Fault(401, "unauthorized", None, "key", change(authorization=[""])),
    Fault(404, "not_found", None, "route", change(more_path="/x/y/z/z")),
    Fault(405, "method_not_allowed", None, "method", change(method="PUT")),
    Fault(403, "forbidden", None, "key", lambda r: setattr(r, "authorization", [r.account.read])),
]
RESERVED = change(event_type="_was_placed")
UNKNOWN = change(event_type="was_nothing")
UNKNOWN_TYPE = Fault(404, "unknown_aggregate_type", "type", "type", change(aggregate_type="nope"))
KEY_AND_HEADERS = [
    Fault(422, "invalid_identifier", "key", "id", change(key="nope")),
    Fault(422, "invalid_field", "If-Match", "if-match", header("if-match", "5")),
    Fault(422, "invalid_field", "Idempotency-Key", "idempotency", header("idempotency-key", "a b")),
]
BODY = [
    Fault(
        415, "unsupported_media_type", "Content-Type", "content-type", header("content-type", "text/plain")
    ),
    Fault(415, "unsupported_media_type", "Content-Encoding", "coding", header("content-encoding", "gzip")),
    Fault(413, "too_large", None, "oversized", change(oversized=True)),
    Fault(400, "invalid_json", None, "garbled", change(garbled=True)),
]
ENVELOPE = [
    Fault(422, "missing_field", "metadata.actor", "actor", lambda r: r.metadata.pop("actor")),
    Fault(422, "unknown_field", "metadata.note", "unknown", metadata(note=1)),
    Fault(422, "unknown_field", "colour", "unknown", more(colour=1)),
    Fault(422, "invalid_field", "metadata.causation_id", "causation", metadata(causation_id="x")),
]
REFERENCES = [
    Fault(422, "unknown_actor_type", "metadata.actor.type", "actor-type", actor(type="nobody")),
    Fault(422, "unknown_target_type", "metadata.target.type", "target-type", target(type="nothing")),
    Fault(422, "invalid_identifier", "metadata.actor.id", "actor-id", actor(id="nope")),
    Fault(422, "invalid_identifier", "metadata.target.id", "target-id", target(id="nope")),
]
LAST = [
    Fault(422, "idempotency_mismatch", None, "idempotency", header("idempotency-key", "taken")),
    Fault(409, "version_conflict", None, "length", metadata(previous_length=7)),
]
TAKEN = {"source": "shop", "scope": "a", "id": "taken"}


def sources(path: str, make: Callable[[object], Callable[[Request], object]]) -> list[Fault]:
    """What a source that names no aggregate is answered; `make` puts one into a request."""
    return [
        Fault(422, "invalid_field", path, "id", make(5)),
        Fault(422, "missing_field", f"{path}.id", "id", make({"source": "shop"})),
        Fault(409, "source_taken", path, "id", make(TAKEN)),
    ]


def source(value: object) -> Callable[[Request], object]:
    return change(source=value, key=None)


LARGE_DATA = {"total": "x" * 262_144}

SINGLE = [
    *HEAD,
    Fault(422, "reserved_event_type", "event_type", "event", RESERVED),
    UNKNOWN_TYPE,
    Fault(404, "unknown_event_type", "event_type", "event", UNKNOWN),
    *KEY_AND_HEADERS,
    *BODY[:3],
    Fault(413, "too_large", "data", "data", change(data=LARGE_DATA)),
    BODY[3],
    *ENVELOPE,
    *REFERENCES,
    Fault(422, "schema_violation", "data.total", "data", change(data={"total": "x"})),
    *LAST,
]
SEVERAL = [
    *HEAD,
    Fault(422, "reserved_event_type", "events[1].type", "event", RESERVED),
    UNKNOWN_TYPE,
    Fault(422, "unknown_event_type", "events[1].type", "event", UNKNOWN),
    *KEY_AND_HEADERS,
    *BODY[:3],
    Fault(413, "too_large", "events[1].data", "data", change(data=LARGE_DATA)),
    BODY[3],
    *ENVELOPE,
    *REFERENCES,
    Fault(422, "schema_violation", "events[1].data.total", "data", change(data={"total": "x"})),
    *LAST,
]
OF_SEVERAL = [
    *HEAD,
    Fault(422, "reserved_event_type", "events[1].type", "event", RESERVED),
    Fault(404, "unknown_aggregate_type", "events[1].aggregate_type", "type", change(aggregate_type="nope")),
    Fault(422, "unknown_event_type", "events[1].type", "event", UNKNOWN),
    Fault(422, "invalid_identifier", "events[1].key", "id", change(key="nope")),
    KEY_AND_HEADERS[2],
    *BODY[:3],
    Fault(413, "too_large", "events[1].data", "data", change(data=LARGE_DATA)),
    BODY[3],
    *ENVELOPE,
    *REFERENCES,
    Fault(422, "schema_violation", "events[1].data.total", "data", change(data={"total": "x"})),
    Fault(422, "contradiction", "events[1].source", "id", change(source=TAKEN)),
    *sources("events[1].source", source),
    LAST[0],
    Fault(409, "version_conflict", "events[1].previous_length", "length", metadata(previous_length=7)),
]
MINTING = [fault for fault in SEVERAL if fault.slot not in ("id", "route") and fault not in LAST]
MINTING += [*sources("source", lambda value: more(source=value)), LAST[0]]
LINE = [
    BODY[3],  # of what can't be read, nothing else is known
    Fault(422, "reserved_event_type", "event_type", "event", RESERVED),
    UNKNOWN_TYPE,
    Fault(404, "unknown_event_type", "event_type", "event", UNKNOWN),
    KEY_AND_HEADERS[0],
    Fault(422, "invalid_field", "idempotency_key", "idempotency", more(idempotency_key="a b")),
    Fault(422, "invalid_field", "idempotency_key", "idempotency", more(idempotency_key=5)),
    Fault(413, "too_large", "data", "data", change(data=LARGE_DATA)),
    Fault(422, "missing_field", "aggregate_type", "type", without("aggregate_type")),
    Fault(422, "missing_field", "key", "id", without("key")),
    Fault(422, "missing_field", "type", "event", without("type")),
    Fault(422, "missing_field", "data", "data", without("data")),
    Fault(422, "missing_field", "metadata", "metadata", without("metadata")),
    *ENVELOPE[:3],
    Fault(422, "invalid_field", "aggregate_type", "type", change(aggregate_type=5)),
    Fault(422, "invalid_field", "key", "id", change(key=5)),
    Fault(422, "invalid_field", "type", "event", change(event_type=5)),
    ENVELOPE[3],
    *REFERENCES,
    Fault(422, "schema_violation", "data.total", "data", change(data={"total": "x"})),
    Fault(422, "contradiction", "source", "id", change(source=TAKEN)),
    *sources("source", source),
    Fault(422, "idempotency_mismatch", None, "idempotency", more(idempotency_key="taken")),
    LAST[1],
]
LINE_OF_SEVERAL = [
    BODY[3],
    *OF_SEVERAL[5:9],
    Fault(422, "invalid_field", "idempotency_key", "idempotency", more(idempotency_key="a b")),
    *[fault for fault in OF_SEVERAL[10:-2] if fault not in BODY],
    Fault(422, "idempotency_mismatch", None, "idempotency", more(idempotency_key="taken")),
    OF_SEVERAL[-1],
]
# Two rows that go without one another: what is inside a body can't be known where the body can't be read.
UNREADABLE = {"content-type", "coding", "oversized", "garbled"}


class Way(NamedTuple):
    """`in_the_body` are slots of names that stand in the body."""

    faults: list[Fault]
    in_the_body: frozenset[str]
    path: Callable[[Request], str]
    body: Callable[[Request], dict[str, Any]]


WAYS = {
    "single": Way(
        SINGLE, frozenset(), lambda r: f"/{r.aggregate_type}/{r.key}/{r.event_type}", lambda r: r.single
    ),
    "batch": Way(
        SEVERAL, frozenset({"event"}), lambda r: f"/{r.aggregate_type}/{r.key}", lambda r: r.several
    ),
    "minting": Way(MINTING, frozenset({"event"}), lambda r: f"/{r.aggregate_type}", lambda r: r.several),
    "several": Way(
        OF_SEVERAL, frozenset({"event", "type", "id"}), lambda r: "/_/append", lambda r: r.of_several
    ),
}


def pairs(faults: list[Fault], in_the_body: frozenset[str]) -> list[tuple[Fault, Fault]]:
    found = []
    for first, second in itertools.combinations(faults, 2):
        slots = {first.slot, second.slot}
        hidden = first.slot in in_the_body or first.path in ("data", "events[1].data")
        if len(slots) == 1 or (hidden and second.slot in UNREADABLE):
            continue
        if first.code == "unknown_event_type" and second.slot == "type":  # no type to know it by
            continue
        if "actor" in slots and slots & {"actor-type", "actor-id"}:
            continue
        found.append((first, second))
    return found


def named(fault: Fault) -> str:
    return f"{fault.code}:{fault.path}" if fault.path else fault.code


async def take(client: httpx.AsyncClient) -> None:
    """The identities that other requests have."""
    await appended(client, "order", new_id(), "was_noted", 1, {"idempotency-key": "taken"})
    linked = await client.put("/_/sources/shop/a/taken", json={"aggregate_type": "config", "key": new_id()})
    assert linked.status_code == 200, linked.text


async def check(client: httpx.AsyncClient, account: Account, way: Way, faults: tuple[Fault, ...]) -> None:
    request = Request(account)
    for fault in faults:
        fault.make(request)
    response = await request.send(client, way.path(request), way.body(request))
    told = response.json()
    first = faults[0]
    expected = (first.status, first.code, first.path)
    assert (response.status_code, told["code"], told.get("path")) == expected, [*map(named, faults), told]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_of_two_faults_the_earlier_row_answers(
    stranger: httpx.AsyncClient, writer: httpx.AsyncClient, tenant: Account, way: Way
) -> None:
    await take(writer)
    for fault in way.faults:
        await check(stranger, tenant, way, (fault,))
    for pair in pairs(way.faults, way.in_the_body):
        await check(stranger, tenant, way, pair)


@pytest.mark.parametrize("several", [False, True])
async def test_of_two_faults_of_a_bulk_line_the_earlier_row_answers(
    client: httpx.AsyncClient, tenant: Account, several: bool
) -> None:
    await take(client)
    possible = LINE_OF_SEVERAL if several else LINE
    groups: list[tuple[Fault, ...]] = [*((fault,) for fault in possible), *pairs(possible, frozenset())]
    requests = [Request(tenant) for _ in groups]
    for request, faults in zip(requests, groups, strict=True):
        for fault in faults:
            fault.make(request)
    lines = [request.line_of_several if several else request.line for request in requests]
    told = await bulk(client, *lines)
    wrong = [
        ([*map(named, faults)], answer)
        for faults, answer in zip(groups, told, strict=True)
        if (answer["status"], answer["code"], answer.get("path"))
        != (faults[0].status, faults[0].code, faults[0].path)
    ]
    assert not wrong


async def test_the_request_that_faults_are_put_into_has_none(
    stranger: httpx.AsyncClient, writer: httpx.AsyncClient, tenant: Account
) -> None:
    request = Request(tenant)
    for way in WAYS.values():
        assert (await request.send(stranger, way.path(request), way.body(request))).status_code == 201
    for told in await bulk(writer, request.line, request.line_of_several):
        assert told["status"] == 201


async def test_within_an_envelope_missing_comes_before_unknown_before_invalid(
    client: httpx.AsyncClient,
) -> None:
    bad = {"data": {}, "metadata": {"note": 1, "causation_id": "x", "actor": {"id": 5}}}
    url = "/order/global/was_placed"
    refused(await client.post(url, json=bad), 422, "missing_field", "metadata.actor.type")
    bad["metadata"]["actor"] = {"type": "user", "id": 5}
    refused(await client.post(url, json=bad), 422, "unknown_field", "metadata.note")
    del bad["metadata"]["note"]
    refused(await client.post(url, json=bad), 422, "invalid_field", "metadata.actor.id")


async def test_reads_check_type_then_key_then_parameters_then_existence(client: httpx.AsyncClient) -> None:
    for end in ("", "/length", "/events", "/events/x"):
        query = "?min_length=x"
        response = await client.get(f"/nope/nope{end}{query}")
        refused(response, 404, "unknown_aggregate_type", "type")
        response = await client.get(f"/order/nope{end}{query}")
        refused(response, 422, "invalid_identifier", "key")
        response = await client.get(f"/order/{new_id()}{end}{query}")
        assert (response.status_code, response.json()["code"]) == (422, "invalid_field")
    refused(await client.get(f"/order/{new_id()}/events/1"), 404, "not_found")


OF_STATE = ("at_length", "at", "synchronous", "consistency", "min_length", "explain", "aliases", "keys")
OF_EVENTS = ("from", "limit", "order", "upcast", "consistency", "min_length", "aliases", "keys")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/order/{}", OF_STATE),
        ("/order/{}/length", ("consistency", "min_length")),
        ("/order/{}/events", OF_EVENTS),
        ("/order/{}/events/1", ("upcast", "consistency", "min_length", "aliases", "keys")),
        ("/order/{}/children", ("limit", "after")),
        ("/_/events/{}", ("upcast", "aliases", "keys")),
    ],
)
async def test_a_parameter_is_read_before_anything_is_found_or_waited_for(
    client: httpx.AsyncClient, path: str, names: tuple[str, ...]
) -> None:
    url = path.format(new_event_id() if path.startswith("/_/") else new_id())
    for name in names:
        wait = "&min_length=9" if "min_length" in names and name != "min_length" else ""
        refused(await client.get(f"{url}?{name}=x{wait}"), 422, "invalid_field", name)


@pytest.mark.parametrize(("method", "path"), [("QUERY", "/_/feed"), ("POST", "/_/feed/query")])
async def test_a_parameter_of_a_query_is_read_before_its_body(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    for name, status, code in (
        ("limit", 422, "invalid_field"),
        ("wait", 422, "invalid_field"),
        ("order", 422, "invalid_field"),
        ("upcast", 422, "invalid_field"),
        ("keys", 422, "invalid_field"),
        ("from_time", 422, "invalid_field"),
        ("types", 422, "unknown_aggregate_type"),
        ("after", 400, "invalid_position"),
    ):
        for content, kind in ((b"{}", "text/plain"), (b"{", "application/json"), (b"{}", "application/json")):
            response = await client.request(
                method, f"{path}?{name}=x", content=content, headers={"content-type": kind}
            )
            refused(response, status, code, name)
    stream = {"accept": "text/event-stream", "last-event-id": "x", "content-type": "text/plain"}
    response = await client.request(method, path, content=b"{}", headers=stream)
    refused(response, 400, "invalid_position", "Last-Event-ID")
