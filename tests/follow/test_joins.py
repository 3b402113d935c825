"""A join: a row for each aggregate of a type, put together from its state and others'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from tests.follow.conftest import Shop
from tests.support.accounts import open_account
from tests.support.calls import new_client, new_id, refused
from tests.support.serving import Served

ANY: dict[str, Any] = {"events": {"was_set": {"schema": {}}}}
SPEC: dict[str, Any] = {
    "aggregate_types": {"order": ANY, "customer": ANY, "product": ANY, "pricing_rules": ANY},
    "agent_types": ["user"],
    "projections": {
        "order_with_details": {
            "join": {
                "for_each": "order",
                "include_substreams": False,
                "sources": {
                    "order": "$key",
                    "customer": {"type": "customer", "id": "$.order.customer_id"},
                    "products": {
                        "type": "product",
                        "id": "$.order.line_items[*].product_id",
                        "mode": "array",
                    },
                },
                "include": {"pricing": "pricing_rules:global"},
                "select": {
                    "order_id": "$.order.id",
                    "customer_name": "$.customer.name",
                    "tax_rate": "$.pricing.default_tax_rate",
                    "items": {
                        "$map": "$.order.line_items",
                        "as": "$item",
                        "to": {
                            "product_id": "$item.product_id",
                            "product_name": {
                                "$lookup": "$.products",
                                "where": {"id": "$item.product_id"},
                                "select": "$.name",
                            },
                        },
                    },
                },
            },
            "by": ["customer_name", "tax_rate"],
        }
    },
}
ROWS = "/_/projections/order_with_details"


@pytest.fixture
async def shop(gateway: Served, pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    account = await open_account(pool, SPEC)
    async with new_client(gateway.url, account.admin) as client:
        yield Shop(client)


async def test_a_row_is_made_again_when_any_of_its_sources_changes(shop: Shop) -> None:
    order, customer, product, other = (new_id() for _ in range(4))
    items = [{"product_id": each} for each in (product, other)]
    await shop.append(order, "was_set", {"customer_id": customer, "line_items": items})
    row = await shop.get(f"{ROWS}/{order}")
    assert row["data"] == {
        "order_id": order,
        "customer_name": None,
        "tax_rate": None,
        "items": [{"product_id": each, "product_name": None} for each in (product, other)],
    }
    await shop.append(customer, "was_set", {"name": "Ada"}, of="customer")
    await shop.append(product, "was_set", {"name": "Tea"}, of="product")
    await shop.append("global", "was_set", {"default_tax_rate": 0.19}, of="pricing_rules")
    row = await shop.get(f"{ROWS}/{order}")
    assert (row["data"]["customer_name"], row["data"]["tax_rate"]) == ("Ada", 0.19)
    assert [each["product_name"] for each in row["data"]["items"]] == ["Tea", None]
    await shop.append(customer, "was_set", {"name": "Bea"}, of="customer")
    await shop.append(other, "was_set", {"name": "Cup"}, of="product")
    listed = await shop.get(ROWS, **{"filter[customer_name]": "Bea"})
    assert [each["product_name"] for each in listed["items"][0]["data"]["items"]] == ["Tea", "Cup"]
    await shop.append(order, "was_set", {"customer_id": new_id()})
    await shop.append(customer, "was_set", {"name": "Cleo"}, of="customer")
    assert (await shop.get(f"{ROWS}/{order}"))["data"]["customer_name"] is None


async def test_substreams_have_rows_only_where_they_are_asked_for(shop: Shop) -> None:
    order = new_id()
    await shop.append(f"{order}:a", "was_set", {"n": 1})
    await shop.append(order, "was_set", {"n": 2})
    assert [each["key"] for each in (await shop.get(ROWS))["items"]] == [order]


@pytest.mark.parametrize(
    ("join", "pointer"),
    [
        ({"for_each": "nothing", "select": {}}, "for_each"),
        ({"for_each": "order"}, ""),
        ({"for_each": "order", "select": {"a": "$.customer.name"}}, "select/a"),
        ({"for_each": "order", "select": {"a": {"$map": "$key", "to": 1}}}, "select/a"),
        (
            {"for_each": "order", "select": {}, "sources": {"c": {"type": "customer", "id": "$.d.id"}}},
            "sources/c/id",
        ),
        ({"for_each": "order", "select": {}, "include": {"p": "pricing_rules"}}, "include/p"),
        ({"for_each": "order", "select": {}, "include": {"p": "pricing_rules:main"}}, "include/p"),
    ],
)
async def test_a_join_with_a_fault_is_refused_with_its_place(shop: Shop, join: Any, pointer: str) -> None:
    spec = {**SPEC, "projections": {"j": {"join": join}}}
    told: httpx.Response = await shop.client.put("/_/spec", json=spec)
    faults = refused(told, 422, "invalid_spec", more=("faults",))["faults"]
    assert [each["pointer"] for each in faults] == [f"/projections/j/join/{pointer}".rstrip("/")]
