"""The revisions of a spec: listed, shown, compared with another, gone back to."""

from __future__ import annotations

import copy
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id, refused
from tests.support.serving import Served

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FIRST: dict[str, Any] = {
    "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"}}}}},
    "agent_types": ["user", "webhook"],
    "singletons": ["stripe_webhook"],
    "webhooks": {
        "stripe": {
            "provider": "stripe",
            "secrets": [SECRET],
            "to": {"type": "order", "id": "stripe_webhook", "event": "was_placed"},
        }
    },
}


def changed(**change: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FIRST), **change}


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, FIRST)


@pytest.fixture
async def client(gateway: Served, shop: Account) -> Any:
    async with new_client(gateway.url, shop.admin) as client:
        yield client


async def test_revisions_are_listed_and_shown_newest_first_by_pages(client: httpx.AsyncClient) -> None:
    for types in (["user", "webhook", "a"], ["user", "webhook", "b"]):
        assert (await client.put("/_/spec", json=changed(agent_types=types))).status_code == 200
    page = (await client.get("/_/spec/history?limit=2")).json()
    assert [each["revision"] for each in page["revisions"]] == [3, 2]
    assert all(each["bytes"] > 100 and each["deployed_at"] > 1.7e9 for each in page["revisions"])
    assert page["next"] == 2
    rest = (await client.get("/_/spec/history?before=2")).json()
    assert ([each["revision"] for each in rest["revisions"]], rest["next"]) == ([1], None)
    second = await client.get("/_/spec?revision=2")
    assert (second.json()["revision"], second.headers["etag"]) == (2, '"2"')
    assert second.json()["spec"]["agent_types"] == ["user", "webhook", "a"]
    assert second.json()["spec"]["webhooks"]["stripe"]["secrets"] == ["***"]
    refused(await client.get("/_/spec?revision=4"), 404, "not_found")
    refused(await client.get("/_/spec?revision=x"), 422, "invalid_field", "revision")


async def test_what_was_shown_is_no_difference_and_another_secret_is_not_shown(
    client: httpx.AsyncClient,
) -> None:
    shown = (await client.get("/_/spec")).json()["spec"]
    same = (await client.post("/_/spec/diff", json={"spec": shown, "force": True})).json()
    assert same == {
        "ok": True,
        "revision": 1,
        "changed": False,
        "changes": [],
        "conflicts": [],
        "notices": [],
    }
    shown["webhooks"]["stripe"]["secrets"] = ["whsec_C2FtcGxlC2FtcGxlC2FtcGxlC2FtcGxl", "***"]
    told = await client.post("/_/spec/diff", json=shown)
    assert told.json()["changes"] == [
        {"change": "added", "pointer": "/webhooks/stripe/secrets/0", "now": "*** (another)"}
    ]
    assert "whsec" not in told.text


async def test_a_diff_tells_changes_and_what_is_in_the_way_and_deploys_nothing(
    client: httpx.AsyncClient,
) -> None:
    await appended(client, "order", new_id(), "was_placed", {"total": 5})
    other = changed(agent_types=["webhook"], target_types=["order"])
    other["aggregate_types"]["order"]["events"]["was_placed"]["schema"] = {"required": ["email"]}
    told = (await client.post("/_/spec/diff", json=other)).json()
    assert told["changes"] == [
        {
            "change": "removed",
            "pointer": "/aggregate_types/order/events/was_placed/schema/type",
            "was": "object",
        },
        {
            "change": "added",
            "pointer": "/aggregate_types/order/events/was_placed/schema/required",
            "now": ["email"],
        },
        {"change": "removed", "pointer": "/agent_types/0", "was": "user"},
        {"change": "added", "pointer": "/target_types", "now": ["order"]},
    ]
    assert [each["pointer"] for each in told["conflicts"]] == [
        "/agent_types",
        "/aggregate_types/order/events/was_placed/schema",
    ]
    other = changed()
    other["aggregate_types"]["order"]["events"]["was_placed"]["handler"] = []
    (notice,) = (await client.post("/_/spec/diff", json=other)).json()["notices"]
    assert notice["pointer"] == "/aggregate_types/order/events/was_placed/handler"
    assert (await client.get("/_/spec")).json()["revision"] == 1
    refused(await client.post("/_/spec/diff", json={}), 422, "invalid_spec", more=["faults"])


async def test_a_former_revision_is_deployed_once_more_with_its_secrets(
    client: httpx.AsyncClient, shop: Account, outbox: asyncpg.Pool
) -> None:
    other = changed()
    other["webhooks"]["stripe"]["secrets"] = ["whsec_C2FtcGxlC2FtcGxlC2FtcGxlC2FtcGxl"]
    other["aggregate_types"]["parcel"] = {"events": {"was_sent": {"schema": {}}}}
    assert (await client.put("/_/spec", json=other)).status_code == 200
    stale = await client.post("/_/spec/rollback", json={"revision": 1}, headers={"if-match": '"1"'})
    refused(stale, 409, "version_conflict", more=["revision"])
    await appended(client, "parcel", new_id(), "was_sent")
    refused(
        await client.post("/_/spec/rollback", json={"revision": 1}),
        409,
        "spec_conflict",
        more=["revision", "conflicts"],
    )
    back = await client.post("/_/spec/rollback?force=true", json={"revision": 1})
    assert back.json() == {"ok": True, "revision": 3, "changed": True}
    rows = await outbox.fetch(
        "SELECT digest, position($2::bytea in document) > 0 AS old FROM spec_revision r "
        "JOIN tenant t ON t.id = r.tenant WHERE t.name = $1 ORDER BY revision",
        shop.name,
        SECRET.encode(),
    )
    assert [row["old"] for row in rows] == [True, False, True]
    assert rows[0]["digest"] == rows[2]["digest"]
    again = await client.post("/_/spec/rollback", json={"revision": 3, "force": False})
    assert again.json() == {"ok": True, "revision": 3, "changed": False}


async def test_a_rollback_names_a_revision_that_there_was(client: httpx.AsyncClient) -> None:
    refused(await client.post("/_/spec/rollback", json={"revision": 9}), 404, "not_found")
    refused(await client.post("/_/spec/rollback", json={}), 422, "missing_field", "revision")
    refused(await client.post("/_/spec/rollback", json={"revision": "1"}), 422, "invalid_field", "revision")
    refused(
        await client.post("/_/spec/rollback", json={"revision": 1, "forced": True}),
        422,
        "unknown_field",
        "forced",
    )
    refused(
        await client.post("/_/spec/rollback", json={"revision": 1, "force": 1}),
        422,
        "invalid_field",
        "force",
    )


async def test_a_diff_and_a_rollback_are_for_admins(gateway: Served, shop: Account) -> None:
    async with new_client(gateway.url, shop.write) as writer:
        refused(await writer.post("/_/spec/diff", json=FIRST), 403, "forbidden")
        refused(await writer.post("/_/spec/rollback", json={"revision": 1}), 403, "forbidden")
        assert (await writer.get("/_/spec/history")).status_code == 200


async def test_a_spec_is_tried_on_stored_events_and_nothing_is_deployed(
    client: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    keys = sorted([new_id(), new_id()])
    for key, data in zip(keys, ({"total": 5, "note": "x" * 2000}, {"total": "free"}), strict=True):
        await appended(client, "order", key, "was_placed", data)
    other = changed()
    placed = other["aggregate_types"]["order"]["events"]["was_placed"]
    placed["schema"] = {"type": "object", "properties": {"total": {"type": "number"}}}
    placed["handler"] = {"set": {"target": "placed", "value": "$.data"}}
    tried = (await client.post("/_/spec/try", json=other)).json()
    assert (tried["ok"], tried["events"], tried["aggregates"], tried["whole"]) == (True, 2, 2, True)
    (refusal,) = tried["refused"]["first"]
    assert (refusal["key"], refusal["version"], refusal["path"]) == (keys[1], 1, "data.total")
    assert (tried["refused"]["count"], tried["states"]["differ"]) == (1, 2)
    assert "x" * 400 in str(tried["states"]) and "x" * 600 not in str(tried["states"])
    part = (await client.post("/_/spec/try?limit=1", json={"spec": other})).json()
    assert (part["events"], part["whole"]) == (1, False)
    assert (await client.get("/_/spec")).json()["revision"] == 1
    refused(await client.post("/_/spec/try", json={}), 422, "invalid_spec", more=["faults"])
    refused(await client.post("/_/spec/try?limit=0", json=other), 422, "invalid_field", "limit")
    async with new_client(gateway.url, shop.write) as writer:
        refused(await writer.post("/_/spec/try", json=other), 403, "forbidden")
