"""Timers and sagas of events whose types a spec declares no more, or may stop to declare, and of a spec that
has the revision of one that Postgres lost."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs
from gateway.config import Config
from tests.http import test_sagas
from tests.http.test_removals_under_way import removing
from tests.http.test_schedules import ended
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id, until
from tests.support.serving import serving, without_reactions

NOTE: dict[str, Any] = {
    "aggregate_type": "order",
    "id": "$.data.order",
    "event_type": "was_noted",
    "data": {"by": "$.data.by"},
}
ORDER: dict[str, Any] = {"events": {"was_noted": {"schema": {}}}}
SENT: dict[str, Any] = {"schema": {}, "implications": [{"schedule": {"delay": "24h", "emit": NOTE}}]}
LEFT: dict[str, Any] = {"aggregate_types": {"order": ORDER}, "agent_types": ["user"]}
SPEC: dict[str, Any] = {
    "aggregate_types": {"order": ORDER, "message": {"events": {"was_sent": SENT}}},
    "agent_types": ["user"],
    "sagas": {
        "noting": {
            "trigger": {"aggregate_type": "message", "event_type": "was_sent"},
            "steps": [{"name": "note", "emit": NOTE}],
        }
    },
}


@pytest.fixture
async def shop(own_outbox: asyncpg.Pool) -> Account:
    return await open_account(own_outbox, SPEC)


async def send(config: Config, shop: Account, order: str) -> str:
    """The message's key."""
    key = new_id()
    async with without_reactions(config, shop.admin) as to:
        await appended(to, "message", key, "was_sent", {"order": order, "by": "ann"})
    return key


async def noted(config: Config, shop: Account, message: str, order: str) -> None:
    """By a timer that is set, and by a saga."""
    async with serving(config) as served, new_client(served.url, shop.admin) as client:
        timer = await ended(client, message, None)
        assert (timer["emit"]["id"], timer["emit"]["data"]) == (order, {"by": "ann"})
        await test_sagas.until(client, "order", order, "was_noted")
        (event,) = (await client.get(f"/order/{order}/events")).json()["events"]
        assert (event["type"], event["data"]) == ("was_noted", {"by": "ann"})


async def test_what_is_removed_by_force(own_config: Config, own_outbox: asyncpg.Pool, shop: Account) -> None:
    order = new_id()
    message = await send(own_config, shop, order)
    outcome = await specs.deploy(own_outbox, UUID(shop.id), json.dumps(LEFT).encode(), {}, force=True)
    assert isinstance(outcome, specs.Accepted)
    await noted(own_config, shop, message, order)


async def test_what_is_being_removed(own_config: Config, own_outbox: asyncpg.Pool, shop: Account) -> None:
    """It came by another gateway, between the deployment's two looks: the deployment is refused for it."""
    order = new_id()
    message = await send(own_config, shop, order)
    async with removing(own_outbox, shop, LEFT):
        await noted(own_config, shop, message, order)


async def test_what_was_deployed_again_where_postgres_lost_it(
    own_config: Config, own_outbox: asyncpg.Pool, shop: Account
) -> None:
    """The gateway knew the spec that had the revision before."""
    sent = {
        "schema": {},
        "implications": [{"schedule": {"delay": "48h", "emit": {**NOTE, "data": {"by": "bob"}}}}],
    }
    again = {**LEFT, "aggregate_types": {"order": ORDER, "message": {"events": {"was_sent": sent}}}}
    lost = "UPDATE spec_revision SET document = $2, digest = $3 WHERE tenant = $1"
    document = json.dumps(again).encode()
    async with serving(own_config) as served, new_client(served.url, shop.admin) as client:

        async def known() -> bool:
            return bool((await client.get("/_/spec")).json()["spec"] == again)

        await appended(client, "message", before := new_id(), "was_sent", {"order": new_id(), "by": "ann"})
        assert (await ended(client, before, None))["emit"]["data"] == {"by": "ann"}
        await own_outbox.execute(lost, UUID(shop.id), document, specs.digest_of(document))
        await own_outbox.execute("UPDATE catalog_clock SET revision = revision - 1")
        await until(known)
        await appended(client, "message", after := new_id(), "was_sent", {"order": new_id(), "by": "ann"})
        assert (await ended(client, after, None))["emit"]["data"] == {"by": "bob"}
