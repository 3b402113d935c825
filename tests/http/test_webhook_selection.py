"""Which deliveries become events, and of which type; how they are listed, replayed and discarded over HTTP;
aliases as keys of bulk lines."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.client import AsyncClient, Client, Refused, Replayed
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


async def test_a_delivery_is_replayed_over_http_and_becomes_one_event(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    admin = {"authorization": f"Bearer {hooks.account.admin}"}

    async def replay(*ids: object, **more: Any) -> httpx.Response:
        body = {"ids": [str(each) for each in ids], **more}
        return await hooks.client.post("/_/deliveries/replay", json=body, headers=admin)

    spec = declared(typed={"provider": "stripe", "secrets": ["s"], "to": to("was_typed")}, **SOURCES)
    assert (await hooks.deploy(spec)).status_code == 200
    accepted = await hooks.taken("github", {"n": 1}, X_GitHub_Event="push")
    other = Hooks(hooks.account, spec, hooks.client)

    async def known() -> bool:
        return (await hooks.client.request("OPTIONS", hooks.path("typed"))).status_code != 404

    await until(known)
    assert (await other.taken("typed", {"id": "evt_1"}))["quarantined"]
    ids = {row["source"]: row["id"] for row in await kept(outbox, hooks, 2)}
    first, second = (await replay(ids["typed"], ids["github"], ids["typed"])).json()["replayed"]
    assert (first["source"], first["delivery_id"], first["event_id"]) == ("typed", "evt_1", None)
    assert (first["reason"], second["reason"]) == ("schema_violation", None)
    assert (second["event_id"], second["duplicate"]) == (accepted["event_id"], True)
    spec["webhooks"]["typed"]["to"] = to()
    assert (await hooks.deploy(spec)).status_code == 200
    answers = await asyncio.gather(*[replay(ids["typed"]) for _ in range(4)])
    told = [each for answer in answers for each in answer.json()["replayed"]]
    assert sorted(each["duplicate"] for each in told) == [False, True, True, True]
    (event,) = await hooks.events()
    assert {each["event_id"] for each in told} == {event["id"]}
    assert event["data"]["body"] == {"id": "evt_1"}
    rows = await outbox.fetch("SELECT verdict FROM webhook_delivery WHERE id = $1", ids["typed"])
    assert [row["verdict"] for row in rows] == ["replayed"]
    assert len(await hooks.events("repository")) == 1


async def test_one_delivery_is_shown_with_its_request_as_it_came(hooks: Hooks, outbox: asyncpg.Pool) -> None:
    admin = {"authorization": f"Bearer {hooks.account.admin}"}
    await hooks.send("github", b"{\xff", X_GitHub_Event="push", authorization="Basic secret")
    (row,) = await kept(outbox, hooks, 1)
    path = f"/_/deliveries/{row['id']}"
    answer = await hooks.client.get(path, headers=admin)
    assert answer.status_code == 200, answer.text
    (listed,) = (await hooks.client.get("/_/deliveries", headers=admin)).json()["deliveries"]
    request = answer.json()["delivery"].pop("request")
    assert listed == {name: value for name, value in answer.json()["delivery"].items() if name != "request"}
    assert (request["target"], request["body"]) == (hooks.path("github"), "{\\xff")
    headers = dict(request["headers"])
    assert (headers["x-github-event"], headers["authorization"]) == ("push", "***")
    refused(await hooks.client.get(f"/_/deliveries/{uuid.uuid4()}", headers=admin), 404, "not_found")
    refused(await hooks.client.get("/_/deliveries/evt_1", headers=admin), 422, "invalid_field", "id")
    reader = {"authorization": f"Bearer {hooks.account.read}"}
    refused(await hooks.client.get(path, headers=reader), 403, "forbidden")


async def test_what_can_not_be_replayed_over_http_says_why(hooks: Hooks, outbox: asyncpg.Pool) -> None:
    admin = {"authorization": f"Bearer {hooks.account.admin}"}

    async def replay(key: str = hooks.account.admin, **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return await hooks.client.post("/_/deliveries/replay", json=body, headers=headers)

    item = {"id": "EV1", "resource_type": "payments", "action": "paid"}
    await hooks.taken("many", {"events": [item]})
    rows = {row["verdict"]: str(row["id"]) for row in await kept(outbox, hooks, 2)}
    (whole,) = (await replay(ids=[rows["batch"]])).json()["replayed"]
    assert (whole["event_id"], whole["reason"]) == (None, "batch")
    (one,) = (await replay(ids=[rows["accepted"].upper()])).json()["replayed"]
    assert (one["delivery_id"], one["duplicate"]) == ("EV1", True)
    absent = str(uuid.uuid4())
    refused(await replay(ids=[rows["batch"], absent]), 404, "not_found", "ids[1]")
    refused(await replay(ids=["evt_1"]), 422, "invalid_field", "ids[0]")
    refused(await replay(ids=[]), 422, "invalid_field", "ids")
    refused(await replay(ids=[absent] * 101), 422, "invalid_field", "ids")
    refused(await replay(), 422, "missing_field", "ids")
    refused(await replay(ids=[absent], again=True), 422, "unknown_field", "again")
    refused(await replay(hooks.account.write, ids=[absent]), 403, "forbidden")
    without = {name: source for name, source in hooks.spec["webhooks"].items() if name != "many"}
    assert (await hooks.deploy({**hooks.spec, "webhooks": without})).status_code == 200
    (gone,) = (await replay(ids=[rows["accepted"]])).json()["replayed"]
    assert (gone["event_id"], gone["reason"]) == (None, "unknown_source")
    page = (await hooks.client.get("/_/deliveries", headers=admin)).json()
    assert [each["verdict"] for each in page["deliveries"]] == ["replayed"]


async def test_the_python_client_replays_deliveries(
    gateway: Served, hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    told = await hooks.taken("github", {"n": 1}, X_GitHub_Event="push")
    (row,) = await kept(outbox, hooks, 1)

    def plainly() -> tuple[Replayed, ...]:
        with Client(gateway.url, hooks.account.admin) as sluice:
            return sluice.replay(str(row["id"]))

    async with AsyncClient(gateway.url, hooks.account.admin) as sluice:
        (replayed,) = await sluice.replay(str(row["id"]))
        assert (replayed.event_id, replayed.duplicate, replayed.error) == (told["event_id"], True, None)
        assert await asyncio.to_thread(plainly) == (replayed,)
        with pytest.raises(Refused, match="not_found"):
            await sluice.replay(str(uuid.uuid4()))


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

    def of_several(*names: str, **more: Any) -> dict[str, Any]:
        events = [
            {"aggregate_type": "repository", "key": each, "type": "was_pushed", "data": {}} for each in names
        ]
        return {"events": events, "metadata": {"actor": actor}, **more}

    sent = [
        of_several("@REP-1", key, "rep-1"), of_several(key, "@REP-7"), of_several("VNO-1"),
        of_several("@REP-1", idempotency_key="twice"), of_several("@REP-1", idempotency_key="twice"),
    ]  # fmt: skip
    answer = await hooks.client.post("/_/bulk", content=lines(*sent), headers={**admin, **NDJSON})
    whole, unknown, strange, first, again = told_in(answer.content)
    assert [each["key"] for each in whole["events"]] == [key] * 3
    assert (unknown["code"], unknown["path"]) == ("unknown_alias", "events[1].key")
    assert (strange["code"], strange["path"]) == ("invalid_identifier", "events[0].key")
    assert (again["replayed"], again["events"]) == (True, first["events"])
