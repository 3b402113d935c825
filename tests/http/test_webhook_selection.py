"""Which deliveries become events, and of which type; how they are listed and discarded over HTTP; aliases as
keys of bulk lines."""

from __future__ import annotations

import uuid
from typing import Any

import asyncpg
import httpx
import pytest

from tests.http.webhooks import Hooks, declared, kept, open_hooks, to
from tests.support.calls import NDJSON, lines, refused, told_in, until
from tests.support.serving import Served

IGNORED = {"ok": True, "ignored": True, "event_id": None}


def target(**more: Any) -> dict[str, Any]:
    return {"type": "repository", "id": "some_webhook", **more}


TYPES = {"repository.pushed": "was_pushed", "repository.noted": "was_notified"}
SOURCES: dict[str, dict[str, Any]] = {
    "mapped": {"provider": "stripe", "secrets": ["s"], "to": target(types=TYPES)},
    "live": {
        "provider": "stripe",
        "secrets": ["s"],
        "to": {**to(), "when": {"and": [{"$.body.livemode": True}, {"gt": ["$.body.items.0.n", 5]}]}},
    },
    "named": {
        "provider": "hmac",
        "header": "X-Sig",
        "id_header": "X-Id",
        "secrets": ["s"],
        "to": target(types={"pushed": "was_pushed"}, type_at="$.body.kind"),
    },
    "many": {"provider": "gocardless", "secrets": ["s"], "to": target(types={"payments.paid": "was_pushed"})},
    "github": {"provider": "github", "secrets": ["s"], "to": target(types={"push": "was_pushed"})},
}


@pytest.fixture
async def hooks(gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient) -> Hooks:
    return await open_hooks(outbox, stranger, SOURCES)


async def test_the_provider_s_name_becomes_an_event_of_ours_and_others_are_ignored(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    assert await hooks.taken("mapped", {"id": "evt_0", "type": "customer.created"}) == IGNORED
    assert await hooks.taken("mapped", {"id": "evt_9"}) == IGNORED
    first = await hooks.taken("mapped", {"id": "evt_1", "type": "repository.pushed"})
    second = await hooks.taken("mapped", {"id": "evt_2", "type": "repository.noted"})
    named = await hooks.taken("named", {"kind": "pushed"}, x_id="1")
    github = await hooks.taken("github", {}, X_GitHub_Event="push")
    assert await hooks.taken("github", {"a": 1}, "dlv_2", X_GitHub_Event="ping") == IGNORED
    events = await hooks.events("repository")
    assert [each["type"] for each in events] == ["was_pushed", "was_notified", "was_pushed", "was_pushed"]
    assert [each["id"] for each in events] == [told["event_id"] for told in (first, second, named, github)]
    assert len(await kept(outbox, hooks, 4)) == 4


async def test_a_delivery_of_which_the_test_is_not_true_is_ignored(hooks: Hooks) -> None:
    for number, (live, n) in enumerate([(False, 9), (True, 5), ("true", 9), (True, "9")]):
        body = {"id": f"evt_{number}", "livemode": live, "items": [{"n": n}]}
        assert await hooks.taken("live", body) == IGNORED
    body = {"id": "evt_7", "livemode": True, "items": [{"n": 6.5}]}
    assert (await hooks.taken("live", body))["duplicate"] is False
    assert (await hooks.taken("live", body))["duplicate"] is True


async def test_of_a_batch_only_some_are_taken(hooks: Hooks) -> None:
    def item(number: int, action: str) -> dict[str, Any]:
        return {"id": f"EV{number}", "resource_type": "payments", "action": action}

    body = {"events": [item(1, "created"), item(2, "paid"), item(3, "failed")]}
    told = (await hooks.taken("many", body))["events"]
    ignored = {"ignored": True, "event_id": None}
    assert (told[0], told[2]) == (ignored, ignored)
    assert [each["id"] for each in await hooks.events("repository")] == [told[1]["event_id"]]
    nothing = await hooks.taken("many", {"events": [item(4, "created")]})
    assert nothing == {"ok": True, "events": [ignored]}


async def test_deliveries_are_listed_and_discarded_over_http(hooks: Hooks, outbox: asyncpg.Pool) -> None:
    admin = {"authorization": f"Bearer {hooks.account.admin}"}
    spec = declared(typed={"provider": "stripe", "secrets": ["s"], "to": to("was_typed")})
    assert (await hooks.deploy(spec)).status_code == 200
    other = Hooks(hooks.account, spec, hooks.client)

    async def known() -> bool:
        return (await hooks.client.request("OPTIONS", hooks.path("typed"))).status_code != 404

    await until(known)
    for number in range(4):
        held = await other.taken("typed", {"id": f"evt_{number}"})
        assert held == {"ok": True, "quarantined": True, "event_id": None}
    page = (await hooks.client.get("/_/deliveries?reason=schema_violation&limit=3", headers=admin)).json()
    assert [each["delivery_id"] for each in page["deliveries"]] == ["evt_3", "evt_2", "evt_1"]
    rest = await hooks.client.get(
        f"/_/deliveries?verdict=quarantined&source=typed&before={page['next']}", headers=admin
    )
    assert [each["delivery_id"] for each in rest.json()["deliveries"]] == ["evt_0"]

    async def discard(**body: Any) -> httpx.Response:
        return await hooks.client.post("/_/deliveries/discard", json=body, headers=admin)

    gone = await discard(ids=["evt_0", page["deliveries"][0]["id"], "evt_nope", str(uuid.uuid4())])
    assert sorted(each["delivery_id"] for each in gone.json()["discarded"]) == ["evt_0", "evt_3"]
    assert (await discard(source="typed", reason="not_found")).json()["discarded"] == []
    gone = await discard(source="typed", reason="schema_violation")
    assert (len(gone.json()["discarded"]), gone.json()["more"]) == (2, False)
    assert await kept(outbox, hooks, 0) == []
    refused(await discard(), 422, "missing_field", "ids")
    refused(await discard(ids=[]), 422, "invalid_field", "ids")
    refused(await discard(ids=["x"], reason="y"), 422, "invalid_field", "reason")
    refused(await discard(id="x"), 422, "unknown_field", "id")
    refused(
        await hooks.client.get("/_/deliveries?verdict=accepted&reason=x", headers=admin),
        422,
        "invalid_field",
        "reason",
    )
    writer = {"authorization": f"Bearer {hooks.account.write}"}
    refused(await hooks.client.get("/_/deliveries", headers=writer), 403, "forbidden")


async def test_the_key_of_a_bulk_line_may_be_an_alias(hooks: Hooks) -> None:
    spec = declared() | {"public_ids": {"key": "REP", "types": ["repository"]}}
    admin = {"authorization": f"Bearer {hooks.account.admin}"}
    assert (await hooks.deploy(spec)).status_code == 200
    key, actor = str(uuid.uuid4()), {"type": "user", "id": str(uuid.uuid4())}
    made = await hooks.client.post(
        f"/repository/{key}/was_pushed",
        json={"data": {}, "metadata": {"actor": actor}},
        headers={**admin, "prefer": "wait"},
    )
    assert made.json()["aliases"] == ["REP-1"]

    def line(named: str, event: str = "was_pushed", **more: Any) -> dict[str, Any]:
        return {
            "aggregate_type": "repository",
            "key": named,
            "type": event,
            "data": {"key": "@REP-9"},
            "metadata": {"actor": actor},
            **more,
        }

    sent = [
        line("@REP-1"), line("rep-1"), line(key), line("@REP-7"), line("REP-0"), line("VNO-1"),
        line("@REP-7", "was_pushd"), line("@REP-1", idempotency_key="once"),
        line("REP-1", idempotency_key="once"), line(key, metadata={"actor": {**actor, "id": "@REP-1"}}),
    ]  # fmt: skip
    answer = await hooks.client.post("/_/bulk", content=lines(*sent), headers={**admin, **NDJSON})
    told = told_in(answer.content)
    assert [each.get("code", each.get("key")) for each in told] == [
        key, key, key, "unknown_alias", "invalid_identifier", "invalid_identifier",
        "unknown_event_type", key, key, "invalid_identifier",
    ]  # fmt: skip
    assert [each["path"] for each in told if "path" in each] == ["key"] * 3 + [
        "event_type",
        "metadata.actor.id",
    ]
    assert told[8]["replayed"] is True
    assert told[7]["event_id"] == told[8]["event_id"]
