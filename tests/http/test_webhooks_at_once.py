"""Webhooks that go from the parser to the log without a task: none is answered otherwise than the rest."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from gateway.appends import Append
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import CatalogUnavailable
from gateway.config import Config
from gateway.http.api import webhooks
from gateway.http.api.webhooks import Webhooks
from gateway.inbound import intake
from gateway.inbound.recorder import Recorder
from gateway.inbound.store import Kept
from gateway.log.append.pending import Waiter
from gateway.log.append.sequencer import Sequencer
from gateway.log.log import Log
from gateway.outcomes import Outcome
from gateway.postgres.errors import PostgresTrouble
from tests.http.webhooks import SOURCES, Hooks, declared, kept, open_hooks
from tests.support.calls import DEADLINE_S, new_client, refused
from tests.support.serving import Served, serving

DATED = ("date", "content-length", "x-correlation-id")


class Held:
    """Who is told an append's outcome, once `until` is done."""

    def __init__(self, waiter: Waiter, until: asyncio.Future[None]) -> None:
        self._waiter, self._until = waiter, until

    def done(self) -> bool:
        return self._waiter.done()

    def set_result(self, outcome: Outcome) -> None:
        self._until.add_done_callback(lambda _: self._waiter.set_result(outcome))


class Taken:
    """What was said to each request."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.said: list[bool] = []
        take = Webhooks.take

        def told(*args: object) -> bool:
            self.said.append(take(*args))  # type: ignore[arg-type]
            return self.said[-1]

        patch.setattr(Webhooks, "take", told)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


@pytest.fixture
async def hooks(gateway: Served, outbox: asyncpg.Pool, stranger: httpx.AsyncClient) -> Hooks:
    return await open_hooks(outbox, stranger, SOURCES)


async def both(hooks: Hooks, source: str, body: Any, *ids: str) -> list[httpx.Response]:
    """The answers to a request whose body comes whole, and to one of the same kind whose body is in chunks,
    which takes the usual way."""

    async def chunks(raw: bytes) -> AsyncIterator[bytes]:
        yield raw

    answers = []
    for delivery_id, content in zip(ids, (bytes, chunks), strict=True):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = hooks.signed(source, raw, delivery_id)
        answers.append(await hooks.client.post(hooks.path(source), content=content(raw), headers=headers))
    return answers


def alike(answers: list[httpx.Response]) -> None:
    one, other = answers
    assert one.status_code == other.status_code
    assert {k: v for k, v in one.headers.items() if k not in DATED} == {
        k: v for k, v in other.headers.items() if k not in DATED
    }
    assert one.json().keys() == other.json().keys()
    unlike = ("event_id", "position")
    assert {k: v for k, v in one.json().items() if k not in unlike} == {
        k: v for k, v in other.json().items() if k not in unlike
    }


async def test_both_ways_answer_alike_and_keep_the_same(
    hooks: Hooks, taken: Taken, outbox: asyncpg.Pool
) -> None:
    for body, ids in (({"n": 1}, ("d1", "d2")), ({"n": 1}, ("d1", "d2")), ({"n": 2}, ("d1", "d2"))):
        taken.said.clear()
        alike(await both(hooks, "github", body, *ids))
        assert taken.said == [True]
    rows = await kept(outbox, hooks, 6)
    of = [[row for row in rows if row["delivery_id"] == name] for name in ("d1", "d2")]
    for one, other in zip(*of, strict=True):
        for column in ("verdict", "reason", "error", "item", "secret", "source", "digest", "body", "target"):
            assert one[column] == other[column], column
    assert [row["verdict"] for row in of[0]] == ["accepted", "duplicate", "quarantined"]
    one, other = await hooks.events()
    extra = [dict(event["metadata"]["extra"]["webhook"]) for event in (one, other)]
    assert [each.pop("delivery_id") for each in extra] == ["d1", "d2"]
    assert extra[0] == extra[1]


async def test_adobes_client_id_comes_back_with_each_answer_but_a_refusal(hooks: Hooks, taken: Taken) -> None:
    first, again = await both(hooks, "adobe", {"webhookNotificationId": "n1"}, "", "")
    assert taken.said == [True]
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    path, mine, other = hooks.path("adobe"), {"x-adobesign-clientid": "client"}, {"x-adobesign-clientid": "x"}
    asked = await hooks.client.get(path, headers=mine)
    assert [each.status_code for each in (first, again, asked)] == [202, 202, 200]
    assert {each.headers["x-adobesign-clientid"] for each in (first, again, asked)} == {"client"}
    for response in (
        await hooks.client.get(path, headers=other),
        await hooks.client.post(path, headers=other),
    ):
        assert response.status_code in (401, 403)
        assert "x-adobesign-clientid" not in response.headers


async def test_a_path_that_was_asked_for_before_is_what_the_newest_spec_says(
    hooks: Hooks, taken: Taken
) -> None:
    wider = {**SOURCES["github"], "headers": ["x-more"]}
    without = {name: each for name, each in SOURCES.items() if name != "github"}
    declarations = ((SOURCES, 202, None), (without, 404, None), ({**SOURCES, "github": wider}, 202, "here"))
    for number, (sources, status, shown) in enumerate(declarations):
        assert (await hooks.deploy(declared(**sources))).status_code == 200
        raw = json.dumps({"n": number}).encode()
        headers = {**hooks.signed("github", raw, f"d{number}"), "x-more": "here"}
        taken.said.clear()
        answer = await hooks.client.post(hooks.path("github"), content=raw, headers=headers)
        assert (answer.status_code, taken.said) == (status, [status == 202])
        if status == 202:
            assert (await hooks.events())[-1]["data"]["headers"].get("x-more") == shown


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("gocardless", {"events": [{"id": "a"}]}),
        ("repositories", {"repository": {"id": 7}, "event": "was_pushed"}),
        ("typed", {"a": 1}),
        ("typed", b"\xff"),
        ("slack", {"type": "url_verification", "challenge": "c"}),
    ],
)
async def test_what_waits_for_more_than_its_append_goes_the_usual_way_and_is_counted_once(
    hooks: Hooks, taken: Taken, source: str, body: Any
) -> None:
    one, other = await both(hooks, source, body, "d1", "d2")
    assert taken.said == [False]
    assert one.status_code == other.status_code
    assert one.json().keys() == other.json().keys()


async def test_a_wrong_signature_is_refused_in_the_same_words(hooks: Hooks, taken: Taken) -> None:
    headers = hooks.signed("github", b"{}")
    answers = [
        await hooks.client.post(hooks.path("github"), content=content, headers=headers)
        for content in (b"{ }", b"{  }")
    ]
    assert taken.said == [False, False]
    assert {answer.status_code for answer in answers} == {401}


FORGED = [
    ("x", "X-Twitter-Webhooks-Signature", "event=was_forged", "event=was_forged"),
    ("x", "X-Twitter-Webhooks-Signature", "123", "123"),
    ("x", "X-Twitter-Webhooks-Signature", "-1.5E+3", "-1.5E+3"),
    ("x", "X-Twitter-Webhooks-Signature", "true", "true"),
    ("x", "X-Twitter-Webhooks-Signature", "null", "null"),
    ("x", "X-Twitter-Webhooks-Signature", "no_json_at_all", "no_json_at_all"),
    ("timed", "X-Sig", "{now}.123", "123"),
    ("timed", "X-Sig", "{now}.a=b", "a=b"),
]
FORMS = ("application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-8")
MEDIA_TYPES = (*FORMS, "application/json", "text/plain", "application/octet-stream", "multipart/form-data")


@pytest.mark.parametrize(("name", "header", "text", "body"), FORGED)
async def test_what_a_handshake_signs_is_no_delivery_on_either_way(
    hooks: Hooks, taken: Taken, outbox: asyncpg.Pool, name: str, header: str, text: str, body: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield body.encode()

    now = str(int(time.time()))
    token = quote(text.format(now=now), safe="")
    asked = await hooks.client.get(f"{hooks.path(name)}?crc_token={token}")
    signature = base64.b64decode(asked.json()["response_token"].removeprefix("sha256="))
    signed = {header: signature.hex(), "X-At": now}
    for media_type in MEDIA_TYPES:
        headers = {**signed, "content-type": media_type}
        for content in (body.encode(), chunks()):
            response = await hooks.client.post(hooks.path(name), content=content, headers=headers)
            assert response.status_code == 401, (media_type, response.text)
    assert set(taken.said) == {False}
    assert await hooks.events() == []
    assert await kept(outbox, hooks, 0) == []


async def test_an_append_that_takes_too_long_is_a_503_and_its_event_stands(
    config: Config, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await hooks.taken("github", {"n": 0}, "d0")
    held = asyncio.get_running_loop().create_future()
    append_each, append_told = Log.append_each, Log.append_told

    def slow(self: Log, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        append_each(self, tenant, [(wanted, Held(waiter, held)) for wanted, waiter in asked])

    def slowly(self: Log, wanted: Append, waiter: Waiter) -> None:
        append_told(self, wanted, Held(waiter, held))

    async with (
        serving(replace(config, webhook_response_timeout_s=1.0)) as served,
        new_client(served.url, None) as client,
    ):
        hasty = replace(hooks, client=client)
        with monkeypatch.context() as patch:
            patch.setattr(Log, "append_each", slow)
            patch.setattr(Log, "append_told", slowly)
            answers = await asyncio.gather(
                hasty.send("github", {"n": 1}, "d1"), both(hasty, "github", {"n": 2}, "d2", "d3")
            )
        held.set_result(None)
    one, others = answers
    alike(others)
    assert (one.status_code, one.json()["code"], one.headers["retry-after"]) == (503, "outcome_unknown", "1")
    again = await hooks.taken("github", {"n": 1}, "d1")
    assert again["duplicate"] is True
    assert len(await hooks.events()) == 4
    assert (await hooks.events())[0]["id"] == first["event_id"]


async def test_a_delivery_brings_what_its_event_implies(
    outbox: asyncpg.Pool, stranger: httpx.AsyncClient, taken: Taken
) -> None:
    spec = declared(**SOURCES)
    types = spec["aggregate_types"]
    types["webhook_log"]["events"]["was_received"]["implications"] = [
        {"emit": {"aggregate_type": "note", "id": "global", "event_type": "was_made", "data": {}}}
    ]
    types["note"] = {"events": {"was_made": {"schema": {"type": "object"}}}}
    hooks = await open_hooks(outbox, stranger, SOURCES)
    answer = await hooks.deploy(spec)
    assert answer.status_code == 200, answer.text
    told = await hooks.taken("github", {"n": 1}, "d1")
    (note,) = await hooks.events("note", "global")
    assert note["metadata"]["causation_id"] == told["event_id"]
    assert taken.said == [True]


@pytest.mark.parametrize("after", [False, True], ids=["before the hand-over", "after the hand-over"])
@pytest.mark.bug
async def test_a_bug_on_its_own_way_is_logged_and_makes_one_event(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: bool
) -> None:
    await hooks.taken("github", {"n": 0}, "d0")
    submit = Sequencer.submit_told

    def failing(*args: Any) -> Any:
        if after:
            submit(*args)
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(*((Sequencer, "submit_told") if after else (intake.normalize, "place")), failing)
        answer = await hooks.send("github", {"n": 1}, "d1")
    told = (answer.status_code, answer.json()["code"])
    assert told == ((503, "outcome_unknown") if after else (504, "outcome_unknown"))
    assert [record.msg for record in caplog.records].count("fast_path_failed") == 1
    again = await hooks.taken("github", {"n": 1}, "d1")
    assert again["duplicate"] is after
    assert [event["data"]["delivery_id"] for event in await hooks.events()] == ["d0", "d1"]


@pytest.mark.bug
async def test_a_bug_behind_the_commit_is_logged_and_told_and_the_other_deliveries_are_answered(
    hooks: Hooks, taken: Taken, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await hooks.taken("github", {"n": 0}, "d0")
    keep = Recorder.keep

    def failing(self: Recorder, row: Kept) -> None:
        if row.delivery_id == "d1":
            raise RuntimeError("a bug")
        keep(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "keep", failing)
        names = ("d1", "d2", "d3")
        answers = await asyncio.gather(*(hooks.send("github", {"n": 1}, name) for name in names))
    assert [each.status_code for each in answers] == [503, 202, 202]
    assert answers[0].json()["code"] == "outcome_unknown"
    assert taken.said == [True] * 4
    assert [record.msg for record in caplog.records].count("fast_path_failed") == 1
    assert (await hooks.taken("github", {"n": 1}, "d1"))["duplicate"] is True


async def test_a_batch_of_which_something_is_committed_is_never_told_that_nothing_will_be(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hooks.taken("gocardless", {"events": [{"id": "EV0", "n": 0}]})

    async def away(*_args: object) -> None:
        raise PostgresTrouble("away")

    batch = {"events": [{"id": "EV1", "n": 1}, {"id": "EV0", "n": 9}]}
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "kept", away)
        answer = await hooks.send("gocardless", batch)
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    assert [event["data"]["delivery_id"] for event in await hooks.events()] == ["EV0", "EV1"]
    told = (await hooks.taken("gocardless", batch))["events"]
    assert [each["duplicate"] for each in told] == [True, False]
    assert told[1]["quarantined"]


async def test_a_quarantine_that_can_not_be_written_is_a_503_and_one_after_it_is_not(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("d1", "d2"):
        await hooks.taken("github", {"n": 1}, name)

    async def away(*_args: object) -> None:
        raise PostgresTrouble("away")

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "kept", away)
        answers = await both(hooks, "github", {"n": 2}, "d1", "d2")
    alike(answers)
    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "not_committed")
    assert (await hooks.taken("github", {"n": 2}, "d1"))["quarantined"] is True


async def test_a_stale_gateway_judges_no_delivery_by_the_spec_it_has(
    hooks: Hooks, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of the process: meanwhile others may have deployed other secrets and sources."""
    for answer in await both(hooks, "stripe", {"id": "evt_1"}, "a", "b"):
        assert answer.status_code == 202, answer.text

    async def unavailable(_: Catalog) -> None:
        raise CatalogUnavailable("Postgres gave no answer")

    async def removed(catalog: Catalog) -> None:
        patched.setattr(catalog, "_serving", {})

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "fresh", property(lambda _: False))
        patched.setattr(Catalog, "refresh", unavailable)
        for answer in await both(hooks, "stripe", {"id": "evt_2"}, "a", "b"):
            refused(answer, 503, "not_committed")
        patched.setattr(Catalog, "refresh", removed)
        for answer in await both(hooks, "stripe", {"id": "evt_3"}, "a", "b"):
            refused(answer, 404, "not_found")
    assert taken.said[-2:] == [False, False]
    (event,) = await hooks.events()
    assert event["data"]["delivery_id"] == "evt_1"


async def test_a_spec_that_is_deployed_while_a_body_comes_judges_the_delivery(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, deployed = asyncio.Event(), asyncio.Event()
    read = webhooks.read_body

    async def slowly(*args: Any) -> bytes:
        begun.set()
        await deployed.wait()
        return await read(*args)

    monkeypatch.setattr(webhooks, "read_body", slowly)
    body = b'{"id": "evt_1"}'

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    signed = hooks.signed("stripe", body)
    sending = asyncio.ensure_future(hooks.client.post(hooks.path("stripe"), content=chunks(), headers=signed))
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    monkeypatch.setattr(Catalog, "deployed", lambda *_: None)
    deployed.set()
    refused(await sending, 404, "not_found")
