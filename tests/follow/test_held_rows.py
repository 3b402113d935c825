"""Rows and states that are held at a time are bounded: appends that need more together are folded one behind
the other, and what one append needs beyond the bound does not fit."""

from __future__ import annotations

import copy
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.follow import drafts, events, lists, projections, states, worker
from gateway.follow.model import Row
from gateway.follow.row_cache import ROW_BYTES, RowCache
from tests.follow.conftest import SPEC, Shop
from tests.follow.test_builds import deploy
from tests.support.accounts import Account
from tests.support.calls import batch, new_id, until

BOUND = 8_000
TEXT = "x" * 1_000
NOTES: dict[str, Any] = {
    "key_kind": "text",
    "on": {
        "order.was_split": {
            "keys": "$.data.keys",
            "do": [{"append": {"target": "notes", "value": "$.data.text"}}],
        },
        "order.was_paid": {"key": "^.to", "do": [{"increment": {"target": "paid"}}]},
        "customer.was_closed": {"key": "$.type", "do": [{"increment": {"target": "closed"}}]},
    },
}


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (drafts, lists, projections, states):
        monkeypatch.setattr(module, "ROWS_BYTES_MAX", BOUND)


async def noted(shop: Shop) -> dict[str, Any]:
    found = await shop.get("/_/projections/notes", limit=1000)
    return {item["key"]: item["data"] for item in found["items"]}


async def misfits(shop: Shop) -> tuple[int, list[str]]:
    (stands,) = [
        each for each in (await shop.client.get("/_/projections")).json()["projections"]
        if each["name"] == "notes"
    ]  # fmt: skip
    return stands["does_not_fit"], [each["error"] for each in stands["misfits"]]


async def declare(shop: Shop, **more: Any) -> None:
    spec = copy.deepcopy(SPEC)
    spec["projections"]["notes"] = {**NOTES, **more}
    await deploy(shop, spec)


async def test_rows_of_many_appends_are_folded_some_appends_at_a_time(
    shop: Shop, tenant: Account, pool: asyncpg.Pool, bounded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = []
    half = events.Page.first_half

    def counted(page: events.Page) -> events.Page:
        halves.append(len(page.events))
        return half(page)

    monkeypatch.setattr(worker.Page, "first_half", counted)
    key = new_id()
    await shop.append(key, "was_placed", {"to": "payer", "text": TEXT * 2})
    for n in range(12):
        await shop.append(new_id(), "was_split", {"keys": [f"k{n}", f"k{n // 4}"], "text": TEXT})
        await shop.append(key, "was_paid")
    await declare(shop)
    rows = await noted(shop)
    counts = {each: len(data.get("notes", ())) for each, data in rows.items()}
    assert counts == {"payer": 0, "k0": 4, "k1": 5, "k2": 5} | {f"k{n}": 1 for n in range(3, 12)}
    assert rows["payer"] == {"paid": 12}
    assert (await misfits(shop))[0] == 0
    assert halves
    assert len((await shop.get("/order"))["items"]) == 13
    of = "SELECT id FROM follower WHERE tenant = $1 AND name = 'notes' AND state = 'serving'"
    cache = RowCache(pool, await pool.fetchval(of, UUID(tenant.id)), 0, empty=False)
    held = await cache.load(["k1", "k3", "none", "k2", "k0"], BOUND)
    assert held["none"] is None
    assert {key: row.data is not None for key, row in held.items() if row} == {"k1": True, "k3": True}


async def test_what_one_append_needs_beyond_the_bound_does_not_fit(shop: Shop, bounded: None) -> None:
    await declare(shop)
    split = [("was_split", {"keys": ["a", "b"], "text": TEXT}) for _ in range(6)]
    paid = [("was_paid", {}) for _ in range(6)]
    for of in (split, [("was_placed", {"to": "payer", "text": TEXT * 2}), *paid]):
        answer = await shop.client.post(f"/order/{new_id()}", json=batch(*of))
        assert answer.status_code == 201, answer.text
    rows, stand = await noted(shop), await misfits(shop)
    kept = len(rows["a"]["notes"])
    assert 0 < kept < 6
    assert rows["payer"]["paid"] == BOUND // 2_030
    assert stand[0] == (6 - kept) + (6 - rows["payer"]["paid"])
    assert any("of its rows are not changed" in each for each in stand[1])
    assert any("states after" in each for each in stand[1])
    await declare(shop, by=["paid"])

    async def built() -> bool:
        answer = await shop.client.get("/_/projections/notes", params={"filter[paid][exists]": "true"})
        return answer.is_success

    await until(built)
    assert (await noted(shop), await misfits(shop)) == (rows, stand)


async def test_rows_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RowCache(None, 1, 100_000, empty=True)  # type: ignore[arg-type]
    row = Row(1, 0, 0, b"x" * 600)
    cache.put(dict.fromkeys("abcd", row))
    each = ROW_BYTES + 600
    assert list(await cache.load(list("dabc"), 3 * each)) == ["d", "a", "b"]
    assert list(await cache.load(list("dabc"), 4 * each)) == ["d", "a", "b", "c"]
    assert list(await cache.load(["a"], 1)) == ["a"]
