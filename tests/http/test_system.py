"""Under /_/: identifiers to try, the spec, health."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.http.api.health import READY_FOR_S
from gateway.log.log import Log
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import JSON, append, appended, batch, new_client, new_id, noted, refused, until
from tests.support.drive import STALL_S
from tests.support.serving import Served, serving

HUMANE = re.compile("[0-9A-HJKMNP-TV-Z]{9}")


async def test_humane_codes_are_minted(client: httpx.AsyncClient) -> None:
    for query, count in (("", 1), ("?count=1", 1), ("?count=50", 50), ("?count=1000", 1000)):
        response = await client.get(f"/_/ids/humane{query}")
        told = response.json()
        assert (response.status_code, set(told), told["ok"]) == (200, {"ok", "ids"}, True)
        assert len(set(told["ids"])) == len(told["ids"]) == count
        assert all(HUMANE.fullmatch(each) for each in told["ids"])
    for count_text in ("0", "-1", "1001", "x", ""):
        refused(await client.get(f"/_/ids/humane?count={count_text}"), 422, "invalid_field", "count")


async def test_ids_are_checked_by_the_one_rule(client: httpx.AsyncClient) -> None:
    uuid = new_id()
    known = {
        uuid.upper(): (uuid, "uuid"),
        "abc123xyi": ("ABC123XY1", "humane_code"),
        "global": ("global", "singleton"),
        "stripe_webhook": ("stripe_webhook", "singleton"),
        f"{uuid}:2026": (f"{uuid}:2026", "tagged_uuid"),
    }
    bad = ["", "nope", "GLOBAL", uuid + "\n", "ABC123XYſ", "@VNO-42", uuid.replace("-", ""), "twilio_webhook"]
    response = await client.post("/_/ids/check", json={"ids": [*known, *bad]})
    told = response.json()
    assert (response.status_code, set(told), told["ok"]) == (200, {"ok", "ids"}, True)
    good = [{"input": text, "canonical": known[text][0], "kind": known[text][1]} for text in known]
    assert told["ids"][: len(known)] == good
    for text, verdict in zip(bad, told["ids"][len(known) :], strict=True):
        assert set(verdict) == {"input", "error"}
        assert verdict["input"] == text
        assert verdict["error"]
    assert (await client.post("/_/ids/check", json={"ids": []})).json() == {"ok": True, "ids": []}


@pytest.mark.parametrize(
    ("sent", "code", "path"),
    [
        ({}, "missing_field", "ids"),
        ([], "missing_field", "ids"),
        ({"ids": "x"}, "invalid_field", "ids"),
        ({"ids": [1]}, "invalid_field", "ids[0]"),
        ({"ids": ["x", None]}, "invalid_field", "ids[1]"),
        ({"ids": [], "more": 1}, "unknown_field", "more"),
    ],
)
async def test_a_check_of_something_else_is_refused(
    client: httpx.AsyncClient, sent: object, code: str, path: str
) -> None:
    refused(await client.post("/_/ids/check", json=sent), 422, code, path)


async def test_a_check_is_read_as_any_body(client: httpx.AsyncClient) -> None:
    response = await client.post("/_/ids/check", content=b"{}")
    refused(response, 415, "unsupported_media_type", "Content-Type")
    refused(await client.post("/_/ids/check", content=b"{", headers=JSON), 400, "invalid_json")
    refused(await client.post("/_/ids/check", content=b" " * 1_048_577, headers=JSON), 413, "too_large")


async def test_the_spec_is_given_with_its_revision(client: httpx.AsyncClient) -> None:
    response = await client.get("/_/spec")
    assert (response.status_code, response.headers["etag"]) == (200, '"1"')
    assert response.json() == {"ok": True, "revision": 1, "spec": SPEC}
    for form in ('"1"', 'W/"1"', '"0", "1"', "*"):
        again = await client.get("/_/spec", headers={"if-none-match": form})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", '"1"')
    assert (await client.get("/_/spec", headers={"if-none-match": '"2"'})).status_code == 200


async def test_queries_of_targets_are_shown_to_admin_keys_only_and_what_was_shown_can_be_deployed(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    url, secret = "https://hooks.example.com/in", "whsec_" + "c2VjcmV0" * 4
    target = {"type": "webhook", "url": f"{url}?token=hush", "secret": secret}
    account = await open_account(outbox, {**SPEC, "subscriptions": {"all": {"target": target}}})
    async with new_client(gateway.url, account.admin) as admin:

        async def is_served() -> bool:
            return (await admin.get("/_/spec")).status_code == 200

        await until(is_served)
        for key in (account.read, account.write):
            async with new_client(gateway.url, key) as client:
                answer = await client.get("/_/spec")
                shown = answer.json()["spec"]
                assert shown["subscriptions"]["all"]["target"]["url"] == f"{url}?***"
                assert "hush" not in answer.text + (await client.get("/_/openapi.json")).text
        own = (await admin.get("/_/spec")).json()["spec"]
        assert own["subscriptions"]["all"]["target"]["url"] == f"{url}?token=hush"
        shown["aggregate_types"]["more"] = {"events": {}}
        assert (await admin.put("/_/spec", json=shown)).json()["changed"] is True
        own = (await admin.get("/_/spec")).json()["spec"]
        assert own["subscriptions"]["all"]["target"]["url"] == f"{url}?token=hush"
        shown["subscriptions"]["all"]["target"]["url"] = "https://evil.example/in?***"
        answer = await admin.put("/_/spec", json=shown)
        refused(answer, 422, "invalid_spec", more=("faults",))
        assert [each["pointer"] for each in answer.json()["faults"]] == ["/subscriptions/all/target/url"]


def with_type(name: str) -> dict[str, Any]:
    changed = copy.deepcopy(SPEC)
    changed["aggregate_types"][name] = {"events": {"was_begun": {"schema": True}}}
    return changed


def without_type(name: str) -> dict[str, Any]:
    changed = copy.deepcopy(SPEC)
    del changed["aggregate_types"][name]
    return changed


async def test_a_spec_takes_effect_at_once(client: httpx.AsyncClient) -> None:
    refused(await append(client, "cart", "global", "was_begun"), 404, "unknown_aggregate_type", "type")
    response = await client.put("/_/spec", json=with_type("cart"))
    assert (response.status_code, response.headers["etag"]) == (200, '"2"')
    told = response.json()
    assert (told["ok"], told["revision"]) == (True, 2)
    await appended(client, "cart", "global", "was_begun")
    assert (await client.get("/_/spec")).json()["spec"] == with_type("cart")


async def test_a_spec_may_be_wrapped(client: httpx.AsyncClient) -> None:
    response = await client.put("/_/spec", json={"spec": with_type("cart")})
    assert response.status_code == 200
    assert (await client.get("/_/spec")).json()["spec"] == with_type("cart")


async def test_the_same_spec_again_changes_nothing(client: httpx.AsyncClient) -> None:
    for text in (json.dumps(SPEC), json.dumps(SPEC, indent=4), json.dumps({"spec": SPEC})):
        response = await client.put("/_/spec", content=text.encode(), headers=JSON)
        assert (response.status_code, response.json()["revision"]) == (200, 1)


async def test_a_spec_takes_effect_on_every_gateway_within_five_seconds(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    async with new_client(second_gateway.url, tenant.write) as other:
        refused(await append(other, "cart", "global", "was_begun"), 404, "unknown_aggregate_type", "type")
        assert (await client.put("/_/spec", json=with_type("cart"))).status_code == 200

        async def serves_it() -> bool:
            return (await append(other, "cart", "global", "was_begun")).status_code == 201

        await until(serves_it, 5 + STALL_S)
        assert (await other.get("/_/spec")).headers["etag"] == '"2"'


async def test_while_a_spec_changes_under_load_every_answer_is_of_the_old_or_the_new_one(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    """Once a gateway has gone over to the new one, it stays there."""
    key, told = new_id(), list[tuple[int, str | None]]()
    deployed = asyncio.Event()
    async with new_client(second_gateway.url, tenant.write) as other:

        async def write() -> None:
            async with asyncio.timeout(40):
                while not deployed.is_set() or told[-1][0] != 201:
                    noted, begun = await asyncio.gather(
                        append(other, "order", key, "was_noted"), append(other, "cart", key, "was_begun")
                    )
                    assert noted.status_code == 201, noted.text
                    told.append((begun.status_code, begun.json().get("code")))

        writers = [asyncio.create_task(write()) for _ in range(8)]
        async with asyncio.timeout(40):
            while len(told) < 50:
                await asyncio.sleep(0.01)
        assert (await client.put("/_/spec", json=with_type("cart"))).status_code == 200
        deployed.set()
        await asyncio.gather(*writers)
        lengths = [(await other.get(f"/{kind}/{key}/length")).json()["length"] for kind in ("order", "cart")]
    assert set(told) == {(404, "unknown_aggregate_type"), (201, None)}
    assert lengths == [len(told), told.count((201, None))]


async def test_all_faults_of_a_spec_are_told_at_once(client: httpx.AsyncClient) -> None:
    bad = {
        "aggregate_types": {"Order": {"events": {}}, "cart": {"events": {"_x": {"schema": True}, "y": {}}}},
        "agent_types": ["system_x"],
        "singletons": ["global", "dashboard"],
        "colour": 1,
    }
    told = refused(await client.put("/_/spec", json=bad), 422, "invalid_spec", more=("faults",))
    assert all(set(fault) == {"code", "pointer", "error"} for fault in told["faults"])
    found = {(fault["code"], fault["pointer"]) for fault in told["faults"]}
    assert {
        ("invalid_name", "/aggregate_types/Order"),
        ("unknown_key", "/colour"),
        ("ambiguous_name", "/singletons/1"),
        ("missing_key", "/aggregate_types/cart/events/y"),
    } <= found
    assert len(found) == 7
    assert (await client.get("/_/spec")).json()["revision"] == 1


async def test_a_part_that_is_not_built_is_never_ignored(client: httpx.AsyncClient) -> None:
    told = refused(
        await client.put("/_/spec", json={**SPEC, "nothing_known": {"a": 1}}),
        422,
        "invalid_spec",
        more=("faults",),
    )
    assert told["faults"][0]["code"] == "unknown_key"


async def test_a_spec_is_read_as_any_body(client: httpx.AsyncClient) -> None:
    response = await client.put("/_/spec", content=json.dumps(SPEC).encode())
    refused(response, 415, "unsupported_media_type", "Content-Type")
    refused(await client.put("/_/spec", content=b"{", headers=JSON), 400, "invalid_json")
    refused(await client.put("/_/spec", content=b'{"a":1,"a":2}', headers=JSON), 400, "invalid_json")
    refused(await client.put("/_/spec", content=b" " * 1_048_577, headers=JSON), 413, "too_large")
    refused(await client.put("/_/spec", json=[]), 422, "invalid_spec", more=("faults",))


async def test_what_is_stored_stands_in_the_way_of_its_removal(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 1)
    await appended(client, "config", "stripe_webhook", "was_changed")
    smaller = without_type("order")
    smaller["singletons"] = ["main_webhook"]
    smaller["target_types"] = ["user"]
    told = refused(
        await client.put("/_/spec", json=smaller), 409, "spec_conflict", more=("revision", "conflicts")
    )
    assert told["revision"] == 1
    assert all(each["error"] for each in told["conflicts"])
    pointers = {each["pointer"] for each in told["conflicts"]}
    assert {"/aggregate_types/order", "/singletons/0"} <= pointers
    assert (await client.get("/_/spec")).json()["revision"] == 1
    assert (await append(client, "order", new_id(), "was_noted")).status_code == 201


async def test_force_removes_it_all_the_same_and_what_is_stored_stays_readable(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed", {"a": 1})
    await appended(client, "config", "stripe_webhook", "was_changed", {"b": 2})
    smaller = {**without_type("order"), "target_types": ["user"], "singletons": []}
    assert (await client.put("/_/spec?force=true", json=smaller)).status_code == 200
    refused(await append(client, "order", key, "was_placed"), 404, "unknown_aggregate_type", "type")
    refused(await append(client, "config", "stripe_webhook", "was_changed"), 422, "invalid_identifier", "key")
    for path, data in ((f"/order/{key.upper()}", {"a": 1}), ("/config/stripe_webhook", {"b": 2})):
        assert (await client.get(path)).json()["data"] == data
        assert (await client.get(f"{path}/length")).json() == {"ok": True, "length": 1}
        assert (await client.get(f"{path}/events")).json()["events"][0]["data"] == data
        assert (await client.get(f"{path}/events/1")).json()["event"]["data"] == data
        assert (await client.get(f"{path}/aliases")).json()["aliases"] == []
    for path in (f"/order/{new_id()}", "/order/global", "/order/global/length"):
        refused(await client.get(path), 404, "unknown_aggregate_type", "type")
    refused(await client.get("/config/main_webhook/length"), 422, "invalid_identifier", "key")
    assert (await client.put("/_/spec", json=SPEC)).json()["revision"] == 3
    assert (await client.get(f"/order/{key}")).json()["data"] == {"a": 1}


async def test_if_none_match_deploys_only_the_first_spec(client: httpx.AsyncClient) -> None:
    none_yet = {"if-none-match": "*"}
    response = await client.put("/_/spec", json=with_type("cart"), headers=none_yet)
    assert (response.status_code, response.json()["revision"]) == (409, 1)
    response = await client.put("/_/spec", json=SPEC, headers=none_yet | {"if-match": '"1"'})
    refused(response, 422, "invalid_field", "If-Match")
    for form in ('"1"', "", "*, *"):
        response = await client.put("/_/spec", json=SPEC, headers={"if-none-match": form})
        refused(response, 422, "invalid_field", "If-None-Match")


async def test_what_nothing_is_stored_of_can_be_removed(client: httpx.AsyncClient) -> None:
    await appended(client, "order", new_id(), "was_noted")
    response = await client.put("/_/spec", json=without_type("ticket"))
    assert response.status_code == 200, response.text
    response = await client.post("/ticket", json=batch(("was_opened", {})))
    refused(response, 404, "unknown_aggregate_type", "type")


async def test_if_match_guards_a_deployment(client: httpx.AsyncClient) -> None:
    response = await client.put("/_/spec", json=with_type("cart"), headers={"if-match": '"7"'})
    assert response.status_code == 409
    assert response.json()["revision"] == 1
    response = await client.put("/_/spec", json=with_type("cart"), headers={"if-match": '"1"'})
    assert (response.status_code, response.json()["revision"]) == (200, 2)
    for form in ("1", 'W/"1"', '"1", "2"', '"x"', "", '"02"', '"00"', "**"):
        response = await client.put("/_/spec", json=SPEC, headers={"if-match": form})
        refused(response, 422, "invalid_field", "If-Match")
    twice = [("if-match", '"2"'), ("if-match", '"7"')]
    refused(await client.put("/_/spec", json=SPEC, headers=twice), 422, "invalid_field", "If-Match")
    response = await client.put("/_/spec?force=maybe", json=SPEC)
    refused(response, 422, "invalid_field", "force")


async def test_if_match_star_asks_for_a_spec_that_is_deployed(gateway: Served, outbox: asyncpg.Pool) -> None:
    account, deployed = await open_account(outbox, spec=None), {"if-match": "*"}
    async with new_client(gateway.url, account.admin) as client:
        response = await client.put("/_/spec", json=SPEC, headers=deployed)
        told = refused(response, 409, "version_conflict", more=("revision",))
        assert (told["revision"], response.headers["etag"]) == (0, '"0"')
        assert (await client.put("/_/spec", json=SPEC)).json()["revision"] == 1
        assert (await client.put("/_/spec", json=with_type("cart"), headers=deployed)).json()["revision"] == 2
        response = await client.put("/_/spec", json=SPEC, headers=deployed | {"if-none-match": "*"})
        refused(response, 422, "invalid_field", "If-Match")


async def test_concurrent_deployments_of_one_revision_are_one(client: httpx.AsyncClient) -> None:
    puts = [client.put("/_/spec", json=with_type(f"cart_{n}"), headers={"if-match": '"1"'}) for n in range(5)]
    answers = await asyncio.gather(*puts)
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409]


async def test_a_first_spec_is_deployed_over_http(gateway: Served, outbox: asyncpg.Pool) -> None:
    account = await open_account(outbox, spec=None)
    async with new_client(gateway.url, account.admin) as client:
        refused(await client.get("/_/spec"), 404, "not_found")
        response = await client.put("/_/spec", json=SPEC, headers={"if-match": '"0"'})
        assert (response.status_code, response.json()["revision"]) == (200, 1)
        await appended(client, "order", new_id(), "was_noted")


async def test_handlers_apply_to_all_history(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", {"a": 1})
    changed = copy.deepcopy(SPEC)
    changed["aggregate_types"]["order"]["events"]["was_noted"] = {
        "schema": {"type": "object"},
        "handler": {"set": {"target": "noted", "value": "$.data.a"}},
    }
    await client.put("/_/spec", json=changed)
    assert (await client.get(f"/order/{key}")).json()["data"] == {"noted": 1}


async def test_health_says_that_it_lives_and_could_commit(stranger: httpx.AsyncClient) -> None:
    live = await stranger.get("/_/health/live")
    ready = await stranger.get("/_/health/ready")
    assert (live.status_code, live.json()["ok"]) == (200, True)
    assert (ready.status_code, ready.json()["ok"]) == (200, True)
    refused(await stranger.get("/_/health/other"), 404, "not_found")
    refused(await stranger.get("/_/health/"), 404, "not_found")


class Looks:
    """Looks at the servers, each held up until it may go on, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.ended = 0
        self.go_on = asyncio.Event()
        self.fault: Exception | None = None
        really = Log.ready

        async def held(log: Log) -> str | None:
            self.begun += 1
            try:
                await self.go_on.wait()
                if self.fault is not None:
                    raise self.fault
                return await really(log)
            finally:
                self.ended += 1

        monkeypatch.setattr(Log, "ready", held)

    async def under_way(self) -> bool:
        return self.begun > 0


async def old_enough() -> None:
    """Until no earlier look may be told any more."""
    begun = time.monotonic()

    async def is_over() -> bool:
        return time.monotonic() - begun > READY_FOR_S

    await until(is_over)


async def test_all_who_ask_whether_it_is_ready_share_one_look(
    stranger: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_enough()
    looks = Looks(monkeypatch)
    asking = [asyncio.create_task(stranger.get("/_/health/ready")) for _ in range(50)]
    await until(looks.under_way)
    await old_enough()
    asking += [asyncio.create_task(stranger.get("/_/health/ready")) for _ in range(50)]
    assert (await stranger.get("/_/health/live")).status_code == 200
    asking[0].cancel()
    looks.go_on.set()
    assert {(await each).status_code for each in asking[1:]} == {200}
    assert looks.begun <= 2, "one, and one for those whose connections came after its end"
    begun = looks.begun
    await old_enough()
    assert (await stranger.get("/_/health/ready")).status_code == 200
    assert looks.begun == begun + 1


@pytest.mark.bug
async def test_a_look_that_fails_is_told_to_all_who_wait_and_not_kept(
    stranger: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_enough()
    looks = Looks(monkeypatch)
    looks.fault = ValueError("a bug")
    asking = [asyncio.create_task(stranger.get("/_/health/ready")) for _ in range(20)]
    await until(looks.under_way)
    looks.go_on.set()
    for each in asking:
        refused(await each, 503, "unavailable")
    looks.fault = None
    await old_enough()
    assert (await stranger.get("/_/health/ready")).status_code == 200


async def test_a_gateway_that_stops_leaves_no_look_under_way(
    own_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that no client waits for any more."""
    async with (
        serving(replace(own_config, shutdown_grace_s=1)) as served,
        new_client(served.url, None) as client,
    ):
        await old_enough()
        looks = Looks(monkeypatch)
        asking = asyncio.create_task(client.get("/_/health/ready"))
        await until(looks.under_way)
        asking.cancel()
    assert (looks.begun, looks.ended) == (1, 1)
