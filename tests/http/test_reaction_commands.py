"""`sluice schedules` and `sluice sagas`, through a running gateway."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from gateway.cli import gateway_items, schedules
from gateway.cli.gateway_items import Through
from tests.cli.command import Ran, Sluice
from tests.http.test_reactions_apart import SHOP
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id
from tests.support.serving import Served

DEADLINE_S = 30.0


@pytest.fixture
async def shop(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SHOP)


async def test_timers_are_listed_moved_run_and_cancelled(gateway: Served, shop: Account) -> None:
    sluice = Sluice(SLUICE_URL=gateway.url, SLUICE_KEY=shop.admin)
    order = new_id()
    timers = []
    async with new_client(gateway.url, shop.admin) as client:
        for _ in range(2):
            emit = {"aggregate_type": "order", "id": order, "event_type": "was_paid"}
            headers = {"idempotency-key": new_id()}
            answer = await client.post("/_/schedules", json={"delay": "24h", "emit": emit}, headers=headers)
            timers.append(answer.json()["schedule"]["id"])
    first, second = timers
    listed = await run(sluice, "schedules", "list", "--state", "pending")
    assert all(each in listed.out for each in timers)
    assert (await run(sluice, "schedules", "list", "--type", "order", "--json")).json["items"] == []
    moved = await run(sluice, "schedules", "move", first, "2099-01-01T00:00:00Z")
    assert (moved.code, moved.out) == (0, f"{first} is due at 2099-01-01T00:00:00.000Z\n")
    moved = await run(sluice, "schedules", "move", first, "2000000000")
    assert (moved.code, moved.out) == (0, f"{first} is due at 2033-05-18T03:33:20.000Z\n")
    assert (await run(sluice, "schedules", "cancel", second)).out == f"{second} is cancelled\n"
    assert (await run(sluice, "schedules", "run", first)).out == f"{first} is due now\n"
    await until(sluice, "schedules", first, "schedule", "fired")
    refused = await run(sluice, "schedules", "cancel", first)
    assert (refused.code, "it is fired" in refused.err) == (1, True)


async def test_lists_of_more_than_a_page_are_put_together_and_say_what_they_leave_out(
    gateway: Served, shop: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_items, "PAGE", 2)
    emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_paid"}
    async with new_client(gateway.url, shop.admin) as client:
        for _ in range(5):
            headers = {"idempotency-key": new_id()}
            await client.post("/_/schedules", json={"delay": "24h", "emit": emit}, headers=headers)

    def listed(limit: int) -> tuple[dict[str, Any], str]:
        params = Through(gateway.url, shop.admin, as_json=True)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out):
            schedules.TIMERS.print_all({"state": "pending"}, limit, params)
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            schedules.TIMERS.print_all({"state": "pending"}, limit, replace(params, as_json=False))
        return json.loads(out.getvalue()), err.getvalue()

    whole, said = await asyncio.to_thread(listed, 5)
    assert (len({each["id"] for each in whole["items"]}), whole["next"], said) == (5, None, "")
    part, said = await asyncio.to_thread(listed, 3)
    assert [each["id"] for each in part["items"]] == [each["id"] for each in whole["items"]][:3]
    assert part["next"] and said == "only the first 3 are listed: raise --limit for more\n"


async def test_a_stuck_saga_is_listed_retried_and_abandoned(gateway: Served, shop: Account) -> None:
    sluice = Sluice(SLUICE_URL=gateway.url, SLUICE_KEY=shop.admin)
    sku = new_id()
    async with new_client(gateway.url, shop.admin) as client:
        await appended(client, "inventory", sku, "was_jammed", {"jammed": True})
        await appended(client, "cart", new_id(), "checkout_started", {"sku": sku})
        async with asyncio.timeout(DEADLINE_S):
            while not (found := (await client.get("/_/sagas")).json()["items"]) or found[0]["length"] < 2:
                await asyncio.sleep(0.02)
        await appended(client, "inventory", sku, "reservation_failed")
    saga = found[0]["id"]
    await until(sluice, "sagas", saga, "saga", "stuck")
    listed = await run(sluice, "sagas", "list", "--state", "stuck")
    assert saga in listed.out and "It is jammed." in " ".join(listed.out.split())
    assert (await run(sluice, "sagas", "retry", saga)).out == f"{saga} is stuck\n"
    assert (await run(sluice, "sagas", "abandon", saga)).out == f"{saga} is abandoned\n"
    refused = await run(sluice, "sagas", "retry", saga)
    assert (refused.code, "Only a stuck" in refused.err) == (1, True)


async def run(sluice: Sluice, *words: str) -> Ran:
    return await asyncio.to_thread(sluice, *words)


async def until(sluice: Sluice, of: str, identifier: str, field: str, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            shown: Any = (await run(sluice, of, "show", identifier, "--json")).json[field]
            if shown["state"] == state:
                return
