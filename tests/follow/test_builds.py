"""A changed definition is built beside the one that serves, and serves once it has caught up."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs
from gateway.follow import commit, declarations, put
from gateway.follow.declarations import Declarations
from gateway.follow.definitions import Definition
from gateway.follow.model import Build
from gateway.log.postgres import Postgres
from gateway.relay.outbox import Outbox
from gateway.relay.position import Place
from spec.model import Spec
from tests.follow.conftest import SPEC, Shop
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client, new_id, refused, until
from tests.support.serving import Served


def changed(**projection: Any) -> dict[str, Any]:
    spec = copy.deepcopy(SPEC)
    spec["projections"]["customer_totals"].update(projection)
    return spec


async def deploy(shop: Shop, spec: dict[str, Any]) -> None:
    response = await shop.client.put("/_/spec", json=spec)
    assert response.status_code == 200, response.text


async def test_a_changed_definition_serves_once_it_has_caught_up(shop: Shop, pool: asyncpg.Pool) -> None:
    customer = new_id()
    for total in range(5):
        await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": total})
    path = f"/_/projections/customer_totals/{customer}"
    assert (await shop.get(path))["data"] == {"orders": 5, "spent": 10}
    on = {"order.was_placed": {"key": "$.data.customer_id", "do": [{"increment": {"target": "seen"}}]}}
    await deploy(shop, changed(on=on, by=["seen"]))

    async def serves() -> bool:
        response = await shop.client.get(path, params={"wait": 0})
        assert response.status_code in (200, 503), response.text
        return response.status_code == 200 and response.json()["data"] == {"seen": 5}

    await until(serves)
    listed = await shop.get("/_/projections/customer_totals", **{"filter[seen]": 5})
    assert [each["key"] for each in listed["items"]] == [customer]

    async def the_former_is_gone() -> bool:
        count = await pool.fetchval(
            "SELECT count(DISTINCT r.follower) FROM follower_row r JOIN follower f ON f.tenant = r.tenant "
            "WHERE r.key = $1 AND f.kind = 'projection'",
            customer,
        )
        return bool(count == 1)

    await until(the_former_is_gone)


async def test_other_handlers_build_the_list_again_and_a_new_schema_does_not(
    shop: Shop, pool: asyncpg.Pool
) -> None:
    key = new_id()
    await shop.append(key, "was_placed", {"total": 1})
    await shop.append(key, "was_cancelled")
    await shop.get("/order")
    spec = copy.deepcopy(SPEC)
    spec["aggregate_types"]["order"]["events"]["was_paid"]["schema"] = {"type": "object"}
    await deploy(shop, spec)
    await shop.get("/order")
    cancelled = spec["aggregate_types"]["order"]["events"]["was_cancelled"]
    cancelled["handler"] = {"set": {"target": "status", "value": "lost"}}
    await deploy(shop, spec)

    async def lost() -> bool:
        (item,) = (await shop.get("/order"))["items"]
        return bool(item["data"]["status"] == "lost")

    await until(lost)
    builds = await pool.fetch(
        "SELECT DISTINCT f.id FROM follower f JOIN follower_row r ON r.tenant = f.tenant WHERE r.key = $1",
        key,
    )
    assert len(builds) <= 4  # `^` of the projection depends on the handlers too


async def test_a_row_is_found_by_any_text_that_is_its_key(shop: Shop) -> None:
    on = {"order.was_placed": {"key": "$.data.place", "do": [{"increment": {"target": "orders"}}]}}
    await deploy(shop, {**SPEC, "projections": {"places": {"key_kind": "text", "on": on}}})
    for place in ("a/b", "/", "a//b/", "50%", "a?b#c", " ", "\u00e9", "a" * 256):
        await shop.append(new_id(), "was_placed", {"place": place})
        row = await shop.get(f"/_/projections/places/{quote(place, safe='')}")
        assert (row["key"], row["data"]) == (place, {"orders": 1})
    for place in ("", "a" * 257, "\u00e9" * 129, None):
        await shop.append(new_id(), "was_placed", {"place": place})
    told = await shop.get("/_/projections/places", limit=1)
    assert [each["error"] for each in told["misfits"]] == [
        *(f"The key has {size} bytes; it may have 1 to 256, without U+0000." for size in (0, 257, 258)),
        "The key is null, not a string of 1 to 256 bytes.",
    ]


async def test_what_is_withdrawn_is_deleted_and_what_comes_back_is_built(
    shop: Shop, pool: asyncpg.Pool
) -> None:
    customer = new_id()
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    await shop.get(f"/_/projections/customer_totals/{customer}")
    spec = {**SPEC, "projections": {}}
    await deploy(shop, spec)
    refused(await shop.client.get(f"/_/projections/customer_totals/{customer}"), 404, "not_found", "name")

    async def gone() -> bool:
        return not await pool.fetchval("SELECT count(*) FROM follower_row WHERE key = $1", customer)

    await until(gone)
    await deploy(shop, SPEC)
    assert (await shop.get(f"/_/projections/customer_totals/{customer}"))["data"]["orders"] == 1


async def test_events_without_a_key_are_counted_and_stop_nothing(shop: Shop) -> None:
    customer = new_id()
    await shop.append(new_id(), "was_placed", {"total": 1})
    await shop.append(new_id(), "was_placed", {"total": 1, "customer_id": "nobody"})
    await shop.append(new_id(), "was_placed", {"total": "much", "customer_id": customer})
    told = await shop.get("/_/projections/customer_totals")
    assert (told["rows"], told["does_not_fit"], told["behind"], told["build"]) == (1, 3, 0, None)
    assert [each["operation"] for each in told["misfits"]] == [None, None, 1]
    assert told["items"][0]["data"] == {"orders": 1}


async def test_a_split_changes_each_row_once_and_a_closed_one_begins_again(shop: Shop) -> None:
    one, other = new_id(), new_id()
    parts = [{"customer_id": each} for each in (one, other, one)]
    await shop.append(new_id(), "was_split", {"parts": parts})
    await shop.append(one, "was_closed", of="customer")
    await shop.append(new_id(), "was_split", {"parts": parts[:1]})
    listed = await shop.get("/_/projections/customer_totals", count="true")
    assert {each["key"]: each["data"] for each in listed["items"]} == {one: {"parts": 1}, other: {"parts": 1}}
    assert listed["count"] == 2


async def test_a_bad_key_in_a_list_is_counted_and_keeps_no_other_row_from_its_change(shop: Shop) -> None:
    one, other = new_id(), new_id()
    parts = [{"customer_id": each} for each in (one, "nobody", 7, other)]
    await shop.append(new_id(), "was_split", {"parts": parts})
    await shop.append(new_id(), "was_split", {"parts": parts[1:3]})
    await shop.append(new_id(), "was_split", {"parts": parts[2:3]})
    told = await shop.get("/_/projections/customer_totals")
    assert {each["key"]: each["data"] for each in told["items"]} == {one: {"parts": 1}, other: {"parts": 1}}
    assert told["does_not_fit"] == 3
    assert [each["error"] for each in told["misfits"]] == [
        "2 of 4 keys are not valid; the first is at [1]. The key is a string that is not an identifier.",
        "2 of 2 keys are not valid; the first is at [0]. The key is a string that is not an identifier.",
        "1 of 1 keys are not valid; the first is at [0]. The key is a number, not an identifier.",
    ]


async def test_rows_see_data_brought_to_the_present_revision(shop: Shop) -> None:
    customer, key = new_id(), new_id()
    await shop.append(key, "was_placed", {"customer": customer, "total": 1})
    spec = copy.deepcopy(SPEC)
    placed = spec["aggregate_types"]["order"]["events"]["was_placed"]
    placed |= {
        "revision": 2,
        "upcast": {"1": [{"set": {"target": "customer_id", "value": "$.data.customer"}}]},
    }
    await deploy(shop, spec)

    async def seen() -> bool:
        listed = await shop.get("/order", **{"filter[customer_id]": customer})
        rows = await shop.get("/_/projections/customer_totals")
        return [each["key"] for each in (*listed["items"], *rows["items"])] == [key, customer]

    await until(seen)


async def test_what_serves_answers_while_another_is_built_beside_it(shop: Shop) -> None:
    customer, path = new_id(), "/_/projections/customer_totals"
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    await shop.get(path)
    await deploy(shop, changed(by=["spent", "orders", "metadata.length"]))
    listed = (await shop.client.get(path, params={"sort": "-spent", "wait": 0})).json()
    assert [each["key"] for each in listed["items"]] == [customer]
    listed = await shop.get(path, **{"filter[metadata.length]": 1})
    assert [each["key"] for each in listed["items"]] == [customer]


async def test_a_field_that_what_serves_does_not_list_yet_is_refused(
    shop: Shop, pool: asyncpg.Pool, tenant: Account
) -> None:
    """An answer without rows would be taken for all there are."""
    customer, path = new_id(), "/_/projections/customer_totals"
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    await shop.get(path)
    listing = (
        "UPDATE follower SET fields = $2 WHERE tenant = $1::text::uuid AND kind = 'projection' "
        "AND name = 'customer_totals'"
    )
    await pool.execute(listing, tenant.id, ["spent"])
    for query in ("filter[orders]=1", "sort=orders,spent"):
        told = refused(await shop.client.get(f"{path}?{query}&wait=0"), 503, "behind", None, ("position",))
        assert "not listed by 'orders' yet" in told["error"]
    stands = (await shop.client.get(f"{path}?sort=spent")).json()
    assert (stands["state"], stands["position"]) == ("live", told["position"])
    assert [each["key"] for each in stands["items"]] == [customer]
    await pool.execute(listing, tenant.id, ["spent", "orders"])
    listed = await shop.get(path, **{"filter[orders]": 1})
    assert [each["key"] for each in listed["items"]] == [customer]


async def test_who_pauses_waits_for_a_build_that_begins_to_serve(
    shop: Shop, pool: asyncpg.Pool, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been a deadlock: each had locked one of the two builds."""
    await shop.append(new_id(), "was_placed", {"customer_id": new_id(), "total": 1})
    await shop.get("/_/projections/customer_totals")
    stored = Declarations(pool, Outbox(Postgres(pool), 16, settled))
    pausing: list[asyncio.Task[bool]] = []

    async def waits() -> bool:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE follower SET paused%'"
        )
        return bool(await pool.fetchval(waiting))

    async def served(conn: Any, build: Build, reached: Place) -> None:
        if build.tenant == UUID(tenant.id).bytes and not pausing:
            pause = stored.set_paused(UUID(tenant.id), "projection", "customer_totals", True)
            pausing.append(asyncio.create_task(pause))
            await until(waits)
        await serve(conn, build, reached)

    serve = commit._serve
    monkeypatch.setattr(commit, "_serve", served)
    await deploy(shop, changed(by=["spent"]))

    async def is_asked() -> bool:
        return bool(pausing)

    await until(is_asked)
    assert await pausing[0]
    stands = (await shop.client.get("/_/projections/customer_totals")).json()
    assert (stands["state"], stands["build"]) == ("paused", None)
    await stored.set_paused(UUID(tenant.id), "projection", "customer_totals", False)


async def test_where_postgres_lost_commits_everything_is_built_again(
    shop: Shop, pool: asyncpg.Pool, tenant: Account
) -> None:
    """But for what was dropped: that stays so until it is rebuilt."""
    customer, path = new_id(), "/_/projections/customer_totals"
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    await shop.get(path)
    stored = Declarations(pool, Outbox(Postgres(pool), 16, settled))
    assert await stored.drop(UUID(tenant.id), "list", "order")
    spoilt = "UPDATE follower SET mark = '\\x01020304', moves = moves + 1 WHERE tenant = $1::text::uuid"
    await pool.execute(spoilt, tenant.id)
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 2})

    async def whole() -> bool:
        response = await shop.client.get(f"{path}/{customer}", params={"wait": 0})
        return response.status_code == 200 and response.json()["data"] == {"orders": 2, "spent": 3}

    await until(whole)
    states = {(each.kind, each.name): each.state for each in await stored.every(UUID(tenant.id))}
    assert states["list", "order"] == "off"


async def test_what_is_deployed_again_where_postgres_lost_it_is_another_definition(
    shop: Shop, pool: asyncpg.Pool, tenant: Account
) -> None:
    """Of the same revision, which the gateway has read before."""
    customer, path = new_id(), "/_/projections/customer_totals"
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    assert (await shop.get(f"{path}/{customer}"))["data"] == {"orders": 1, "spent": 1}
    on = {"order.was_placed": {"key": "$.data.customer_id", "do": [{"increment": {"target": "seen"}}]}}
    document = json.dumps(changed(on=on, by=["seen"])).encode()
    again = "UPDATE spec_revision SET document = $2, digest = $3 WHERE tenant = $1"
    await pool.execute(again, UUID(tenant.id), document, specs.digest_of(document))
    await pool.execute("UPDATE followed SET revision = 0 WHERE tenant = $1", UUID(tenant.id))
    await pool.execute("UPDATE catalog_clock SET revision = revision - 1")

    async def made_by_it() -> bool:
        row = (await shop.client.get(f"{path}/{customer}")).json()
        return bool(row.get("data") == {"seen": 1})

    await until(made_by_it)


async def test_one_that_is_paused_serves_what_it_has(shop: Shop, pool: asyncpg.Pool, tenant: Account) -> None:
    customer, path = new_id(), "/_/projections/customer_totals"
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 1})
    await shop.get(path)
    outbox = Outbox(Postgres(pool), 16, settled)
    stored = Declarations(pool, outbox)
    assert await stored.set_paused(UUID(tenant.id), "projection", "customer_totals", True)
    await shop.append(new_id(), "was_placed", {"customer_id": customer, "total": 2})
    after = await shop.position()
    response = await shop.client.get(path, params={"after": after, "wait": 1})
    told = refused(response, 503, "behind", None, ("position",))
    stands = (await shop.client.get(path)).json()
    assert (stands["state"], stands["behind"], stands["position"]) == ("paused", 1, told["position"])
    assert stands["items"][0]["data"] == {"orders": 1, "spent": 1}
    assert await stored.set_paused(UUID(tenant.id), "projection", "customer_totals", False)
    assert (await shop.get(path))["items"][0]["data"] == {"orders": 2, "spent": 3}


async def settled(_p: int, _epoch: int, _seq: int, _event_id: bytes) -> None:
    """At once: there is no standby."""


async def test_a_batch_of_more_rows_than_a_statement_writes_is_written_whole(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put, "ROWS_A_STATEMENT", 2)
    events = [
        {"aggregate_type": "order", "type": "was_placed", "key": new_id(), "data": {"total": total}}
        for total in range(5)
    ]
    body = {"events": events, "metadata": {"actor": {"type": "user", "id": "global"}}}
    appended = await shop.client.post("/_/append", json=body)
    assert appended.status_code == 201, appended.text
    listed = await shop.get("/order", after=appended.json()["position"])
    assert sorted(each["data"]["total"] for each in listed["items"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [2**53, -(10**40)])
async def test_a_definition_may_have_numbers_that_no_double_holds(shop: Shop, number: int) -> None:
    key, spec = new_id(), copy.deepcopy(SPEC)
    by_number = {"set": {"target": "number", "value": number}}
    spec["aggregate_types"]["order"]["events"]["was_paid"]["handler"] = by_number
    spec["projections"]["customer_totals"]["on"]["order.was_paid"] = {"key": "$.key", "do": by_number}
    await deploy(shop, spec)
    await shop.append(key, "was_paid")

    async def serves() -> bool:
        paths = "/order", "/_/projections/customer_totals"
        found = [await shop.client.get(path, params={"wait": 0}) for path in paths]
        return [b'{"number":%d}' % number in each.content for each in found] == [True, True]

    await until(serves)


@pytest.mark.bug
async def test_a_bug_with_the_definitions_of_one_tenant_keeps_no_others_from_being_declared(
    shop: Shop, gateway: Served, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spec = declarations.definitions

    def of_most(spec: Spec, document: bytes) -> Iterable[Definition]:
        if b"breaks" in document:
            raise ArithmeticError
        return of_spec(spec, document)

    monkeypatch.setattr(declarations, "definitions", of_most)
    spec = copy.deepcopy(SPEC)
    spec["projections"]["breaks"] = spec["projections"]["customer_totals"]
    await deploy(shop, spec)
    other = await open_account(pool, SPEC)
    async with new_client(gateway.url, other.admin) as client:
        key = new_id()
        await Shop(client).append(key, "was_placed", {"total": 3})

        async def listed() -> bool:
            answer = await client.get("/order", params={"wait": 1})
            return answer.status_code == 200 and key in answer.text

        await until(listed)
