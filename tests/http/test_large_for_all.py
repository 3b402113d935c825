"""What is as large as the limits allow holds up no other request: pages, claims, states, lists, webhooks."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from tests.http.lag import holds_up_no_other
from tests.http.webhooks import SOURCES, open_hooks
from tests.support.accounts import open_account
from tests.support.calls import JSON, NDJSON, envelope, lines, new_client, new_id, refused, told_in
from tests.support.serving import Served

META = envelope()["metadata"]
SMALL, LARGE = 3_000, 20
"""Events of the longest page by their count, and by their bytes."""


@pytest.fixture(scope="module")
async def full(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    """A tenant with many small events of one aggregate, and behind them as large ones as there can be."""
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        line = {"aggregate_type": "order", "key": "global", "type": "was_noted"}
        large = envelope({"a": "x" * 255_000})
        sent = [{**line, **envelope({"n": n})} for n in range(SMALL)]
        sent += [
            {**line, "aggregate_type": "ticket", "type": "was_opened", "key": new_id(), **large}
            for _ in range(LARGE)
        ]
        answers = told_in((await client.post("/_/bulk", content=lines(*sent), headers=NDJSON)).content)
        assert {each["status"] for each in answers} == {201}
        yield client


FORMS = ["application/json", "application/x-ndjson", "application/cloudevents-batch+json"]


@pytest.mark.parametrize("form", FORMS)
async def test_pages_of_the_feed(full: httpx.AsyncClient, form: str) -> None:
    large = (await full.get("/_/feed?limit=1000")).json()["position"]
    for _ in range(SMALL // 1000 - 1):
        large = (await full.get(f"/_/feed?limit=1000&after={large}")).json()["position"]
    for path in ("/_/feed?limit=1000", f"/_/feed?limit=1000&after={large}"):

        async def get(path: str = path) -> None:
            response = await full.get(path, headers={"accept": form})
            assert response.status_code == 200, response.text
            assert len(response.content) > 300_000

        await holds_up_no_other(get)


@pytest.mark.parametrize("query", ["", "&order=desc", "&consistency=strong"])
async def test_a_page_of_a_history(full: httpx.AsyncClient, query: str) -> None:
    async def get() -> None:
        response = await full.get(f"/order/global/events?limit=1000{query}")
        assert response.status_code == 200

    await holds_up_no_other(get)


async def test_claims_of_a_pull_subscription(full: httpx.AsyncClient) -> None:
    document = {"target": {"type": "pull"}, "start": "beginning", "filter": {"types": ["order"]}}
    numbers = itertools.count()

    async def claim() -> None:
        """Of a subscription of its own: the events of one would be acked after some rounds."""
        name = f"s{next(numbers)}"
        assert (await full.put(f"/_/subscriptions/{name}", json=document)).status_code == 201
        response = await full.post(f"/_/subscriptions/{name}/claim", json={"limit": 1000, "lease_s": 0.001})
        assert response.status_code == 200, response.text
        held = response.json()
        assert held["events"]
        response = await full.post(f"/_/subscriptions/{name}/ack", json={"claim": held["claim"]})
        assert response.status_code == 200, response.text

    await holds_up_no_other(claim)


async def test_claims_of_large_events_that_are_not_acked(full: httpx.AsyncClient) -> None:
    document = {"target": {"type": "pull", "attempts_max": 100}, "start": "beginning"}
    document["filter"] = {"types": ["ticket"]}
    assert (await full.put("/_/subscriptions/large", json=document)).status_code == 201

    async def claim() -> None:
        asked = {"limit": 1000, "lease_s": 0.001}
        response = await full.post("/_/subscriptions/large/claim", json=asked)
        assert len(response.content) > 4_000_000

    await holds_up_no_other(claim)


async def test_a_list_of_as_many_subscriptions_as_can_be(client: httpx.AsyncClient) -> None:
    document = {"target": {"type": "pull"}, "filter": {"types": ["order"], "event_types": ["was_noted"] * 1}}
    for n in range(200):
        assert (await client.put(f"/_/subscriptions/s{n}", json=document)).status_code == 201

    async def get() -> None:
        assert len((await client.get("/_/subscriptions")).json()["subscriptions"]) == 200

    await holds_up_no_other(get)


# ---- states ----


@pytest.fixture(scope="module")
async def state(outbox: asyncpg.Pool, gateway: Served) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        key = new_id()
        for n in range(16):
            sent = envelope({f"f{n}": [0] * 127_000})
            response = await client.post(
                f"/config/{key}/was_changed", content=json.dumps(sent, separators=(",", ":")), headers=JSON
            )
            assert response.status_code == 201, response.text
        yield client, f"/config/{key}"


@pytest.mark.parametrize("query", ["", "?synchronous=true", "?at_length=12"])
async def test_a_state_as_long_as_can_be(state: tuple[httpx.AsyncClient, str], query: str) -> None:
    client, path = state

    async def get() -> None:
        response = await client.get(f"{path}{query}")
        assert len(response.content) > 3_000_000

    await holds_up_no_other(get)


# ---- names ----


async def test_ids(client: httpx.AsyncClient) -> None:
    async def get() -> None:
        assert len((await client.get("/_/ids/humane?count=1000")).json()["ids"]) == 1000

    async def check(each: str) -> None:
        response = await client.post("/_/ids/check", json={"ids": [each] * 1000})
        assert response.status_code == 200

    await holds_up_no_other(get)
    for each in ("a" * 1_000, new_id(), "\x7f" * 250, "01" * 500, "-" * 1000):
        await holds_up_no_other(lambda each=each: check(each))  # type: ignore[misc]


@pytest.mark.parametrize("path", ["/_/resolve/%40" + "a-" * 15_000, "/order/@" + "a" * 30_000])
async def test_names_as_long_as_can_be(client: httpx.AsyncClient, path: str) -> None:
    async def get() -> None:
        assert (await client.get(path)).status_code in (404, 422)

    await holds_up_no_other(get)


# ---- webhooks ----

VALUES = b'{"type":"url_verification","event":"endpoint.url_validation","a":[%b]}' % b",".join(
    [b"[]"] * 340_000
)
FORM = b"&".join([b"a=1"] * 260_000)


@pytest.mark.parametrize("name", ["slack", "zoom", "braintree", "clouds", "typed", "x"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
async def test_a_large_webhook(
    gateway: Served, outbox: asyncpg.Pool, client: httpx.AsyncClient, name: str, kind: str
) -> None:
    """Before it is verified, from any sender."""
    hooks = await open_hooks(outbox, client, {name: SOURCES[name]})
    body = VALUES if kind.endswith("json") else FORM

    async def post() -> None:
        response = await client.post(hooks.path(name), content=body, headers={"content-type": kind})
        assert response.status_code in (202, 401, 503), response.text

    await holds_up_no_other(post)


# ---- bodies of very many values ----


@pytest.mark.parametrize("one", [b"[]", b"{}", b"0", b"[0]", b'{"":0}'])
@pytest.mark.parametrize("path", ["was_noted", "was_nothing"])
async def test_a_body_of_very_many_values(client: httpx.AsyncClient, one: bytes, path: str) -> None:
    values = b",".join([one] * (1_000_000 // (len(one) + 1)))
    body = b'{"data":[%b],"metadata":%b}' % (values, json.dumps(META).encode())

    async def post() -> None:
        response = await client.post(f"/order/{new_id()}/{path}", content=body, headers=JSON)
        assert 400 <= response.status_code < 500

    await holds_up_no_other(post)


async def test_a_body_of_too_many_values_is_refused(client: httpx.AsyncClient) -> None:
    data = b'{"data":[%b],"metadata":%b}' % (b",".join([b"[]"] * 50_000), json.dumps(META).encode())
    response = await client.post(f"/order/{new_id()}/was_noted", content=data, headers=JSON)
    assert refused(response, 400, "invalid_json")["error"].startswith("The body has over 50000 opening")
    event = b'{"type":"was_noted","data":[%b]}' % b",".join([b"[]"] * 50_000)
    data = b'{"events":[%b],"metadata":%b}' % (event, json.dumps(META).encode())
    response = await client.post(f"/order/{new_id()}", content=data, headers=JSON)
    assert refused(response, 400, "invalid_json")["error"].startswith("The body has over 50000 opening")
    names = {"aggregate_type": "order", "key": new_id(), "type": "was_noted"}
    line = json.dumps({**names, **envelope([[]] * 50_000)}).encode() + b"\n"
    answers = told_in((await client.post("/_/bulk", content=line, headers=NDJSON)).content)
    assert [each["status"] for each in answers] == [400]
    assert answers[0]["error"].startswith("The line has over 50000 opening")
