"""What a webhook's event says of its content, and source ids that lead to its stream."""

from __future__ import annotations

import asyncio
import hmac
import json
import uuid
from hashlib import sha256
from typing import Any

import asyncpg
import httpx
import pytest
import rfc8785

from gateway.catalog import source_ids
from gateway.inbound import store
from gateway.names.content import content_of_json
from gateway.names.source_ids import Unusable, derived_key, read
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import append, new_client, until
from tests.support.serving import Served

SECRET = "a secret that nobody guesses"
HOOKS: dict[str, Any] = {
    **SPEC,
    "singletons": [*SPEC.get("singletons", []), "forge_webhook"],
    "webhooks": {
        "forge": {
            "provider": "hmac",
            "header": "x-signature",
            "id_header": "x-id",
            "secrets": [SECRET],
            "to": {"type": "order", "source_id": "$.body.id", "event": "was_noted"},
        }
    },
}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool, gateway: Served) -> Account:
    account = await open_account(outbox, HOOKS)

    async def is_known() -> bool:
        async with new_client(gateway.url, None) as nobody:
            return (await nobody.post(f"/_/webhooks/{account.name}/forge", content=b"{}")).status_code == 401

    await until(is_known)
    return account


async def deliver(client: httpx.AsyncClient, tenant: Account, number: int, body: bytes) -> dict[str, Any]:
    headers = {
        "content-type": "application/json",
        "x-signature": hmac.new(SECRET.encode(), body, sha256).hexdigest(),
        "x-id": str(number),
    }
    answer = await client.post(f"/_/webhooks/{tenant.name}/forge", content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    event = await client.get(f"/_/events/{answer.json()['event_id']}")
    return dict(event.json()["event"])


def said(event: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = event["metadata"]["extra"]["webhook"]
    return told


async def test_what_is_ingested_again_keeps_its_key_and_is_graded(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    key = derived_key(uuid.UUID(tenant.id), "forge", "order", 0, "42")
    bodies = [b'{"id": 42, "title": "one"}', b'{"title":"one","id":   42}', b'{"id": 42, "title": "two"}']
    events = [await deliver(client, tenant, number, body) for number, body in enumerate(bodies)]
    assert [event["key"] for event in events] == [key] * 3
    assert [said(event)["grade"] for event in events] == ["new", "unchanged", "edited"]
    content = sha256(rfc8785.dumps({"id": 42, "title": "one"})).hexdigest()
    assert [said(event)["content"] for event in events[:2]] == [content] * 2
    assert said(events[0])["record"] == said(events[1])["record"] != said(events[2])["record"]


async def test_equal_content_never_makes_two_aggregates_one(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    one = await deliver(client, tenant, 1, b'{"id": "a", "title": "same"}')
    other = await deliver(client, tenant, 2, b'{"id": "b", "title": "same"}')
    assert one["key"] != other["key"]
    assert (said(one)["grade"], said(other)["grade"]) == ("new", "new")


async def test_a_record_is_graded_by_the_last_one_whatever_was_appended_between(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    body, other = b'{"id": 7}', b'{"id": 7, "title": "two"}'
    event = await deliver(client, tenant, 1, body)
    assert (said(event)["source_id"], said(event)["grade"]) == ("7", "new")
    for number, extra in enumerate(
        (
            None,
            {},
            {"webhook": 7},
            {"webhook": {"content": content_of_json(other)}},
            {"webhook": {"source": 1}},
        )
    ):
        metadata = {"actor": {"type": "user", "id": "global"}, **({} if extra is None else {"extra": extra})}
        sent = {"data": {}, "metadata": metadata}
        answer = await client.post(f"/order/{event['key']}/was_noted", json=sent)
        assert answer.status_code == 201
        assert said(await deliver(client, tenant, 100 + number, body))["grade"] == "unchanged"
    assert said(await deliver(client, tenant, 200, other))["grade"] == "edited"


async def test_what_a_client_wrote_as_if_it_were_a_record_is_none_to_grade_by(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    body = b'{"id": 8}'
    key = (await deliver(client, tenant, 1, body))["key"]
    extra = {"webhook": {"source": "forge", "source_id": "8", "more": 1}}
    sent = {"data": {}, "metadata": {"actor": {"type": "user", "id": "global"}, "extra": extra}}
    assert (await client.post(f"/order/{key}/was_noted", json=sent)).status_code == 201
    assert said(await deliver(client, tenant, 2, body))["grade"] == "new"


async def test_a_first_record_of_a_linked_aggregate_with_a_history_is_new_whatever_others_wrote(
    client: httpx.AsyncClient, tenant: Account, outbox: asyncpg.Pool
) -> None:
    key = (await deliver(client, tenant, 1, b'{"id": "one"}'))["key"]
    await append(client, "order", key, "was_noted")
    sighted = read("forge", "order", "other")
    assert not isinstance(sighted, Unusable)
    await source_ids.link(outbox, uuid.UUID(tenant.id), sighted, key)
    first = await deliver(client, tenant, 2, b'{"id": "other"}')
    assert (first["key"], said(first)["grade"]) == (key, "new")
    assert said(await deliver(client, tenant, 3, b'{"id": "one"}'))["grade"] == "unchanged"
    assert said(await deliver(client, tenant, 4, b'{"id": "other", "title": 1}'))["grade"] == "edited"


async def test_a_record_of_an_earlier_release_is_one_of_its_source(
    client: httpx.AsyncClient, tenant: Account, outbox: asyncpg.Pool
) -> None:
    key = (await deliver(client, tenant, 1, b'{"id": 5}'))["key"]
    await outbox.execute(
        """UPDATE outbox SET extra =
        convert_to(replace(convert_from(extra, 'UTF8'), '"source_id":"5",', ''), 'UTF8')
        WHERE tenant = $1 AND aggregate_id = $2""",
        uuid.UUID(tenant.id),
        key,
    )
    assert said(await deliver(client, tenant, 2, b'{"id": 5}'))["grade"] == "unchanged"


async def test_no_more_than_so_many_events_are_looked_at_for_the_last_record(
    client: httpx.AsyncClient, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_RECORDS_BACK_MAX", 3)
    monkeypatch.setattr(store, "_RECORDS_BACK_MIN", 1)
    key = (await deliver(client, tenant, 1, b'{"id": 6}'))["key"]
    for number, grade in ((2, "unchanged"), (3, "new")):
        for _ in range(number):
            await append(client, "order", key, "was_noted")
        assert said(await deliver(client, tenant, number, b'{"id": 6}'))["grade"] == grade


async def test_first_sights_at_once_go_into_one_stream(
    client: httpx.AsyncClient, gateway: Served, tenant: Account, outbox: asyncpg.Pool
) -> None:
    bodies = [json.dumps({"id": 9, "n": number}).encode() for number in range(12)]
    events = await asyncio.gather(
        *(deliver(client, tenant, number, body) for number, body in enumerate(bodies))
    )
    assert len({event["key"] for event in events}) == 1
    assert sorted(event["version"] for event in events) == list(range(1, 13))
    mapped = await outbox.fetch(
        "SELECT source, scope, source_id FROM source_map WHERE tenant = $1", uuid.UUID(tenant.id)
    )
    assert [tuple(row) for row in mapped] == [("forge", "order", "9")]


async def test_a_key_that_a_source_id_leads_to_is_an_ordinary_one(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    key = (await deliver(client, tenant, 1, b'{"id": 1}'))["key"]
    assert (await append(client, "order", key, "was_noted")).json()["length"] == 2
