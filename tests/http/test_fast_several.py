"""Appends to several aggregates that go from the parser to the log without a task: none is answered otherwise
than by the application."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import httpx
import pytest

from gateway.http.fast_path.several import FastSeveral
from gateway.log.log import Log
from tests.http.raw import Answer, connected, request
from tests.support.accounts import Account
from tests.support.calls import ACTOR, appended, events_of, length_of, new_event_id, new_id, refused, until
from tests.support.fast_path import Taken, break_hand_over, broken, failures
from tests.support.serving import Served

PATH = "/_/append"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POSITION = re.compile(r'"(position|matched_next)":"[^"]+"')


def of(key: str | None, data: object = 1, **more: Any) -> dict[str, Any]:
    named = {} if key is None else {"key": key}
    return {"aggregate_type": "order", **named, "type": "was_noted", "data": data, **more}


def body(*events: Any, **more: Any) -> dict[str, Any]:
    return {"events": list(events), "metadata": {"actor": ACTOR}, **more}


def condition(tag: str, after: str | None = None) -> dict[str, Any]:
    return {"fail_if_events_match": {"items": [{"tags": [tag]}]}, "after": after}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch, FastSeveral)


HERE, OTHER, EMPTY = new_id(), new_id(), new_id()
"""Of the first, the tenant has two events; of the others none."""

# What is sent, by names of keys that are new each time; its headers; and whether it is taken.
ASKED: list[tuple[dict[str, Any] | str, list[tuple[bytes, bytes]], bool]] = [
    (body(of("A")), [], True),
    (body(of("A"), of("B", previous_length=0), of("A", {"x": [1]})), [], True),
    (body(of(None), of("A"), of(None)), [], True),
    (body(of("A"), of("B"), condition=condition("order:B")), [], True),
    (body(of("A"), condition=condition("order:HERE")), [], True),
    (body(of("A"), condition=condition("order:HERE")), [(b"prefer", b"return=minimal")], True),
    (body(of("A"), of("HERE", previous_length=1)), [], True),
    (body(of("A"), of("HERE", previous_length=1)), [(b"prefer", b"return=minimal")], True),
    (body(of("A")), [(b"idempotency-key", b"k-A")], True),
    (body(of("A")), [(b"x-correlation-id", b"a0000000-0000-4000-a000-000000000001")], True),
    (body(of("A")), [(b"prefer", b"wait=1")], False),
    (body(of("A", event_id="E"), of("B")), [], True),
    (body(of("A", target={"type": "order", "id": "global"})), [], True),
    ({**body(of("A")), "metadata": {"actor": ACTOR, "extra": {"n": 1}}}, [], True),
    (body(of("@NONE-1")), [], False),
    (body(of("A", {"note": "@you", "source": "web"})), [], True),
    (body(of("no id")), [], False),
    (body(of("A", source={"source": "x", "id": "1"})), [], False),
    (body(of("A"), spare=1), [], False),
    (body(), [], False),
    (body(of("A"), condition=condition("nothing:1")), [], False),
    (body(of("A"), condition=condition("order:B", "nowhere")), [], False),
    ("{", [], False),
    ('{"events":[],"events":[]}', [], False),
    (body(of("A")), [(b"if-match", b'"0"')], False),
    (body(of("A")), [(b"if-match", b"0")], False),
    (body(of("A")), [(b"idempotency-key", b"a b")], False),
    (body(of("A")), [(b"content-encoding", b"gzip")], False),
]  # fmt: skip


def spelled(sent: dict[str, Any] | str) -> bytes:
    """With new ids in place of the names."""
    text = sent if isinstance(sent, str) else json.dumps(sent)
    text = text.replace('"HERE"', f'"{HERE}"').replace('"order:HERE"', f'"order:{HERE}"')
    for name, found in (("A", new_id()), ("B", new_id()), ("E", new_event_id())):
        text = text.replace(f'"{name}"', f'"{found}"').replace(f'"order:{name}"', f'"order:{found}"')
    return text.encode()


def shown(answer: Answer | None) -> tuple[Any, ...]:
    """What two answers must have in common: all but ids and positions, which are numbered."""
    assert answer is not None
    numbers: dict[str, int] = {}
    count = itertools.count()

    def numbered(found: re.Match[str]) -> str:
        if found[0] not in numbers:
            numbers[found[0]] = next(count)
        return f"#{numbers[found[0]]}"

    text = _POSITION.sub(r'"\1":"P"', answer.body.decode())
    text = re.sub(r'"timestamp":[0-9.]+', '"timestamp":0', text)
    head = {
        name: (_UUID.sub("#", value) if name == "x-correlation-id" else value)
        for name, value in answer.headers.items()
        if name not in ("content-length", "date")
    }
    return answer.status, list(head.items()), _UUID.sub(numbered, text)


@pytest.mark.parametrize("number", range(len(ASKED)))
async def test_it_is_answered_as_by_the_application(
    gateway: Served, tenant: Account, client: httpx.AsyncClient, taken: Taken, number: int
) -> None:
    """A header that is sent twice is none for the fast path. Each request is sent once more: a repeat."""
    sent, headers, ordinary = ASKED[number]
    for n in (1, 2):
        await appended(client, "order", HERE, "was_noted", n)
    others = [(name, b"k-B" if value == b"k-A" else value) for name, value in headers]
    others += [(b"x-twice", b"1"), (b"x-twice", b"1")]
    ways = [request("POST", PATH, tenant.write, spelled(sent), each) for each in (headers, others)]
    await client.get("/_/tenant", headers={"authorization": f"Bearer {tenant.write}"})  # it is known by now
    async with connected(gateway.port) as connection:
        fast, fast_again, slow, slow_again = [await connection.ask(way) for way in ways for _ in range(2)]
    assert taken.said[:1] == [ordinary]
    assert len(taken.said) == 2
    assert shown(fast) == shown(slow)
    assert shown(fast_again) == shown(slow_again)


@pytest.mark.parametrize("media", [b"application/json; charset=utf-8", b"text/plain"])
async def test_a_body_of_another_media_type_is_left_to_the_application(
    gateway: Served, tenant: Account, client: httpx.AsyncClient, taken: Taken, media: bytes
) -> None:
    await client.get("/_/tenant", headers={"authorization": f"Bearer {tenant.write}"})
    asked = request("POST", PATH, tenant.write, spelled(body(of("A"))), content_type=media)
    async with connected(gateway.port) as connection:
        answer = await connection.ask(asked)
    assert answer is not None
    assert answer.status == (415 if media == b"text/plain" else 201)
    assert taken.said == [False]


async def test_keys_of_another_scope_and_unknown_ones_are_refused_as_everywhere(
    gateway: Served, tenant: Account, client: httpx.AsyncClient, taken: Taken
) -> None:
    await client.get("/_/tenant", headers={"authorization": f"Bearer {tenant.read}"})  # it is known by now
    told = []
    async with connected(gateway.port) as connection:
        for key in (tenant.read, "nobody's"):
            told.append(await connection.ask(request("POST", PATH, key, spelled(body(of("A"))))))
    assert [each.status for each in told if each is not None] == [403, 401]
    assert taken.said == [False, False]


@pytest.mark.bug
async def test_a_bug_before_the_hand_over_is_logged_and_the_application_appends_once(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", 1)
    monkeypatch.setattr("gateway.http.fast_path.several.correlation", broken)
    assert (await client.post(PATH, json=body(of(key)))).status_code == 201
    assert await length_of(client, key) == 2
    assert failures(caplog) == ["POST"]


@pytest.mark.bug
async def test_a_bug_after_the_hand_over_is_logged_and_makes_one_event(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", 1)
    with monkeypatch.context() as patch:
        break_hand_over(patch)
        refused(await client.post(PATH, json=body(of(key, 2))), 504, "outcome_unknown")
    assert failures(caplog) == ["POST"]
    assert (await client.post(PATH, json=body(of(key, 3)))).status_code == 201
    assert [event["data"] for event in await events_of(client, "order", key)] == [1, 2, 3]


@pytest.mark.bug
async def test_a_bug_while_it_is_answered_is_an_unknown_outcome_and_not_a_hang(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, taken: Taken
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", 1)
    with monkeypatch.context() as patch:
        patch.setattr("gateway.http.fast_path.several.answer_to_appended", broken)
        refused(await client.post(PATH, json=body(of(key))), 504, "outcome_unknown")
    monkeypatch.setattr(Log, "page", broken)
    refused(await client.post(PATH, json=body(of(key, previous_length=0))), 504, "outcome_unknown")
    assert taken.said == [True, True]


async def test_a_minted_key_that_is_taken_is_made_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, taken: Taken
) -> None:
    there, fresh = new_id(), new_id()
    await appended(client, "order", there, "was_noted", 1)
    keys = iter([there, there, fresh])
    monkeypatch.setattr("gateway.http.api.several.minted_key", lambda _: next(keys))
    told = (await client.post(PATH, json=body(of(None)))).json()
    assert told["events"][0]["key"] == fresh
    assert taken.said == [True]


async def test_a_client_that_has_gone_is_appended_for_all_the_same(
    gateway: Served, tenant: Account, client: httpx.AsyncClient
) -> None:
    key = new_id()
    async with connected(gateway.port) as connection:
        await connection.send(request("POST", PATH, tenant.write, json.dumps(body(of(key))).encode()))

    async def there() -> bool:
        return await length_of(client, key) == 1

    await until(there)


async def test_pipelined_ones_are_answered_in_their_order(gateway: Served, tenant: Account) -> None:
    key = new_id()
    async with connected(gateway.port) as connection:
        asked = [
            request("POST", PATH, tenant.write, json.dumps(body(of(key, n), of(None))).encode())
            for n in range(20)
        ]
        await connection.send(b"".join(asked))
        answers = [await connection.answer(b"POST") for _ in asked]
    assert [each.json["events"][0]["length"] for each in answers if each is not None] == list(range(1, 21))
