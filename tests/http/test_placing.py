"""What waits for a rule is placed only as the spec of that moment admits it, whatever was deployed since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.aggregates.folder import Folder
from gateway.catalog import tenants
from gateway.events import Stream
from gateway.state import Folded
from tests.http.conftest import Served
from tests.http.test_removals_under_way import removing
from tests.support.accounts import Account, open_account
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    bulk,
    bulk_line,
    length_of,
    new_client,
    new_id,
    refused,
    until,
)

PAYS: dict[str, Any] = {
    "aggregate_type": "order",
    "id": "$.data.order",
    "event_type": "was_paid",
    "data": {"code": "$.data.code"},
}
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_made": {"schema": {}, "handler": {"increment": {"target": "total"}}},
                "was_paid": {
                    "schema": {},
                    "rules": [{"require": {"gte": ["@.total", 1]}, "error": "Nothing is to be paid."}],
                },
            }
        },
        "cart": {"events": {"was_sent": {"schema": {}, "implications": [{"emit": PAYS}]}}},
    },
    "agent_types": ["user"],
}
CLAIMS = {"claims": {"code": {"value": "$.data.code"}}}


def changed(**paid: Any) -> dict[str, Any]:
    """The spec with other declarations of was_paid."""
    spec = deepcopy(SPEC)
    spec["aggregate_types"]["order"]["events"]["was_paid"] |= paid
    return spec


class Holding:
    """States that rules read are held back until `go`."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.go = asyncio.Event()

    async def holds(self, *keys: str) -> None:
        async def all_of_them() -> bool:
            return self.keys.issuperset(keys)

        await until(all_of_them)


@pytest.fixture
async def account(own_gateway: Served, own_outbox: asyncpg.Pool) -> Account:
    """Of a gateway that no other fires timers beside: what it reads is held."""
    return await open_account(own_outbox, SPEC)


@pytest.fixture
async def client(own_gateway: Served, account: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(own_gateway.url, account.admin) as client:
        yield client


@pytest.fixture
async def held(monkeypatch: pytest.MonkeyPatch, account: Account) -> AsyncIterator[Holding]:
    holding, committed, tenant = Holding(), Folder.committed, UUID(account.id).bytes

    async def waiting(folder: Folder, stream: Stream, *args: Any) -> Folded:
        if stream.tenant == tenant:
            holding.keys.add(stream.key)
            await holding.go.wait()
        return await committed(folder, stream, *args)

    monkeypatch.setattr(Folder, "committed", waiting)
    yield holding
    holding.go.set()


async def made(client: httpx.AsyncClient, count: int) -> list[str]:
    keys = [new_id() for _ in range(count)]
    for key in keys:
        await appended(client, "order", key, "was_made")
    return keys


def paid(client: httpx.AsyncClient, key: str, code: str) -> Awaitable[httpx.Response]:
    return append(client, "order", key, "was_paid", {"code": code})


def both_paid(client: httpx.AsyncClient, one: str, other: str) -> Awaitable[httpx.Response]:
    event = {"aggregate_type": "order", "type": "was_paid"}
    sent = [event | {"key": key, "data": {"code": key}} for key in (one, other)]
    return client.post("/_/append", json={"events": sent, "metadata": {"actor": ACTOR}})


async def put(client: httpx.AsyncClient, spec: dict[str, Any], **query: str) -> None:
    response = await client.put("/_/spec", json=spec, params=query)
    assert response.status_code == 200, response.text


async def test_an_append_that_waits_while_a_claim_is_deployed_takes_no_value_without_it(
    client: httpx.AsyncClient, held: Holding
) -> None:
    one, two, three, four, five, six, new, newer = await made(client, 8)
    emit = {"aggregate_type": "order", "id": six, "event_type": "was_paid", "data": {"code": six}}
    timer = (
        await client.post(
            "/_/schedules", json={"delay": "24h", "emit": emit}, headers={"idempotency-key": six}
        )
    ).json()["schedule"]["id"]
    sent = [
        asyncio.ensure_future(each)
        for each in (
            paid(client, one, one),
            both_paid(client, two, three),
            bulk(client, bulk_line(four, {"code": four}, "was_paid")),
            append(client, "cart", new_id(), "was_sent", {"order": five, "code": five}),
        )
    ]
    assert (await client.post(f"/_/schedules/{timer}/run", json={})).status_code == 200
    await held.holds(one, two, four, five, six)
    await put(client, changed(**CLAIMS))
    held.go.set()
    single, several, (line,), implying = await asyncio.gather(*sent)
    refused(single, 503, "not_committed")
    refused(several, 503, "not_committed")
    assert (line["status"], line["code"]) == (503, "not_committed")
    assert [await length_of(client, key) for key in (one, two, three, four)] == [1, 1, 1, 1]
    # What is judged, or made, once more claims its value.
    assert implying.status_code == 201, implying.text

    async def fired() -> bool:
        return await length_of(client, six) == 2

    await until(fired)
    for taken in (five, six):
        refused(await paid(client, new, taken), 409, "not_unique", "data.code", ["holder"])
    for free in (one, two, three, four):
        assert (await paid(client, new, free)).status_code == 201
        refused(await paid(client, newer, free), 409, "not_unique", "data.code", ["holder"])


@pytest.mark.parametrize(
    "paid_now",
    [
        {"tags": ["code:$.data.code"]},
        {"schema": {"type": "object", "required": ["amount"]}},
        {"implications": [{"emit": {**PAYS, "id": "$.key", "event_type": "was_made"}}]},
    ],
)
async def test_what_is_admitted_otherwise_meanwhile_is_not_placed(
    client: httpx.AsyncClient, held: Holding, paid_now: dict[str, Any]
) -> None:
    one, two, three = await made(client, 3)
    sent = [asyncio.ensure_future(each) for each in (paid(client, one, "a"), both_paid(client, two, three))]
    await held.holds(one, two)
    await put(client, changed(**paid_now), force="true")
    held.go.set()
    for each in sent:
        refused(await each, 503, "not_committed")
    assert [await length_of(client, key) for key in (one, two, three)] == [1, 1, 1]


async def test_what_is_admitted_as_before_is_placed_and_its_rules_are_those_of_that_moment(
    client: httpx.AsyncClient, held: Holding
) -> None:
    one, two, three, four, five, six = await made(client, 6)
    spec = deepcopy(SPEC)
    spec["aggregate_types"]["parcel"] = {"events": {"was_sent": {"schema": {}}}}
    sent = [asyncio.ensure_future(each) for each in (paid(client, one, "a"), both_paid(client, two, three))]
    await held.holds(one, two)
    await put(client, spec)
    held.go.set()
    for each in sent:
        assert (await each).status_code == 201
    held.go.clear()
    sent = [asyncio.ensure_future(each) for each in (paid(client, four, "b"), both_paid(client, five, six))]
    await held.holds(four, five)
    rules = [{"require": {"gte": ["@.total", 2]}, "error": "Less than 2 is not paid."}]
    await put(client, changed(rules=rules), force="true")
    held.go.set()
    refused(await sent[0], 422, "rule_violated", "rules[0]")
    refused(await sent[1], 422, "rule_violated", "events[0].rules[0]")


async def test_what_a_deployment_may_be_removing_is_not_placed_meanwhile(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool, held: Holding
) -> None:
    one, two, three, four = await made(client, 4)
    left = deepcopy(SPEC)
    del left["aggregate_types"]["order"]["events"]["was_paid"], left["aggregate_types"]["cart"]
    sent = [asyncio.ensure_future(each) for each in (paid(client, one, "a"), both_paid(client, two, three))]
    await held.holds(one, two)
    async with removing(own_outbox, account, left):
        held.go.set()
        for each in sent:
            refused(await each, 503, "not_committed")
    assert (await paid(client, four, "d")).status_code == 201


@pytest.mark.parametrize("ending", [tenants.suspend, tenants.delete])
async def test_nothing_is_placed_for_a_tenant_that_is_suspended_or_deleted_meanwhile(
    client: httpx.AsyncClient,
    account: Account,
    own_outbox: asyncpg.Pool,
    held: Holding,
    ending: Callable[[asyncpg.Pool, UUID], Awaitable[object]],
) -> None:
    one, two, three = await made(client, 3)
    sent = [asyncio.ensure_future(each) for each in (paid(client, one, "a"), both_paid(client, two, three))]
    await held.holds(one, two)
    await ending(own_outbox, UUID(account.id))

    async def followed() -> bool:
        return (await client.get(f"/order/{one}/length")).status_code in (401, 403)

    await until(followed)
    held.go.set()
    for each in sent:
        refused(await each, 503, "not_committed")
    stored = "SELECT count(*) FROM outbox WHERE tenant = $1 AND type = 'was_paid'"
    assert await own_outbox.fetchval(stored, UUID(account.id)) == 0
