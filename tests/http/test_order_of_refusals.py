"""A request with two faults is answered for the one that the contract's table names first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.accounts import Account
from tests.support.calls import ACTOR, appended, bulk, new_id, refused

MEBIBYTE = 1024 * 1024


@dataclass
class Request:
    """An append that would be accepted, taken apart."""

    account: Account
    method: str = "POST"
    aggregate_type: str = "order"
    key: str = "ABC123XYZ"
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
    def line(self) -> bytes:
        names = {"aggregate_type": self.aggregate_type, "key": self.key, "type": self.event_type}
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
MINTING = [
    fault
    for fault in SEVERAL
    if fault.slot not in ("id", "route") and fault.code not in ("version_conflict",)
]
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
    Fault(422, "idempotency_mismatch", None, "idempotency", more(idempotency_key="taken")),
    LAST[1],
]
# Two rows that go without one another: what is inside a body can't be known where the body can't be read.
UNREADABLE = {"content-type", "coding", "oversized", "garbled"}


def pairs(faults: list[Fault], *, batch: bool) -> list[tuple[Fault, Fault]]:
    found = []
    for first, second in itertools.combinations(faults, 2):
        slots = {first.slot, second.slot}
        hidden = (batch and first.slot == "event") or first.path in ("data", "events[1].data")
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


async def check(
    client: httpx.AsyncClient, account: Account, faults: tuple[Fault, ...], *, batch: bool, minting: bool
) -> None:
    request = Request(account)
    for fault in faults:
        fault.make(request)
    path = f"/{request.aggregate_type}" + ("" if minting else f"/{request.key}")
    if not batch:
        path += f"/{request.event_type}"
    response = await request.send(client, path, request.several if batch else request.single)
    told = response.json()
    first = faults[0]
    expected = (first.status, first.code, first.path)
    assert (response.status_code, told["code"], told.get("path")) == expected, [*map(named, faults), told]


@pytest.mark.parametrize(("batch", "minting"), [(False, False), (True, False), (True, True)])
async def test_of_two_faults_the_earlier_row_answers(
    stranger: httpx.AsyncClient, writer: httpx.AsyncClient, tenant: Account, batch: bool, minting: bool
) -> None:
    await appended(writer, "order", new_id(), "was_noted", 1, {"idempotency-key": "taken"})
    faults = MINTING if minting else SEVERAL if batch else SINGLE
    for fault in faults:
        await check(stranger, tenant, (fault,), batch=batch, minting=minting)
    for pair in pairs(faults, batch=batch):
        await check(stranger, tenant, pair, batch=batch, minting=minting)


async def test_of_two_faults_of_a_bulk_line_the_earlier_row_answers(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    await appended(client, "order", new_id(), "was_noted", 1, {"idempotency-key": "taken"})
    groups: list[tuple[Fault, ...]] = [*((fault,) for fault in LINE), *pairs(LINE, batch=False)]
    requests = [Request(tenant) for _ in groups]
    for request, faults in zip(requests, groups, strict=True):
        for fault in faults:
            fault.make(request)
    told = await bulk(client, *[request.line for request in requests])
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
    assert (await request.send(stranger, "/order/ABC123XYZ/was_placed", request.single)).status_code == 201
    for path in ("/order/ABC123XYZ", "/order"):
        assert (await request.send(stranger, path, request.several)).status_code == 201
    [told] = await bulk(writer, request.line)
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
