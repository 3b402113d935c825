"""Webhooks over HTTP: each delivery one event, and what its sender is told."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest
import stripe
from slack_sdk.signature import SignatureVerifier
from standardwebhooks import Webhook

from gateway.config import Config
from tests.http.raw import ask
from tests.http.webhooks import SOURCES, Hooks, declared, kept, open_hooks, to
from tests.inbound.senders import of_braintree, of_message
from tests.support.calls import new_client, refused
from tests.support.serving import Served, serving
from tests.telemetry.scrape import scrape


@pytest.fixture
async def hooks(gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient) -> Hooks:
    return await open_hooks(outbox, stranger, SOURCES)


async def test_a_verified_delivery_is_one_event_however_often_it_comes(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    body = b'{"id": "evt_1",  "type": "charge.succeeded", "n": 1.10}\n'
    first = await hooks.taken("stripe", body)
    assert first == {
        "ok": True,
        "event_id": first["event_id"],
        "duplicate": False,
        "position": first["position"],
    }
    again = await asyncio.gather(*(hooks.taken("stripe", body) for _ in range(5)))
    assert all(each == {**first, "duplicate": True} for each in again)
    (event,) = await hooks.events()
    assert event["id"] == first["event_id"]
    assert event["type"] == "was_received"
    assert event["data"] == {"body": json.loads(body), "headers": {}, "delivery_id": "evt_1"}
    assert event["metadata"]["actor"] == {"type": "webhook", "id": "some_webhook"}
    said = event["metadata"]["extra"]["webhook"]
    assert (said["source"], said["delivery_id"], said["by_digest"]) == ("stripe", "evt_1", False)
    payload = await outbox.fetchval("SELECT payload FROM outbox WHERE id = $1::uuid", first["event_id"])
    assert body in payload, "the body is kept byte for byte"


async def test_an_event_of_a_delivery_has_its_tags_and_claims_its_values(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    target = {"type": "repository", "id": "$.body.key", "event": "was_pushed"}
    branch = "$.data.body.branch"
    hooks = await open_hooks(
        outbox,
        stranger,
        {"stripe": SOURCES["stripe"] | {"to": target}},
        tags=[f"branch:{branch}"],
        claims={"branch": {"value": branch}},
    )
    ada, bob = (str(uuid.uuid4()) for _ in range(2))
    first = await hooks.taken("stripe", {"id": "evt_1", "key": ada, "branch": "a"})
    for n, pushed in ((2, "a"), (3, {})):
        told = await hooks.taken("stripe", {"id": f"evt_{n}", "key": bob, "branch": pushed})
        assert told == {"ok": True, "quarantined": True, "event_id": None}
    reasons = {row["delivery_id"]: row["reason"] for row in await kept(outbox, hooks, 3)}
    assert reasons == {"evt_1": None, "evt_2": "not_unique", "evt_3": "invalid_tag"}
    async with new_client(gateway.url, hooks.account.admin) as client:
        page = (await client.get("/_/feed", params={"tags": "branch:a"})).json()
    assert [event["id"] for event in page["events"]] == [first["event_id"]]


async def test_the_same_delivery_id_with_other_bytes_is_quarantined_and_alarmed(
    hooks: Hooks, outbox: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await hooks.taken("stripe", {"id": "evt_1", "amount": 1})
    for _ in range(2):
        told = await hooks.taken("stripe", {"id": "evt_1", "amount": 1_000})
        assert told == {"ok": True, "quarantined": True, "event_id": None}
    assert len(await hooks.events()) == 1
    rows = await kept(outbox, hooks, 2)
    verdicts = {(row["verdict"], row["delivery_id"], row["reason"]) for row in rows}
    assert verdicts == {("accepted", "evt_1", None), ("quarantined", "evt_1", "idempotency_mismatch")}
    assert "webhook_payload_mismatch" in [
        record.message for record in caplog.records if record.levelname == "ERROR"
    ]


async def test_a_number_of_any_length_that_the_schema_refuses_is_quarantined(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    sources = {"typed": SOURCES["typed"], "batch": {**SOURCES["gocardless"], "to": to("was_typed")}}
    hooks = await open_hooks(outbox, stranger, sources)
    long = b"9" * 4_301
    told = await hooks.taken("typed", b'{"n": ' + long + b"}")
    assert told == {"ok": True, "quarantined": True, "event_id": None}
    told = await hooks.taken("batch", b'{"events": [{"id": "EV1", "n": ' + long + b"}]}")
    assert told["events"][0]["quarantined"]
    assert {row["reason"] for row in await kept(outbox, hooks, 3)} == {None, "schema_violation"}


async def test_an_id_with_a_null_is_known_by_its_digest_and_holds_up_no_other(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    signed = {"provider": "hmac", "header": "X-Sig", "secrets": ["s"], "delivery_id": "$.body.token"}
    unsigned = {"provider": "stripe", "unsigned": True}
    sources = {"open": unsigned, "signed": signed, "stripe": SOURCES["stripe"]}
    hooks = await open_hooks(outbox, stranger, sources)
    form = "application/x-www-form-urlencoded"
    first = await hooks.taken("signed", b"token=a%00b", content_type=form)
    assert await hooks.taken("signed", b"token=a%00b", content_type=form) == {**first, "duplicate": True}
    other = await hooks.taken("signed", b"token=a%00b&more=1", content_type=form)
    assert other["quarantined"], "the same id with other bytes"
    response = await stranger.post(hooks.path("open"), content=b"id=%00", headers={"content-type": form})
    assert response.status_code == 202
    await hooks.taken("stripe", {"id": "evt_1"})
    ids = [row["delivery_id"] for row in await kept(outbox, hooks, 5)]
    assert {each for each in ids if not each.startswith("sha256:")} == {"evt_1"}


async def test_what_a_provider_changes_when_it_tries_again_is_no_other_delivery(hooks: Hooks) -> None:
    first = await hooks.taken("stripe", b'{"id":"evt_1","pending_webhooks":2}')
    again = await hooks.taken("stripe", b'{"id":"evt_1","pending_webhooks": 1}')
    assert again["quarantined"], "white space is no such change"
    again = await hooks.taken("stripe", b'{"id":"evt_1","pending_webhooks":1}')
    assert again == {**first, "duplicate": True}


async def test_sources_and_tenants_have_delivery_ids_of_their_own(hooks: Hooks, outbox: asyncpg.Pool) -> None:
    other = await open_hooks(outbox, hooks.client, SOURCES)
    for each, source in ((hooks, "github"), (hooks, "repositories"), (other, "github")):
        told = await each.taken(source, {"repository": {"id": 7}, "event": "was_pushed"}, "same")
        assert told["duplicate"] is False


async def test_a_wrong_signature_is_a_401_and_writes_nothing(hooks: Hooks, outbox: asyncpg.Pool) -> None:
    body = b'{"id": "evt_1"}'
    good = hooks.signed("stripe", body)
    for headers, sent in (
        ({}, body),
        (good, body + b" "),
        ({**good, "stripe-signature": good["stripe-signature"].replace("v1=", "v0=")}, body),
        (hooks.signed("github", body), body),
    ):
        refused(
            await hooks.client.post(hooks.path("stripe"), content=sent, headers=headers), 401, "unauthorized"
        )
    await hooks.taken("stripe", body)
    await kept(outbox, hooks, 1)


async def test_what_vendors_own_libraries_sign_is_taken_and_a_changed_body_of_theirs_is_not(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    secret = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
    providers = {"stripe": secret, "slack": "slack-secret", "standard_webhooks": secret, "svix": secret}
    sources = {name: {"provider": name, "secrets": [each]} for name, each in providers.items()}
    hooks = await open_hooks(outbox, stranger, sources)
    body, now = '{"id": "evt_1", "event_id": "Ev1", "name": "Zoë"}', datetime.now(UTC)
    at = str(int(now.timestamp()))
    by_stripe = stripe.WebhookSignature._compute_signature(f"{at}.{body}", secret)
    by_slack = SignatureVerifier("slack-secret").generate_signature(timestamp=at, body=body)
    standard = {"id": "msg_1", "timestamp": at, "signature": Webhook(secret).sign("msg_1", now, body)}
    signed = {
        "stripe": {"Stripe-Signature": f"t={at},v1={by_stripe}"},
        "slack": {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": str(by_slack)},
        "standard_webhooks": {f"webhook-{name}": value for name, value in standard.items()},
        "svix": {f"svix-{name}": value for name, value in standard.items()},
    }
    for source, headers in signed.items():
        for changed in (body + " ", body.replace("Zoë", "Zoe")):
            response = await stranger.post(hooks.path(source), content=changed.encode(), headers=headers)
            refused(response, 401, "unauthorized")
        response = await stranger.post(hooks.path(source), content=body.encode(), headers=headers)
        assert (response.status_code, response.json()["duplicate"]) == (202, False), source
    assert len(await hooks.events()) == len(signed)


async def test_both_secrets_of_a_rotation_verify_and_a_metric_says_which(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    old = {**hooks.spec["webhooks"]["github"], "secrets": ["old"]}
    with_old = Hooks(hooks.account, declared(github=old), hooks.client)
    await hooks.taken("github", {"n": 1}, "dlv_1")
    await with_old.taken("github", {"n": 2}, "dlv_2")
    assert [row["secret"] for row in await kept(outbox, hooks, 2)] == [1, 2]


async def test_a_delivery_without_an_id_is_known_by_its_digest_and_says_so(hooks: Hooks) -> None:
    first = await hooks.taken("stripe", {"type": "ping"})
    assert (await hooks.taken("stripe", {"type": "ping"}))["duplicate"]
    (event,) = await hooks.events()
    assert event["id"] == first["event_id"]
    assert event["data"]["delivery_id"].startswith("sha256:")
    assert event["metadata"]["extra"]["webhook"]["by_digest"] is True


async def test_a_header_with_an_id_that_does_not_come_is_as_no_id(hooks: Hooks) -> None:
    headers = {k: v for k, v in hooks.signed("typed", b'{"type": "a"}').items() if k != "x-id"}
    for duplicate in (False, True):
        response = await hooks.client.post(hooks.path("typed"), content=b'{"type": "a"}', headers=headers)
        assert (response.status_code, response.json()["duplicate"]) == (202, duplicate)
    (event,) = await hooks.events()
    assert event["data"]["delivery_id"].startswith("sha256:")


async def test_a_batch_is_an_event_an_item_all_committed_before_the_answer(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    items = [{"id": f"EV{n}", "n": n} for n in range(3)]
    told = await hooks.taken("gocardless", {"events": items})
    assert [each["duplicate"] for each in told["events"]] == [False, False, False]
    events = await hooks.events()
    assert [event["data"]["body"] for event in events] == items
    assert [event["data"]["delivery_id"] for event in events] == ["EV0", "EV1", "EV2"]
    assert [event["id"] for event in events] == [each["event_id"] for each in told["events"]]
    again = await hooks.taken("gocardless", {"events": [items[1], {"id": "EV2", "n": 9}, {"id": "EV9"}]})
    assert again["events"][0] == {**told["events"][1], "duplicate": True}
    assert again["events"][1] == {"quarantined": True, "event_id": None, "duplicate": False}
    assert again["events"][2]["duplicate"] is False
    rows = await kept(outbox, hooks, 8)
    assert sorted(row["verdict"] for row in rows) == sorted(
        ["batch", "accepted", "accepted", "accepted", "batch", "duplicate", "quarantined", "accepted"]
    )


async def test_an_empty_batch_is_taken_and_is_no_event(hooks: Hooks) -> None:
    assert await hooks.taken("gocardless", {"events": []}) == {"ok": True, "events": []}
    assert await hooks.events() == []


async def test_a_batch_by_the_spec_has_ids_by_the_spec(hooks: Hooks) -> None:
    entry = [{"id": 1, "time": 5}, {"id": 2}, {"id": 1, "time": 5}]
    told = await hooks.taken("meta", {"object": "page", "entry": entry})
    first, second, third = told["events"]
    assert (first["duplicate"], second["duplicate"], third["duplicate"]) == (False, False, True)
    assert third["event_id"] == first["event_id"]


async def test_an_id_that_all_items_of_a_batch_share_gets_the_number_of_each(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    batch = {**SOURCES["typed"], "to": to(), "batch": "$.body.items"}
    hooks = await open_hooks(outbox, stranger, {"batch": batch})
    first = await hooks.taken("batch", {"items": [{"n": 1}, {"n": 1}, {"n": 2}]}, "dlv_1")
    assert [each["duplicate"] for each in first["events"]] == [False, False, False]
    again = await hooks.taken("batch", {"items": [{"n": 1}, {"n": 1}, {"n": 2}]}, "dlv_1")
    assert again["events"] == [{**each, "duplicate": True} for each in first["events"]]
    await hooks.taken("batch", {"n": 3}, "dlv_2")
    ids = [event["data"]["delivery_id"] for event in await hooks.events()]
    assert ids == ["dlv_1#0", "dlv_1#1", "dlv_1#2", "dlv_2"]


async def test_the_body_of_a_form_is_the_object_of_its_parameters(hooks: Hooks) -> None:
    form = {"content_type": "application/x-www-form-urlencoded"}
    await hooks.taken("twilio", b"Body=It%27s+amazing&Media=a&Media=b&Empty=", "SM1", **form)
    (event,) = await hooks.events()
    assert event["data"]["body"] == {"Body": "It's amazing", "Media": ["a", "b"], "Empty": ""}
    assert event["data"]["headers"] == {"i-twilio-idempotency-token": "SM1"}


async def test_a_foreign_id_leads_to_one_aggregate_also_at_first_sight(
    hooks: Hooks, outbox: asyncpg.Pool
) -> None:
    sent = (
        hooks.taken("repositories", {"repository": {"id": 42, "name": "a"}, "event": "was_pushed"}, f"d{n}")
        for n in range(20)
    )
    await asyncio.gather(*sent)
    keys = await outbox.fetch(
        "SELECT DISTINCT aggregate_id FROM outbox WHERE tenant = $1::uuid", uuid.UUID(hooks.account.id)
    )
    assert len(keys) == 1
    events = await hooks.events("repository", keys[0]["aggregate_id"])
    assert len(events) == 20
    mapped = (
        "SELECT key FROM source_map WHERE source_id = '42' AND source = 'repositories' AND tenant = $1::uuid"
    )
    assert await outbox.fetchval(mapped, hooks.account.id) == keys[0]["aggregate_id"]


SYNC = {
    "provider": "hmac",
    "header": "X-Sig",
    "secrets": ["s"],
    "batch": "$.body.items",
    "delivery_id": "$.body.id",
    "to": {"type": "repository", "source_id": "$.body.of", "event": "was_pushed"},
}


async def test_foreign_ids_of_a_whole_batch_are_looked_up_together(
    own_config: Config, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [{"id": f"d{n}", "of": n} for n in range(5_000)]
    execute, looked_up = asyncpg.Connection._do_execute, Counter[str]()

    async def counting(connection: Any, query: str, *args: Any, **more: Any) -> Any:
        if "source_id" in query:
            looked_up[query] += 1
        return await execute(connection, query, *args, **more)

    monkeypatch.setattr(asyncpg.Connection, "_do_execute", counting)
    async with (
        serving(replace(own_config, webhook_response_timeout_s=40)) as served,
        new_client(served.url, None) as client,
    ):
        hooks = await open_hooks(own_outbox, client, {"sync": SYNC})
        told = await hooks.taken("sync", {"items": items})
        assert not any(each["duplicate"] for each in told["events"])
        again = await hooks.taken("sync", {"items": items})
        assert again["events"] == [{**each, "duplicate": True} for each in told["events"]]
    assert 0 < looked_up.total() < len(items) / 100, looked_up
    mapped = "SELECT count(DISTINCT key) FROM source_map WHERE source = 'sync' AND tenant = $1::uuid"
    assert await own_outbox.fetchval(mapped, hooks.account.id) == len(items)


async def test_an_item_of_a_batch_follows_the_item_of_its_stream_before_it(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    """As deliveries one by one would: `grade` says what has changed since."""
    hooks = await open_hooks(outbox, stranger, {"sync": {**SYNC, "data": {"title": "$.body.title"}}})
    items = [
        {"of": 1, "title": "a"},
        {"of": 2, "title": "b"},
        {"of": 1, "title": "c"},
        {"of": "", "title": ""},
    ]
    told = await hooks.taken("sync", {"items": items})
    assert told["events"][3]["quarantined"]
    more = await hooks.taken("sync", {"items": [{"of": 1, "title": "c", "again": True}, {"of": 3}]})
    grades = []
    for each in (*told["events"][:3], *more["events"]):
        response = await stranger.get(
            f"/_/events/{each['event_id']}", headers={"authorization": f"Bearer {hooks.account.read}"}
        )
        grades.append(response.json()["event"]["metadata"]["extra"]["webhook"]["grade"])
    assert grades == ["new", "new", "edited", "edited", "new"]


async def test_a_mapping_makes_the_events_data(hooks: Hooks) -> None:
    body = {"repository": {"id": "r", "name": "sluice"}, "event": "was_notified"}
    await hooks.taken("repositories", body, "d1", x_github_event="push")
    await hooks.taken("repositories", {**body, "repository": {"id": "r"}}, "d2")
    response = await hooks.client.get(
        f"/_/events/{(await hooks.taken('repositories', body, 'd1'))['event_id']}",
        headers={"authorization": f"Bearer {hooks.account.read}"},
    )
    event = response.json()["event"]
    assert event["data"] == {"name": "sluice", "by": "push", "id": "d1"}
    second = (await hooks.events("repository", event["key"]))[1]
    assert second["data"] == {"by": None, "id": "d2"}


@pytest.mark.parametrize(
    ("source", "body", "reason"),
    [
        ("typed", b'{"a": 1}', "schema_violation"),
        ("typed", b'{"a": 1, "a": 2}', "invalid_json"),
        ("typed", b"\xff", "invalid_json"),
        ("typed", b"", "invalid_json"),
        ("repositories", b'{"event": "was_pushed"}', "no_source_id"),
        ("repositories", b'{"repository": {"id": 1}, "event": "was_lost"}', "unknown_event_type"),
        ("gocardless", b'{"events": ' + b"[" + b",".join([b"1"] * 5_001) + b"]}", "too_large"),
    ],
)
async def test_what_can_not_become_an_event_is_kept_whole_in_quarantine(
    hooks: Hooks, outbox: asyncpg.Pool, source: str, body: bytes, reason: str
) -> None:
    told = await hooks.taken(source, body)
    assert told == {"ok": True, "quarantined": True, "event_id": None}
    assert await hooks.events() == []
    (row,) = await kept(outbox, hooks, 1)
    assert (row["verdict"], row["reason"], row["body"]) == ("quarantined", reason, body)
    assert row["error"].endswith(".")


async def test_a_retry_after_the_spec_was_mended_is_appended_and_later_ones_are_duplicates(
    hooks: Hooks,
) -> None:
    assert (await hooks.taken("typed", {"a": 1}, "d1"))["quarantined"]
    spec = declared(**{**SOURCES, "typed": {**SOURCES["typed"], "to": to()}})
    assert (await hooks.deploy(spec)).status_code == 200
    first = await hooks.taken("typed", {"a": 1}, "d1")
    assert first["duplicate"] is False
    assert (await hooks.deploy(hooks.spec)).status_code == 200
    again = await hooks.taken("typed", {"a": 1}, "d1")
    assert again == {**first, "duplicate": True}, "today's spec refuses it, but it is an event already"
    assert (await hooks.taken("typed", {"a": 2}, "d1"))["quarantined"]


async def test_paths_that_are_no_source_are_404_and_other_methods_405(hooks: Hooks) -> None:
    client, name = hooks.client, hooks.account.name
    for path in (
        f"/_/webhooks/{name}/nobody",
        "/_/webhooks/nobody/stripe",
        f"/_/webhooks/{name}",
        "/_/webhooks/",
    ):
        refused(await client.post(path, content=b"{}"), 404, "not_found")
    refused(await client.post(f"/_/webhooks/{name}/stripe/x", content=b"{}"), 404, "not_found")
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        response = await client.request(method, hooks.path("stripe"))
        assert response.status_code == 405
        assert response.headers["allow"] == "POST, OPTIONS"
    response = await client.options(hooks.path("stripe"))
    assert (response.status_code, response.headers["allow"]) == (204, "POST, OPTIONS")


async def test_white_space_around_the_value_of_a_header_is_none_of_it(hooks: Hooks, gateway: Served) -> None:
    body = b'{"type": "a"}'
    signed = hooks.signed("typed", body)
    for n in (1, 2):  # by the express, and by the application, which a second X-Any keeps it from
        headers = [(name.encode(), b" \t" + value.encode() + b" \t") for name, value in signed.items()]
        lines = [b"%b:%b" % header for header in (*headers, *[(b"X-Any", b" a ")] * n)]
        head = b"\r\n".join([b"POST %b HTTP/1.1" % hooks.path("typed").encode(), b"Host: a", *lines])
        answer = await ask(gateway.port, head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert answer is not None
        assert (answer.status, answer.json["duplicate"]) == (202, n == 2)


async def test_a_delivery_that_is_only_in_quarantine_holds_no_id(
    hooks: Hooks, outbox: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await hooks.taken("typed", {"a": 1}, "d1"))["quarantined"]
    first = await hooks.taken("typed", {"type": "a"}, "d1")
    assert first["duplicate"] is False
    assert (await hooks.taken("typed", {"a": 1}, "d1"))["quarantined"]
    assert "webhook_payload_mismatch" in caplog.text
    assert [event["id"] for event in await hooks.events()] == [first["event_id"]]


async def test_a_body_over_the_cap_is_413_and_an_encoded_one_415(hooks: Hooks) -> None:
    body = b'{"id": "evt_1", "text": "' + b"a" * (1024 * 1024) + b'"}'
    refused(await hooks.send("stripe", body), 413, "too_large")

    async def streamed() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 65_536):
            yield body[at : at + 65_536]

    headers = hooks.signed("stripe", body)
    refused(
        await hooks.client.post(hooks.path("stripe"), content=streamed(), headers=headers), 413, "too_large"
    )
    response = await hooks.send("stripe", {"id": "evt_1"}, content_encoding="gzip")
    refused(response, 415, "unsupported_media_type", "Content-Encoding")


async def test_a_delivery_as_large_as_the_cap_is_an_event(hooks: Hooks) -> None:
    body = b'{"id":"evt_1","text":"' + b"a" * (1024 * 1024 - 24) + b'"}'
    assert len(body) == 1024 * 1024
    assert (await hooks.taken("stripe", body))["duplicate"] is False


async def test_handshakes_are_answered_where_they_are_declared(hooks: Hooks) -> None:
    client = hooks.client
    challenge = {"type": "url_verification", "challenge": "3eZbrw1a"}
    response = await client.post(hooks.path("slack"), json=challenge)
    assert (response.status_code, response.json()) == (200, {"challenge": "3eZbrw1a"})
    assert (await hooks.send("slack", challenge)).json() == {"challenge": "3eZbrw1a"}
    forged = {**hooks.signed("slack", b"x"), "content-type": "application/json"}
    refused(await client.post(hooks.path("slack"), json=challenge, headers=forged), 401, "unauthorized")
    refused(await client.post(hooks.path("stripe"), json=challenge), 401, "unauthorized")

    query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=meatyhamhock"
    response = await client.get(f"{hooks.path('meta')}?{query}")
    assert (response.status_code, response.text) == (200, "1158201444")
    assert response.headers["content-type"].startswith("text/plain")
    refused(await client.get(f"{hooks.path('meta')}?{query}x"), 403, "forbidden")
    assert (await client.get(hooks.path("meta"))).status_code == 405

    response = await client.post(f"{hooks.path('graph')}?validationToken=Validation%3A%20a+b%3Cb%3E")
    assert (response.status_code, response.text) == (200, "Validation: a b<b>")
    assert response.headers["x-content-type-options"] == "nosniff"
    response = await client.head(f"{hooks.path('graph')}?validationToken=abc")
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "3")
    response = await client.options(hooks.path("graph"))
    assert response.headers["allow"] == "GET, HEAD, POST, OPTIONS"

    response = await client.get(f"{hooks.path('x')}?crc_token=uzwcfYtzr9")
    assert response.json() == {"response_token": "sha256=HXvxTdsfShG6k2zC9NVANwFquJBdOugRYHax2vNiiOo="}
    refused(await client.get(f"{hooks.path('x')}?crc_token=%7B%7D"), 403, "forbidden")

    challenge_of = f"{hooks.path('braintree')}?bt_challenge="
    response = await client.get(f"{challenge_of}20f9f8ed05f77439fe955c977e4c8a53")
    assert response.text == "integration_public_key|d9b899556c966b3f06945ec21311865d35df3ce4"
    refused(await client.get(f"{challenge_of}PHhtbD4="), 403, "forbidden")
    assert (await client.get(hooks.path("braintree"))).status_code == 405

    response = await client.get(f"{hooks.path('dropbox')}?challenge=a%3Cb")
    assert (response.status_code, response.text) == (200, "a<b")
    assert (response.headers["content-type"], response.headers["x-content-type-options"]) == (
        "text/plain; charset=utf-8",
        "nosniff",
    )
    question = {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8"}}
    assert (await hooks.send("zoom", question)).json()["plainToken"] == "qgg8"
    refused(await client.post(hooks.path("zoom"), json=question), 401, "unauthorized")

    asked = {"webhook-request-origin": "eventemitter.example.com"}
    response = await client.options(hooks.path("clouds"), headers=asked)
    assert response.status_code == 200
    assert response.headers["webhook-allowed-origin"] == "eventemitter.example.com"
    assert response.headers["webhook-allowed-rate"] == "*"
    assert await hooks.events() == []


async def test_a_message_signature_holds_for_the_request_as_it_came(hooks: Hooks) -> None:
    key, path, now_ms = b"k" * 24, hooks.path("messages"), time.time_ns() // 1_000_000
    request = of_message("hmac-sha256", b'{"a":1}', now_ms, key, path.encode()).request
    headers = {name.decode(): value.decode() for name, value in request.headers}
    url = f"{path}?{request.query.decode()}"
    for other_url, body in ((url, b'{"a":2}'), (f"{url}&c=1", request.body), (path, request.body)):
        refused(await hooks.client.post(other_url, content=body, headers=headers), 401, "unauthorized")
    response = await hooks.client.post(url, content=request.body, headers=headers)
    assert (response.status_code, response.json()["duplicate"]) == (202, False)
    again = await hooks.client.post(url, content=request.body, headers=headers)
    assert again.json() == {**response.json(), "duplicate": True}


async def test_what_braintree_sends_is_an_event_with_its_form(hooks: Hooks) -> None:
    request = of_braintree("integration_private_key", 0, b"<notification>some XML</notification>").request
    body = request.body.replace(b"public%7C", b"integration_public_key%7C")
    headers = {"content-type": "application/x-www-form-urlencoded"}
    path = hooks.path("braintree")
    refused(await hooks.client.post(path, content=body + b"&a=1", headers=headers), 401, "unauthorized")
    response = await hooks.client.post(path, content=body, headers=headers)
    assert (response.status_code, response.json()["duplicate"]) == (202, False)
    (event,) = await hooks.events()
    assert sorted(event["data"]["body"]) == ["bt_payload", "bt_signature"]


async def test_an_unsigned_source_takes_what_comes_by_its_id(hooks: Hooks) -> None:
    headers = {"ce-id": "A234-1234", "content-type": "application/json"}
    first = await hooks.client.post(hooks.path("clouds"), content=b'{"a":1}', headers=headers)
    again = await hooks.client.post(hooks.path("clouds"), content=b'{"a":1}', headers=headers)
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)


async def test_secrets_read_back_masked_and_what_was_read_can_be_deployed_again(hooks: Hooks) -> None:
    key = {"authorization": f"Bearer {hooks.account.admin}"}
    shown = (await hooks.client.get("/_/spec", headers=key)).json()["spec"]
    assert shown["webhooks"]["stripe"]["secrets"] == ["***"]
    assert shown["webhooks"]["meta"]["verify_token"] == "***"
    assert "whsec_one" not in json.dumps(shown)
    shown["webhooks"]["stripe"]["tolerance_s"] = 200
    assert (await hooks.deploy(shown)).json()["changed"] is True
    assert (await hooks.taken("stripe", {"id": "evt_1"}))["duplicate"] is False
    shown["webhooks"]["other"] = {**shown["webhooks"]["stripe"]}
    told = await hooks.deploy(shown)
    refused(told, 422, "invalid_spec", more=("faults",))
    assert told.json()["faults"][0]["pointer"] == "/webhooks/other/secrets/0"


async def test_what_is_counted_for_a_source(
    config: Config, outbox: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(replace(config, metrics_token="tok")) as served,
        new_client(served.url, None) as client,
    ):
        wanting = {**SOURCES["stripe"], "to": {**to(), "when": {"$.body.livemode": True}}}
        hooks = await open_hooks(outbox, client, {**SOURCES, "wanting": wanting})
        for body in ({"id": "evt_1"}, {"id": "evt_1"}, {"id": "evt_1", "n": 1}):
            await hooks.taken("stripe", body)
        await hooks.taken("wanting", {"id": "evt_2"})
        await client.post(hooks.path("stripe"), content=b"{}")
        await client.post(hooks.path("slack"), json={"type": "url_verification", "challenge": "c"})
        async with new_client(served.url, "tok") as operator:
            found = await scrape(operator)
    of = {"tenant": hooks.account.name, "source": "stripe"}
    for outcome in ("accepted", "duplicate", "quarantined"):
        assert found("sluice_webhook_deliveries_total", **of, outcome=outcome) == 1
    assert found("sluice_webhook_deliveries_total", **{**of, "source": "slack"}, outcome="handshake") == 1
    assert found("sluice_webhook_deliveries_total", **{**of, "source": "wanting"}, outcome="ignored") == 1
    assert found("sluice_webhook_refused_total", **of, reason="no_signature") == 1
    assert found("sluice_webhook_verified_total", **of, secret="1") == 3
    assert found("sluice_webhook_answer_seconds_count", **of) == 3
    assert "whsec_one" not in caplog.text


PAYMENTS = {
    "provider": "stripe",
    "secrets": ["s"],
    "to": {"type": "repository", "id": "$.body.order", "event": "was_notified", "must_exist": True},
}


async def open_named(outbox: asyncpg.Pool, client: httpx.AsyncClient, source: dict[str, object]) -> Hooks:
    """A tenant whose repositories are numbered, with one source."""
    hooks = await open_hooks(outbox, client, {"paid": source})
    spec = declared(paid=source) | {"public_ids": {"key": "REP", "types": ["repository"]}}
    assert (await hooks.deploy(spec)).status_code == 200
    return hooks


async def written(hooks: Hooks) -> tuple[str, str]:
    """The key and the alias of a new repository."""
    key = str(uuid.uuid4())
    response = await hooks.client.post(
        f"/repository/{key}/was_pushed",
        json={"data": {}, "metadata": {"actor": {"type": "user", "id": str(uuid.uuid4())}}},
        headers={"authorization": f"Bearer {hooks.account.admin}", "prefer": "wait"},
    )
    assert response.status_code == 201, response.text
    (alias,) = response.json()["aliases"]
    return key, alias


async def test_a_delivery_for_an_aggregate_that_must_exist_makes_none_and_is_replayed_once_it_is_there(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    hooks = await open_hooks(outbox, stranger, {"paid": PAYMENTS})
    key = str(uuid.uuid4())
    for _ in range(2):
        told = await hooks.taken("paid", {"id": "evt_1", "order": key})
        assert told == {"ok": True, "quarantined": True, "event_id": None}
    assert await hooks.events("repository", key) == []
    (row,) = await kept(outbox, hooks, 1)
    assert (row["verdict"], row["reason"]) == ("quarantined", "not_found")
    event = {"data": {}, "metadata": {"actor": {"type": "user", "id": key}}}
    admin = {"authorization": f"Bearer {hooks.account.admin}"}
    assert (await stranger.post(f"/repository/{key}/was_pushed", json=event, headers=admin)).is_success
    told = await hooks.taken("paid", {"id": "evt_1", "order": key})
    assert [each["id"] for each in await hooks.events("repository", key)][1:] == [told["event_id"]]


async def test_a_singleton_exists_before_its_first_event(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    source = {**PAYMENTS, "to": to() | {"must_exist": True}}
    hooks = await open_hooks(outbox, stranger, {"paid": source})
    assert (await hooks.taken("paid", {"id": "evt_1"}))["duplicate"] is False


async def test_what_to_id_finds_may_be_an_alias_of_the_type(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    hooks = await open_named(outbox, stranger, PAYMENTS)
    key, alias = await written(hooks)
    assert alias == "REP-1"
    told = [
        await hooks.taken("paid", {"id": f"evt_{n}", "order": text})
        for n, text in enumerate(("REP-1", "@REP-1", "rep-1", key))
    ]
    events = await hooks.events("repository", key)
    assert [each["event_id"] for each in told] == [each["id"] for each in events[1:]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("REP-7", "unknown_alias"), ("@VNO-7", "unknown_alias"), ("VNO-7", "invalid_identifier"),
     ("@", "invalid_identifier"), ("@REP-0", "invalid_identifier"), ("", "invalid_identifier")],
)  # fmt: skip
async def test_an_alias_that_names_nothing_is_quarantined(
    gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient, text: str, reason: str
) -> None:
    hooks = await open_named(outbox, stranger, PAYMENTS)
    await written(hooks)
    assert (await hooks.taken("paid", {"id": "evt_1", "order": text}))["quarantined"]
    (row,) = await kept(outbox, hooks, 1)
    assert (row["verdict"], row["reason"]) == ("quarantined", reason)
