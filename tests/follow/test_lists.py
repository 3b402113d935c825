"""GET /{type}: every aggregate of a type, with the state that a read gives."""

from __future__ import annotations

from tests.follow.conftest import Shop
from tests.support.calls import new_id


async def test_a_list_has_each_aggregate_with_its_state(shop: Shop) -> None:
    one, other = sorted((new_id(), new_id()))
    await shop.append(one, "was_placed", {"total": 12.50, "status": "open"})
    await shop.append(other, "was_placed", {"total": 3, "status": "open"})
    await shop.append(other, "was_paid")
    listed = await shop.get("/order")
    assert [each["key"] for each in listed["items"]] == [one, other]
    for each in listed["items"]:
        state = (await shop.client.get(f"/order/{each['key']}")).json()
        assert {"key": each["key"], "data": each["data"], "metadata": each["metadata"]} == {
            "key": state["key"],
            "data": state["data"],
            "metadata": state["metadata"],
        }
    assert listed["next"] is None


async def test_rows_of_a_projection(shop: Shop) -> None:
    customer, order = new_id(), new_id()
    await shop.append(order, "was_placed", {"total": 12.5, "customer_id": customer.upper()})
    await shop.append(new_id(), "was_placed", {"total": 3, "customer_id": customer})
    await shop.append(order, "was_cancelled")
    row = await shop.get(f"/_/projections/customer_totals/{customer}")
    assert row["data"] == {"orders": 1, "spent": 15.5}
    listed = await shop.get("/_/projections/customer_totals", sort="-spent")
    assert [each["key"] for each in listed["items"]] == [customer]
    print(listed)
    print((await shop.client.get("/_/projections")).json())
