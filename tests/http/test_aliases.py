"""Aliases in the `{id}` slot: public ids, given behind the commit, resolved everywhere."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.config import Config
from tests.aliases.drive import open_registry
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import ACTOR, append, appended, batch, envelope, new_client, new_id, refused, until
from tests.support.drive import Place
from tests.support.serving import Served

PUBLIC: dict[str, Any] = {**SPEC, "public_ids": {"key": "VNO", "types": ["order", "ticket"]}}
WAIT = {"prefer": "wait"}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, PUBLIC)


async def create(client: httpx.AsyncClient, aggregate_type: str = "order", event: str = "was_placed") -> str:
    """The key of a new aggregate that has its names."""
    told = await appended(client, aggregate_type, new_id(), event, headers=WAIT)
    assert told["aliases"]
    return str(told["key"])


async def test_a_new_aggregate_is_told_its_public_id_when_asked_to_wait(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await appended(client, "order", key, "was_placed", headers=WAIT)
    assert (told["key"], told["aliases"]) == (key, ["VNO-1"])
    assert "aliases" not in await appended(client, "order", key, "was_noted", headers=WAIT)
    several = await client.post(f"/order/{new_id()}", json=batch(("was_placed", {})), headers=WAIT)
    assert (several.status_code, several.json()["aliases"]) == (201, ["VNO-2"])
    minted = await client.post("/ticket", json=batch(("was_opened", {})), headers=WAIT)
    assert (minted.status_code, minted.json()["aliases"]) == (201, ["VNO-3"])


async def test_each_new_aggregate_of_an_append_to_several_is_told_its_public_id(
    client: httpx.AsyncClient,
) -> None:
    old, new = await create(client), new_id()

    def event(**named: str) -> dict[str, Any]:
        return {"aggregate_type": "order", "type": "was_placed", "data": {}, **named}

    several = [event(), event(key=old), event(key=new), event(key=new)]
    for events in (several, [event()]):
        body = {"events": events, "metadata": {"actor": ACTOR}}
        sent = {"json": body, "headers": {**WAIT, "idempotency-key": str(len(events))}}
        first, again = [await client.post("/_/append", **sent) for _ in range(2)]
        assert (first.status_code, again.json()) == (201, first.json())
        for told in first.json()["events"]:
            names = (await client.get(f"/order/{told['key']}/aliases")).json()["aliases"]
            assert told.get("aliases") == (names if told["length"] == 1 else None)


async def test_a_client_that_does_not_ask_is_not_told(client: httpx.AsyncClient) -> None:
    assert "aliases" not in await appended(client, "order", new_id(), "was_placed")
    told = await appended(client, "config", new_id(), "was_changed", headers=WAIT)
    assert "aliases" not in told, "its type has no public ids"


async def test_an_alias_stands_wherever_an_id_does(client: httpx.AsyncClient) -> None:
    key = await create(client)
    receipt = await append(client, "order", "@VNO-1", "was_named", {"name": "Ada"})
    assert (receipt.status_code, receipt.json()["key"]) == (201, key)
    assert receipt.headers["location"] == f"/order/{key}/events/2"
    several = await client.post("/order/@VNO-1", json=batch(("was_noted", 1)))
    assert (several.status_code, several.json()["key"], several.json()["length"]) == (201, key, 3)
    state = await client.get("/order/@VNO-1")
    assert (state.json()["key"], state.json()["data"]) == (key, {"customer": {"name": "Ada"}})
    length = await client.get("/order/@VNO-1/length")
    assert length.json() == {"ok": True, "key": key, "length": 3}
    events = await client.get("/order/@VNO-1/events")
    assert events.json()["key"] == key
    event = await client.get("/order/@VNO-1/events/1")
    assert event.json()["event"]["key"] == key
    listed = await client.get("/order/@VNO-1/aliases")
    assert listed.json() == {"ok": True, "key": key, "aliases": ["VNO-1"]}
    lines = await client.get("/order/@VNO-1/events", headers={"accept": "application/x-ndjson"})
    for answer in (receipt, several, state, length, events, event, listed, lines):
        assert answer.headers["content-location"] == f"/order/{key}", answer.url
    same = await client.get("/order/@VNO-1", headers={"if-none-match": state.headers["etag"]})
    assert (same.status_code, same.headers["content-location"]) == (304, f"/order/{key}")
    head = await client.head("/order/@vno-1")
    assert (head.status_code, head.headers["content-location"]) == (200, f"/order/{key}")
    assert "content-location" not in (await client.get(f"/order/{key}")).headers


async def test_a_retry_by_alias_is_the_retry_of_a_request_by_key(client: httpx.AsyncClient) -> None:
    key = await create(client)
    headers = {"idempotency-key": "once"}
    first = await append(client, "order", key, "was_noted", 1, headers)
    again = await append(client, "order", "@vno-1", "was_noted", 1, headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_replayed_creation_is_told_the_same_aliases(client: httpx.AsyncClient) -> None:
    headers, key = {"idempotency-key": "once", **WAIT}, new_id()
    first = await append(client, "order", key, "was_placed", headers=headers)
    again = await append(client, "order", key, "was_placed", headers=headers)
    assert again.json() == first.json()
    assert again.json()["aliases"] == ["VNO-1"]
    minting = batch(("was_opened", {}))
    first = await client.post("/ticket", json=minting, headers={"idempotency-key": "minted", **WAIT})
    again = await client.post("/ticket", json=minting, headers={"idempotency-key": "minted", **WAIT})
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert again.json()["aliases"] == ["VNO-2"]


async def test_a_replayed_creation_that_the_spec_would_refuse_is_told_its_aliases(
    client: httpx.AsyncClient,
) -> None:
    headers, placed = {"idempotency-key": "placed", **WAIT}, batch(("was_placed", {"total": 1}))
    placing = await client.post("/order", json=placed, headers=headers)
    opened = await client.post(
        f"/ticket/{new_id()}", json=batch(("was_opened", {})), headers={"idempotency-key": "opened", **WAIT}
    )
    spec = copy.deepcopy(PUBLIC)
    spec["aggregate_types"]["order"]["events"]["was_placed"]["schema"] = {"maxProperties": 0}
    del spec["aggregate_types"]["ticket"]
    spec["public_ids"]["types"] = ["order"]
    assert (await client.put("/_/spec?force=true", json=spec)).status_code == 200
    again = await client.post("/order", json=placed, headers=headers)
    assert (again.status_code, again.json()) == (201, placing.json())
    again = await client.post(
        f"/ticket/{opened.json()['key']}",
        json=batch(("was_opened", {})),
        headers={"idempotency-key": "opened", **WAIT},
    )
    assert (again.status_code, again.json()) == (201, opened.json())


async def test_what_is_stored_stays_readable_by_its_alias(client: httpx.AsyncClient) -> None:
    spec = copy.deepcopy(PUBLIC)
    spec["singletons"] = [*spec.get("singletons", []), "kiosk"]
    assert (await client.put("/_/spec", json=spec)).status_code == 200
    key = await create(client, "ticket", "was_opened")
    headers = {"idempotency-key": "once"}
    noted = await append(client, "ticket", "@VNO-1", "was_opened", headers=headers)
    assert noted.status_code == 201
    kiosk = await appended(client, "order", "kiosk", "was_placed", headers=WAIT)
    assert kiosk["aliases"] == [], "a singleton has its name"
    del spec["aggregate_types"]["ticket"]
    spec["public_ids"]["types"] = ["order"]
    spec["singletons"].remove("kiosk")
    assert (await client.put("/_/spec?force=true", json=spec)).status_code == 200
    for part in ("", "/length", "/events", "/events/1", "/aliases"):
        by_key = await client.get(f"/ticket/{key}{part}")
        by_alias = await client.get(f"/ticket/@VNO-1{part}")
        assert (by_alias.status_code, by_alias.headers["content-location"]) == (200, f"/ticket/{key}"), part
        assert by_alias.json().items() >= by_key.json().items(), part
    again = await append(client, "ticket", "@VNO-1", "was_opened", headers=headers)
    assert (again.status_code, again.json()) == (201, noted.json())
    refused(await append(client, "ticket", "@VNO-1", "was_opened"), 404, "unknown_aggregate_type", "type")
    refused(await client.get("/ticket/@VNO-9"), 404, "unknown_aggregate_type", "type")


async def test_the_bare_form_is_what_the_rule_of_identifiers_says(client: httpx.AsyncClient) -> None:
    await create(client)
    refused(await client.get("/order/VNO-1"), 422, "invalid_identifier", "key")
    refused(await append(client, "order", "VNO-1", "was_noted"), 422, "invalid_identifier", "key")


@pytest.mark.parametrize(
    "text",
    [
        "VNO-0", "VNO-042", "VNO-４２", "VNO-٤٢", "VNO-1_000", "VNO-42%0A", "VNO-9223372036854775808",
        "VNO-+1", "VNO-1.5", "VNO", "VNO-", "-1", "VNO--1", "VNO-1%00", "VNO-%ff", "ﬁX-1", "VſO-1",
        "@VNO-1", "VNO-1%2F", "bd-abc", "bd-hello", "bd-k86gaq.0", "bd-k86gaq.01", "bd-k86gaq.1.2.3.4",
        "bd-k86gaqk86gaqk86gaq", "VNO-1.1", "VNO- 1", "V-1", "",
        "VNO-1" + "0" * 300,
    ],
)  # fmt: skip
async def test_a_malformed_alias_is_no_identifier(client: httpx.AsyncClient, text: str) -> None:
    refused(await client.get(f"/order/@{text}"), 422, "invalid_identifier", "key")
    refused(await client.get(f"/order/@{text}/aliases"), 422, "invalid_identifier", "key")
    refused(await client.post(f"/order/@{text}/was_noted", json=envelope()), 422, "invalid_identifier", "key")
    refused(await client.get(f"/_/resolve/@{text}"), 422, "invalid_identifier", "key")


async def test_an_alias_without_its_sigil_is_not_resolved(client: httpx.AsyncClient) -> None:
    await create(client)
    refused(await client.get("/_/resolve/VNO-1"), 422, "invalid_identifier", "key")
    for path in ("/_/resolve/x/@VNO-1", "/_/resolve/@VNO-1/", "/_/resolve/", "/_/resolve//@VNO-1"):
        refused(await client.get(path), 404, "not_found")


async def test_an_unknown_alias_is_not_found(client: httpx.AsyncClient) -> None:
    for text in ("VNO-2", "ABC-1", "vno-9223372036854775807", "bd-k86gaq", "k86gaq", "bd-k86gaq.1"):
        refused(await client.get(f"/order/@{text}"), 404, "unknown_alias", "key")
        refused(await client.get(f"/order/@{text}/length"), 404, "unknown_alias", "key")
        refused(await append(client, "order", f"@{text}", "was_noted"), 404, "unknown_alias", "key")
        refused(await client.get(f"/_/resolve/@{text}"), 404, "unknown_alias", "key")


async def test_an_alias_names_nothing_of_another_type(client: httpx.AsyncClient) -> None:
    await create(client)
    assert (await client.get("/order/@VNO-1")).status_code == 200  # kept in memory from here on
    refused(await client.get("/ticket/@VNO-1"), 404, "unknown_alias", "key")
    refused(await client.get("/config/@VNO-1"), 404, "unknown_alias", "key")
    refused(await append(client, "ticket", "@VNO-1", "was_opened"), 404, "unknown_alias", "key")


async def test_no_alias_of_another_tenant_can_be_observed(
    client: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    key = await create(client)
    await create(client)
    account = await open_account(outbox, PUBLIC)
    async with new_client(gateway.url, account.admin) as other:
        unknown = refused(await other.get("/order/@VNO-1"), 404, "unknown_alias", "key")
        assert refused(await other.get("/_/resolve/@VNO-1"), 404, "unknown_alias", "key")
        own = await appended(other, "order", new_id(), "was_placed", headers=WAIT)
        assert own["aliases"] == ["VNO-1"]
        assert (await other.get("/order/@VNO-1")).json()["key"] == own["key"] != key
        second = refused(await other.get("/order/@VNO-2"), 404, "unknown_alias", "key")
        assert second["error"] == unknown["error"].replace("VNO-1", "VNO-2")


async def test_resolve_names_the_aggregate(client: httpx.AsyncClient, reader: httpx.AsyncClient) -> None:
    order, ticket = await create(client), await create(client, "ticket", "was_opened")
    told = await reader.get("/_/resolve/@vNo-2")
    assert told.status_code == 200
    assert told.json() == {"ok": True, "aggregate_type": "ticket", "key": ticket, "alias": "VNO-2"}
    assert (await client.get("/_/resolve/%40VNO-1")).json()["key"] == order


async def test_a_retired_alias_resolves_and_is_shown_as_such(
    client: httpx.AsyncClient, gateway: Served, tenant: Account, config: Config
) -> None:
    key = await create(client)
    owner = UUID(tenant.id)
    async with open_registry(Place(gateway.postgres_url, config.redis_url), assigning=False) as registry:
        for retired in (True, False):
            assert (await client.get("/order/@VNO-1")).status_code == 200
            await registry.retire(owner, "VNO-1", restore=not retired)
            told = (await client.get("/_/resolve/@VNO-1")).json()
            assert (told["key"], told.get("retired")) == (key, True if retired else None)
            listed = (await client.get("/order/@VNO-1/aliases")).json()
            assert listed["aliases"] == ([] if retired else ["VNO-1"])
            assert listed.get("retired") == (["VNO-1"] if retired else None)
            receipt = await append(client, "order", "@VNO-1", "was_noted")
            assert (receipt.status_code, receipt.json()["key"]) == (201, key)


async def test_unknown_types_are_refused_before_an_alias_is_looked_at(client: httpx.AsyncClient) -> None:
    for text in ("@VNO-0", "@VNO-1"):
        refused(await client.get(f"/nothing/{text}"), 404, "unknown_aggregate_type", "type")
        refused(await append(client, "nothing", text, "was_noted"), 404, "unknown_aggregate_type", "type")
        refused(await append(client, "order", text, "was_lost"), 404, "unknown_event_type", "event_type")
        refused(await append(client, "order", text, "_was_lost"), 422, "reserved_event_type", "event_type")
        several = await client.post(f"/order/{text}", json=batch(("was_lost", {})))
        refused(several, 422, "unknown_event_type", "events[0].type")


async def test_actors_and_targets_take_no_aliases(client: httpx.AsyncClient) -> None:
    await create(client)
    sent = {"data": {}, "metadata": {"actor": {"type": "user", "id": "@VNO-1"}}}
    answer = await client.post(f"/order/{new_id()}/was_noted", json=sent)
    refused(answer, 422, "invalid_identifier", "metadata.actor.id")
    sent = {"data": {}, "metadata": {"actor": ACTOR, "target": {"type": "order", "id": "@VNO-1"}}}
    answer = await client.post(f"/order/{new_id()}/was_noted", json=sent)
    refused(answer, 422, "invalid_identifier", "metadata.target.id")


async def test_aliases_are_listed_by_key(client: httpx.AsyncClient) -> None:
    key = await create(client)
    listed = await client.get(f"/order/{key.upper()}/aliases")
    assert listed.json() == {"ok": True, "key": key, "aliases": ["VNO-1"]}
    assert (await client.get("/order/global/aliases")).json()["aliases"] == []
    refused(await client.get(f"/order/{new_id()}/aliases"), 404, "not_found")
    answer = await client.post(f"/order/{key}/aliases", json=envelope())
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_aggregates_of_before_are_numbered_in_the_order_of_their_creation(
    client: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        keys = [(await appended(client, "order", new_id(), "was_placed"))["key"] for _ in range(5)]
        declared = copy.deepcopy(PUBLIC)
        assert (await client.put("/_/spec", json=declared)).status_code == 200

        async def all_named() -> bool:
            return (await client.get(f"/_/resolve/@VNO-{len(keys)}")).status_code == 200

        await until(all_named)
        found = [(await client.get(f"/_/resolve/@VNO-{n}")).json()["key"] for n in range(1, 6)]
        assert found == keys


async def test_another_key_for_public_ids_is_a_conflict_once_one_was_given(client: httpx.AsyncClient) -> None:
    other = {**PUBLIC, "public_ids": {"key": "ABC", "types": ["order"]}}
    none = {**PUBLIC, "public_ids": {}}
    key = await create(client)
    answer = await client.put("/_/spec", json=other)
    told = refused(answer, 409, "spec_conflict", more=["revision", "conflicts"])
    assert [each["pointer"] for each in told["conflicts"]] == ["/public_ids/key"]
    assert (await client.put("/_/spec", json=none)).status_code == 200
    assert (await client.get("/order/@VNO-1")).json()["key"] == key
    assert "aliases" not in await appended(client, "order", new_id(), "was_placed", headers=WAIT)
    assert (await client.put("/_/spec", json=PUBLIC)).status_code == 200
    told = await appended(client, "order", new_id(), "was_placed", headers=WAIT)
    assert told["aliases"] == ["VNO-3"], "the one of meanwhile has its number by now"


async def test_a_key_of_public_ids_is_not_changed_in_two_deployments_either(
    client: httpx.AsyncClient,
) -> None:
    await create(client)
    assert (await client.put("/_/spec", json={**PUBLIC, "public_ids": {}})).status_code == 200
    other = {**PUBLIC, "public_ids": {"key": "ABC", "types": ["order"]}}
    answer = await client.put("/_/spec", json=other)
    told = refused(answer, 409, "spec_conflict", more=["revision", "conflicts"])
    assert [each["pointer"] for each in told["conflicts"]] == ["/public_ids/key"]
    assert "the key VNO" in told["conflicts"][0]["error"]
    assert (await client.put("/_/spec", json={"spec": other, "force": True})).status_code == 200
    assert (await client.get("/order/@VNO-1")).status_code == 200


async def test_the_key_of_public_ids_never_changes_but_hashes_may_share_it(
    client: httpx.AsyncClient,
) -> None:
    await create(client)
    assert (await client.put("/_/spec", json={**PUBLIC, "public_ids": {}})).status_code == 200
    hashed = {**SPEC, "hash_ids": {"prefix": "vno", "types": ["ticket"]}}
    assert (await client.put("/_/spec", json=hashed)).status_code == 200
    ticket = await appended(client, "ticket", new_id(), "was_opened", headers=WAIT)
    assert ticket["aliases"][0].startswith("vno-")
    numbered = {**SPEC, "public_ids": {"key": "BD", "types": ["order"]}}
    told = refused(
        await client.put("/_/spec", json=numbered), 409, "spec_conflict", more=["revision", "conflicts"]
    )
    assert {each["pointer"] for each in told["conflicts"]} == {"/public_ids/key"}
    assert (await client.put("/_/spec", json=PUBLIC)).status_code == 200


async def test_what_the_gateway_records_about_names_is_no_event_of_an_aggregate(
    client: httpx.AsyncClient,
) -> None:
    key = await create(client)
    page = (await client.get("/_/feed")).json()
    assert [each["key"] for each in page["events"]] == [key]
    assert page["caught_up"] is True
    refused(await client.get("/_names/global/events"), 404, "unknown_aggregate_type", "type")
    answer = await append(client, "_names", "global", "_names_given")
    refused(answer, 422, "reserved_event_type", "event_type")
    asked = (await client.get("/_/feed?types=_names")).json()
    assert [each["type"] for each in asked["events"]] == ["_names_given"]


@pytest.fixture
async def reader(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.read) as client:
        yield client
