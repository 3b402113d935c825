"""What one change does to more rows than are held at a time is written in parts, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from gateway.follow import commit, events, joins, lists, states
from gateway.follow.model import Build, Changes
from tests.follow.conftest import Shop
from tests.follow.test_builds import deploy
from tests.follow.test_joins import ROWS, SPEC
from tests.support.accounts import open_account
from tests.support.calls import ACTOR, new_client, new_id
from tests.support.serving import Served

TEXT = "x" * 1_000
BOUND = 4_000


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """The transactions and keys of what is written."""
    parts: list[tuple[int, list[str]]] = []
    put = commit.put

    async def noted(conn: Any, build: Build, change: Changes) -> None:
        assert sum([len(each.row.data or b"") for each in change.puts]) <= BOUND + 2 * len(TEXT)
        transaction = await conn.fetchval("SELECT txid_current()")
        parts.append((transaction, [each.key for each in change.puts]))
        await put(conn, build, change)

    monkeypatch.setattr(commit, "put", noted)
    return parts


def keys_of(parts: Sequence[tuple[int, list[str]]]) -> dict[int, list[list[str]]]:
    """By transaction, of those in several parts."""
    of: dict[int, list[list[str]]] = {}
    for transaction, keys in parts:
        if keys:
            of.setdefault(transaction, []).append(keys)
    return {transaction: each for transaction, each in of.items() if len(each) > 1}


async def test_a_list_takes_an_append_to_many_aggregates_in_parts(
    shop: Shop, written: list[tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ROWS_BYTES_MAX", BOUND)
    keys = [new_id() for _ in range(12)]
    for event_type, data in (("was_placed", {"text": TEXT}), ("was_paid", {})):
        listed = [{"aggregate_type": "order", "key": key, "type": event_type, "data": data} for key in keys]
        answer = await shop.client.post("/_/append", json={"events": listed, "metadata": {"actor": ACTOR}})
        assert answer.status_code == 201, answer.text
        page = await shop.get("/order", limit=100)
        assert {each["key"] for each in page["items"]} == {*keys}
        paid = event_type == "was_paid"
        assert [each["data"].get("status") for each in page["items"]] == (["paid"] if paid else [None]) * 12
        assert all(each["data"]["text"] == TEXT for each in page["items"])
    of = keys_of(written)
    assert len(of) == 2
    for parts in of.values():
        assert len(parts) > 2
        assert sorted(key for part in parts for key in part) == sorted(keys)


async def test_a_join_makes_all_its_rows_again_in_parts(
    gateway: Served,
    pool: asyncpg.Pool,
    written: list[tuple[int, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joins, "PART_BYTES_MAX", BOUND)
    monkeypatch.setattr(joins, "KEYS_AT_ONCE", 5)
    monkeypatch.setattr(joins, "KNOWN_MAX", 10)
    orders = sorted(new_id() for _ in range(13))
    account = await open_account(pool, SPEC)
    async with new_client(gateway.url, account.admin) as client:
        shop = Shop(client)
        customer = new_id()
        for order in orders:
            await shop.append(order, "was_set", {"customer_id": customer})
        await shop.append(customer, "was_set", {"name": TEXT}, of="customer")
        await shop.get(ROWS)
        written.clear()
        await shop.append("global", "was_set", {"default_tax_rate": 0.19}, of="pricing_rules")
        await shop.append("global", "was_set", {"default_tax_rate": 0.2}, of="pricing_rules")
        page = await shop.get(ROWS, limit=100)
        assert {each["data"]["customer_name"] for each in page["items"]} == {TEXT}
        assert {each["data"]["tax_rate"] for each in page["items"]} == {0.2}
        assert sorted(each["key"] for each in page["items"]) == orders
        for parts in keys_of(written).values():
            assert len(parts) > 2
            assert [key for part in parts for key in part] == orders
        assert keys_of(written)
        rebuilt = {**SPEC["projections"]["order_with_details"], "by": ["tax_rate"]}
        await deploy(shop, {**SPEC, "projections": {"order_with_details": rebuilt}})
        page = await shop.get(ROWS, **{"limit": 100, "filter[tax_rate]": 0.2})
        assert sorted(each["key"] for each in page["items"]) == orders


async def test_a_state_is_folded_from_pages_of_few_bytes(
    gateway: Served, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (events, states):
        monkeypatch.setattr(module, "PAGE_BYTES", 40)
    pages: list[int] = []
    stream = events.Events.stream

    async def noted(*args: Any) -> Any:
        page = await stream(*args)
        pages.append(len(page))
        return page

    monkeypatch.setattr(events.Events, "stream", noted)
    account = await open_account(pool, SPEC)
    async with new_client(gateway.url, account.admin) as client:
        shop = Shop(client)
        customer, order = new_id(), new_id()
        for n in range(7):
            await shop.append(customer, "was_set", {"name": f"name {n}", "padding": "x"}, of="customer")
        await shop.get(ROWS)
        pages.clear()
        await shop.append(order, "was_set", {"customer_id": customer})
        row = await shop.get(f"{ROWS}/{order}")
    assert row["data"]["customer_name"] == "name 6"
    assert [each for each in pages if each > 1] == [2, 2, 2]
