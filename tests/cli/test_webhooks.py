"""`sluice webhooks`, beside a gateway that runs."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs
from gateway.catalog.specs import Accepted
from gateway.config import Config
from tests.cli.command import Ran, Sluice
from tests.cli.test_output import HOSTILE, unsafe
from tests.http.webhooks import SOURCES, Hooks, declared, kept, open_hooks, to
from tests.support.calls import new_client, refused, until
from tests.support.serving import serving


@pytest.fixture
async def outbox(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
async def hooks(postgres_url: str, redis_url: str, outbox: asyncpg.Pool) -> AsyncIterator[Hooks]:
    config = Config(redis_url=redis_url, postgres_url=postgres_url)
    async with serving(config) as served, new_client(served.url, None) as client:
        yield await open_hooks(outbox, client, SOURCES)


class Beside:
    """The command with the gateway's own servers, for the tenant."""

    def __init__(self, hooks: Hooks, postgres_url: str, redis_url: str) -> None:
        self._sluice = Sluice(SLUICE_POSTGRES_URL=postgres_url, SLUICE_REDIS_URL=redis_url)
        self._tenant = hooks.account.name

    async def __call__(self, *words: str) -> Ran:
        return await asyncio.to_thread(self._sluice, "webhooks", *words, "--tenant", self._tenant)


@pytest.fixture
def sluice(hooks: Hooks, postgres_url: str, redis_url: str) -> Beside:
    return Beside(hooks, postgres_url, redis_url)


async def test_what_came_is_listed_and_shown_as_it_came(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    body = b'{"n":  1}\r\n'
    told = await hooks.taken("github", body, "dlv_1", x_github_event="push", authorization="Bearer x")
    await hooks.taken("github", body, "dlv_1")
    first, _ = await kept(outbox, hooks, 2)
    assert (first["body"], first["body_bytes"]) == (None, len(body)), "its event has it"
    newest, oldest = (await sluice("list", "--json")).json
    assert (newest["verdict"], oldest["verdict"]) == ("duplicate", "accepted")
    assert oldest["event_id"] == newest["event_id"] == told["event_id"]
    assert (oldest["source"], oldest["delivery_id"], oldest["secret"]) == ("github", "dlv_1", 1)
    assert [row["id"] for row in (await sluice("list", "--json", "--verdict", "accepted")).json] == [
        oldest["id"]
    ]
    assert (await sluice("list", "--json", "--source", "stripe")).json == []
    shown = (await sluice("show", oldest["id"], "--json")).json
    assert shown["request"]["body"] == body.decode()
    assert shown["request"]["target"] == hooks.path("github")
    headers = dict(shown["request"]["headers"])
    assert headers["x-github-event"] == "push"
    assert headers["authorization"] == "***"
    printed = await sluice("show", "dlv_1")
    assert '{"n":  1}' in printed.out
    assert "dlv_1" in (await sluice("list")).out
    absent = await sluice("show", "nobody")
    assert (absent.code, absent.out) == (1, "")


async def test_what_is_in_quarantine_is_appended_by_one_call_once_the_spec_is_mended(
    hooks: Hooks, sluice: Beside
) -> None:
    for name in ("d1", "d2"):
        assert (await hooks.taken("typed", {"n": name}, name))["quarantined"]
    held = (await sluice("quarantine", "--json")).json
    assert [(row["delivery_id"], row["source"], row["reason"]) for row in held] == [
        ("d2", "typed", "schema_violation"),
        ("d1", "typed", "schema_violation"),
    ]
    early = await sluice("replay", "--quarantined", "--json")
    assert early.code == 1
    assert [row["reason"] for row in json.loads(early.out)] == ["schema_violation"] * 2
    spec = declared(**{**SOURCES, "typed": {**SOURCES["typed"], "to": to()}})
    assert (await hooks.deploy(spec)).status_code == 200
    done = (await sluice("replay", "--quarantined", "--json")).json
    assert [row["delivery_id"] for row in done] == ["d1", "d2"]
    events = await hooks.events()
    assert [event["id"] for event in events] == [row["event_id"] for row in done]
    assert [event["data"]["body"] for event in events] == [{"n": "d1"}, {"n": "d2"}]
    assert (await sluice("quarantine", "--json")).json == []
    again = await hooks.taken("typed", {"n": "d1"}, "d1")
    assert (again["event_id"], again["duplicate"]) == (events[0]["id"], True)
    assert "no deliver" not in (await sluice("replay", "--quarantined")).out


async def test_a_replay_follows_deployments_and_claims_as_a_delivery_does(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    assert (await hooks.taken("typed", {"n": "d1"}, "d1"))["quarantined"]
    spec = declared(**{**SOURCES, "typed": {**SOURCES["typed"], "to": to()}})
    claims = {"n": {"value": "$.data.body.n"}}
    spec["aggregate_types"]["webhook_log"]["events"]["was_received"]["claims"] = claims
    lock, waiting = f"sluice.spec.{hooks.account.id}", "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with outbox.acquire() as conn:
        await conn.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", lock)
        deploying = asyncio.create_task(
            specs.deploy(outbox, UUID(hooks.account.id), json.dumps(spec).encode(), {})
        )

        async def one_waits() -> bool:
            return bool(await outbox.fetchval(waiting) == 1)

        await until(one_waits)
        replaying = asyncio.create_task(sluice("replay", "--quarantined", "--json"))

        async def both_wait() -> bool:
            return replaying.done() or bool(await outbox.fetchval(waiting) == 2)

        await until(both_wait)
        await conn.execute("SELECT pg_advisory_unlock(hashtextextended($1, 0))", lock)
    assert isinstance(await deploying, Accepted)
    (done,) = (await replaying).json
    assert done["event_id"] is not None
    path = "/webhook_log/e0000000-0000-4000-a000-000000000001/was_received"
    body = {"data": {"body": {"n": "d1"}}, "metadata": {"actor": {"type": "user", "id": "global"}}}
    headers = {"authorization": f"Bearer {hooks.account.admin}"}

    async def followed() -> bool:
        return (await hooks.client.post(path, json=body, headers=headers)).status_code != 503

    await until(followed)
    response = await hooks.client.post(path, json=body, headers=headers)
    refused(response, 409, "not_unique", "data.body.n", ["holder"])


async def test_a_replay_finds_the_aggregate_of_an_alias(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    numbered = {"public_ids": {"key": "REP", "types": ["repository"]}}
    source = {
        **SOURCES["stripe"],
        "to": {"type": "repository", "id": "$.body.order", "event": "was_notified", "must_exist": True},
    }
    assert (await hooks.deploy(declared(stripe=source) | numbered)).status_code == 200
    assert (await hooks.taken("stripe", {"id": "evt_1", "order": "REP-1"}))["quarantined"]
    (early,) = json.loads((await sluice("replay", "evt_1", "--json")).out)
    assert early["reason"] == "unknown_alias"
    key = "e0000000-0000-4000-a000-000000000001"
    response = await hooks.client.post(
        f"/repository/{key}/was_pushed",
        json={"data": {}, "metadata": {"actor": {"type": "user", "id": key}}},
        headers={"authorization": f"Bearer {hooks.account.admin}", "prefer": "wait"},
    )
    assert response.json()["aliases"] == ["REP-1"]
    (done,) = (await sluice("replay", "evt_1", "--json")).json
    events = await hooks.events("repository", key)
    assert [each["id"] for each in events[1:]] == [done["event_id"]]


async def test_what_never_will_be_an_event_is_discarded_with_its_request(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    first = await hooks.taken("stripe", {"id": "evt_1"})
    for amount in (1, 2):
        assert (await hooks.taken("stripe", {"id": "evt_1", "amount": amount}))["quarantined"]
    for name in ("d1", "d2", "d3"):
        assert (await hooks.taken("typed", {"n": name}, name))["quarantined"]
    await kept(outbox, hooks, 6)
    gone = (await sluice("discard", "evt_1", "--json")).json
    assert [(each["source"], each["delivery_id"]) for each in gone] == [("stripe", "evt_1")] * 2
    assert [row["delivery_id"] for row in (await sluice("list", "--json", "--source", "stripe")).json] == [
        "evt_1"
    ]
    assert [each["id"] for each in await hooks.events()] == [first["event_id"]]
    row_id = (await sluice("quarantine", "--json")).json[0]["id"]
    assert (await sluice("discard", row_id)).out == "typed d3: discarded\n"
    assert (await sluice("discard", "--reason", "unknown_alias")).out == "nothing in quarantine matches\n"
    gone = (await sluice("discard", "--source", "typed", "--reason", "schema_violation", "--json")).json
    assert [each["delivery_id"] for each in gone] == ["d1", "d2"]
    await kept(outbox, hooks, 1)


async def test_only_what_is_in_quarantine_is_discarded(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    await hooks.taken("stripe", {"id": "evt_1"})
    (row,) = await kept(outbox, hooks, 1)
    for words in (("evt_1",), (str(row["id"]),), ("nobody",)):
        ran = await sluice("discard", *words)
        assert (ran.code, ran.out) == (1, "")
        assert "is in quarantine: `sluice webhooks quarantine` lists them" in ran.err
    for words in ((), ("evt_1", "--reason", "not_found")):
        assert (await sluice("discard", *words)).code == 2
    await kept(outbox, hooks, 1)


async def test_a_batch_keeps_its_request_until_the_last_of_its_items_is_discarded(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    source = {**SOURCES["gocardless"], "to": to("was_typed")}
    assert (await hooks.deploy(declared(gocardless=source))).status_code == 200
    told = await hooks.taken("gocardless", {"events": [{"id": "EV1"}, {"id": "EV2"}]})
    assert [each["quarantined"] for each in told["events"]] == [True, True]
    await kept(outbox, hooks, 3)
    await sluice("discard", "EV1")
    assert {row["verdict"] for row in await kept(outbox, hooks, 2)} == {"batch", "quarantined"}
    await sluice("discard", "EV2")
    await kept(outbox, hooks, 0)


async def test_a_replay_of_an_event_is_that_event_unless_another_one_is_asked_for(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    first = await hooks.taken("stripe", {"id": "evt_1"})
    await kept(outbox, hooks, 1)
    (same,) = (await sluice("replay", "evt_1", "--json")).json
    assert (same["event_id"], same["duplicate"]) == (first["event_id"], True)
    mapped = {**SOURCES["stripe"], "data": {"of": "$.body.id"}}
    assert (await hooks.deploy(declared(stripe=mapped))).status_code == 200
    (other,) = (await sluice("replay", "evt_1", "--again", "--json")).json
    assert other["duplicate"] is False
    events = await hooks.events()
    assert [event["id"] for event in events] == [first["event_id"], other["event_id"]]
    assert events[-1]["data"] == {"of": "evt_1"}
    shown = (await sluice("show", "evt_1", "--json")).json
    assert json.loads(shown["request"]["body"]) == {"id": "evt_1"}, "as it came, whatever its newest event is"


async def test_an_id_that_several_sources_gave_is_not_guessed_at(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    first = await hooks.taken("stripe", {"id": "same"})
    await hooks.taken("github", {"n": 1}, "same")
    await kept(outbox, hooks, 2)
    for command in ("show", "replay"):
        ran = await sluice(command, "same")
        assert (ran.code, ran.out) == (1, "")
        assert "github, stripe" in ran.err
    told = await sluice("replay", "same", "--source", "stripe")
    assert told.out == f"stripe same: event {first['event_id']}, as before\n"


async def test_an_item_of_a_batch_is_replayed_by_itself(hooks: Hooks, sluice: Beside) -> None:
    await hooks.taken("gocardless", {"events": [{"id": "a", "n": 1}, {"id": "b", "n": 1}]})
    told = await hooks.taken("gocardless", {"events": [{"id": "a", "n": 2}, {"id": "c"}]})
    assert told["events"][0]["quarantined"]
    held = await sluice("replay", "--quarantined")
    assert held.code == 1
    assert "idempotency_mismatch" in held.out
    assert (await sluice("replay", "--quarantined", "--again")).code == 0
    assert [event["data"]["body"] for event in await hooks.events()][-1] == {"id": "a", "n": 2}


SIGNED = {
    "stripe": SOURCES["stripe"],
    "github": SOURCES["github"],
    "slack": SOURCES["slack"],
    "twilio": SOURCES["twilio"],
    "gocardless": SOURCES["gocardless"],
    "meta": SOURCES["meta"],
    "braintree": SOURCES["braintree"],
    "typed": SOURCES["typed"],
    "standard": {"provider": "standard_webhooks", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]},
    "mailgun": {"provider": "mailgun", "secrets": ["s"]},
    "adyen": {"provider": "adyen", "secrets": ["00ff"]},
    "messagebird": {
        "provider": "messagebird",
        "secrets": ["s"],
        "public_base_url": "https://hooks.example.com",
    },
    "elsewhere": {"provider": "github", "secrets": ["s"]},
    "messages": SOURCES["messages"],
    "orders": {"provider": "sns", "topics": ["arn:aws:sns:eu-west-1:123456789012:orders"]},
}


async def curl(printed: str) -> Any:
    words = shlex.split(printed)
    assert words[0] == "curl"
    ran = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=True, timeout=30)
    return json.loads(ran.stdout)


async def test_a_signed_request_for_a_test_works_as_printed_for_every_way_to_sign_with_a_shared_secret(
    outbox: asyncpg.Pool, postgres_url: str, redis_url: str
) -> None:
    config = Config(redis_url=redis_url, postgres_url=postgres_url)
    async with serving(config) as served, new_client(served.url, None) as client:
        hooks = await open_hooks(outbox, client, SIGNED)
        sluice = Beside(hooks, postgres_url, redis_url)
        url = str(client.base_url)
        for source in SIGNED:
            printed = await sluice("sign", source, "--url", url, "--id", "dlv_9")
            if source in ("messages", "orders"):
                assert (printed.code, printed.out) == (1, "")
                assert {"messages": "private key", "orders": "publish"}[source] in printed.err
                continue
            told = await curl(printed.out)
            (told,) = told.get("events", [told])
            assert told.get("duplicate") is False or (source, told["quarantined"]) == ("typed", True), source
        ids = {(row["source"], row["delivery_id"]) for row in await kept(outbox, hooks, len(SIGNED) + 1)}
    for source in ("stripe", "github", "slack", "twilio", "gocardless", "meta", "standard", "messagebird"):
        assert (source, "dlv_9") in ids
    assert ("adyen", "dlv_9+dlv_9+dlv_9") in ids


async def test_bytes_of_a_file_are_signed_as_they_are(hooks: Hooks, sluice: Beside, tmp_path: Path) -> None:
    url = str(hooks.client.base_url)
    quoted, octets = tmp_path / "quoted.json", tmp_path / "octets"
    quoted.write_text("""{"id": "evt_it's @1"}\n""")
    octets.write_bytes(b"\xff\x00")
    told = await curl((await sluice("sign", "stripe", "--url", url, "--body", str(quoted))).out)
    assert told["duplicate"] is False
    assert (await hooks.events())[0]["data"]["delivery_id"] == "evt_it's @1"
    told = await curl((await sluice("sign", "github", "--url", url, "--body", str(octets))).out)
    assert told["quarantined"] is True
    form = ("--content-type", "application/x-www-form-urlencoded", "--body", str(quoted))
    assert (await sluice("sign", "twilio", *form)).code == 0
    wrong = await sluice("sign", "twilio", "--body", str(quoted))
    assert (wrong.code, "bodySHA256" in wrong.err) == (1, True)


async def test_what_can_not_be_signed_or_listed_is_told_in_a_sentence(
    hooks: Hooks, sluice: Beside, tmp_path: Path
) -> None:
    empty = tmp_path / "spec.json"
    empty.write_text("[]")
    for code, words, said in (
        (1, ("sign", "nobody"), "stripe"),
        (2, ("sign", "stripe", "--body", "/nonexistent"), "can't be read"),
        (2, ("sign", "stripe", "--spec", "/nonexistent"), "can't be read"),
        (1, ("sign", "stripe", "--spec", str(empty)), "not a spec"),
        (2, ("sign", "stripe", "--url", "hooks.example.com"), "--url"),
        (2, ("sign", "github", "--id", "a b"), "--id"),
        (2, ("list", "--verdict", "lost"), "quarantined"),
    ):
        ran = await sluice(*words)
        assert (ran.code, ran.out) == (code, ""), words
        assert said in ran.err, words
        assert "Traceback" not in ran.err


async def test_the_secrets_of_other_sources_need_not_be_where_a_request_is_signed(
    sluice: Beside, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.json"
    sources = {**SIGNED, "other": {"provider": "github", "secrets": ["env:SLUICE_SECRET_NOWHERE"]}}
    spec.write_text(json.dumps({"spec": declared(**sources)}))
    assert (await sluice("sign", "github", "--spec", str(spec))).code == 0
    other = await sluice("sign", "other", "--spec", str(spec))
    assert (other.code, "SLUICE_SECRET_NOWHERE" in other.err) == (1, True)


async def test_what_a_stranger_sent_is_shown_and_never_obeyed(
    hooks: Hooks, sluice: Beside, outbox: asyncpg.Pool
) -> None:
    name = f"evt\u202e{HOSTILE.replace(chr(0), '')}"
    await hooks.taken("stripe", {"id": name})
    await hooks.taken("stripe", {"id": name, "more": 1})
    body = f"not json {HOSTILE}".encode()
    signed = hooks.signed("github", body, "dlv_1").items()
    headers = [*((k.encode(), v.encode()) for k, v in signed), (b"x-more", b"b\x9b31m")]
    response = await hooks.client.post(hooks.path("github"), content=body, headers=headers)
    assert response.status_code == 202, response.text
    accepted, held, unread = (str(row["id"]) for row in await kept(outbox, hooks, 3))
    for words in (
        ("list",),
        ("quarantine",),
        *(("show", each) for each in (accepted, held, unread)),
        ("replay", held),
    ):
        ran = await sluice(*words)
        assert (unsafe(ran.out), unsafe(ran.err)) == ([], []), words
    assert r"\x1b]0;owned\x07" in (await sluice("show", unread)).out
    assert r"x-more: b\x9b31m" in (await sluice("show", unread)).out
    assert HOSTILE in (await sluice("show", unread, "--raw")).out
    assert (await sluice("show", unread, "--json")).json["request"]["body"] == body.decode()
    assert {each["delivery_id"] for each in (await sluice("list", "--json")).json} == {name, "dlv_1"}
