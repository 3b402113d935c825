"""Appends that go from the parser to the log without a task: none is answered otherwise than the rest."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import httpx
import pytest

from gateway.http.fast_path import appends
from gateway.http.fast_path.appends import FastAppends
from gateway.log.log import Log
from tests.http.raw import Answer, connected, request
from tests.support.accounts import Account
from tests.support.calls import append, envelope, length_of, new_id, noted, refused, until
from tests.support.fast_path import Taken, break_hand_over, broken, failures
from tests.support.serving import Served

_STEP_BYTES = 37


def an_append(key: str, api_key: str, data: object = 1, **metadata: object) -> bytes:
    body = json.dumps(envelope(data, **metadata)).encode()
    return request("POST", f"/order/{key}/was_noted", api_key, body)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch, FastAppends)


async def test_an_ordinary_append_takes_the_express(writer: httpx.AsyncClient, taken: Taken) -> None:
    key = new_id()
    first = await append(writer, "order", key, "was_noted", 1)
    assert (first.status_code, first.json()["length"]) == (201, 1)
    second = await append(writer, "order", key, "was_noted", 2)
    assert second.json()["length"] == 2
    assert taken.said[-1]  # the key is known by now
    assert first.headers["location"] == f"/order/{key}/events/1"
    assert first.headers["etag"] == '"1"'


@pytest.mark.parametrize("step", [_STEP_BYTES, 1])
async def test_a_body_in_pieces_goes_the_usual_way_with_the_same_answer(
    gateway: Served, tenant: Account, taken: Taken, step: int
) -> None:
    key, asked = new_id(), an_append(new_id(), tenant.write)
    async with connected(gateway.port) as connection:
        whole = await connection.ask(an_append(key, tenant.write))
        taken.said.clear()
        head, _, body = asked.partition(b"\r\n\r\n")
        await connection.send(head + b"\r\n\r\n")
        for at in range(0, len(body), step):
            await connection.send(body[at : at + step])
            await asyncio.sleep(0)
        pieces = await connection.answer(b"POST")
    assert whole is not None
    assert pieces is not None
    assert pieces.status == whole.status == 201
    assert pieces.headers.keys() == whole.headers.keys()
    assert pieces.json.keys() == whole.json.keys()
    assert not any(taken.said)


async def test_a_header_whose_body_never_comes_is_judged_soon_all_the_same(gateway: Served) -> None:
    asked = an_append(new_id(), "no key").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    async with connected(gateway.port) as connection:
        answer = await connection.ask(asked)
    assert answer is not None
    assert answer.status == 401


async def test_pipelined_appends_are_answered_in_their_order(gateway: Served, tenant: Account) -> None:
    key = new_id()
    async with connected(gateway.port) as connection:
        await connection.send(b"".join(an_append(key, tenant.write, n) for n in range(20)))
        answers = [await connection.answer(b"POST") for _ in range(20)]
    assert [each.json["length"] for each in answers if each is not None] == list(range(1, 21))


async def test_where_a_path_leads_is_asked_of_the_spec_of_today(
    client: httpx.AsyncClient, taken: Taken
) -> None:
    key = new_id()
    for n in (1, 2):
        assert (await append(client, "order", key, "was_noted", n)).status_code == 201
    assert taken.said[-1]
    spec = (await client.get("/_/spec")).json()["spec"]
    del spec["aggregate_types"]["order"]["events"]["was_noted"]
    deployed = await client.put("/_/spec?force=true", json=spec)
    assert deployed.status_code == 200, deployed.text
    refused(await append(client, "order", key, "was_noted", 3), 404, "unknown_event_type", "event_type")


async def test_it_remembers_where_so_many_paths_lead_and_no_more(
    writer: httpx.AsyncClient, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "ADDRESSES_MAX", 3)
    keys = [new_id() for _ in range(5)]
    for key in (*keys, *keys):
        assert (await append(writer, "order", key, "was_noted", 1)).status_code == 201
    assert taken.said[-5:] == [True] * 5
    assert all(len(each._addresses) <= 3 for each in taken.by)
    assert [await length_of(writer, key) for key in keys] == [2] * 5


async def test_what_it_declines_is_judged_once_and_by_the_application(
    gateway: Served, tenant: Account, taken: Taken
) -> None:
    """One connection, refusals and appends by turns: nothing of one request reaches the next."""
    key = new_id()
    async with connected(gateway.port) as connection:
        told: list[Answer | None] = []
        for n in range(4):
            told.append(await connection.ask(an_append(key, tenant.write, n)))
            told.append(await connection.ask(an_append("no-id", tenant.write, n)))
            told.append(await connection.ask(request("POST", f"/order/{key}/was_noted", tenant.write, b"{")))
            told.append(await connection.ask(request("GET", f"/order/{key}/length", tenant.read)))
    assert [each.status for each in told if each is not None] == [201, 422, 400, 200] * 4
    assert [each.json["length"] for each in told[::4] if each is not None] == [1, 2, 3, 4]
    assert taken.said.count(True) <= 4
    assert taken.said.count(False) >= 8


async def test_a_conflict_tells_what_was_missed(writer: httpx.AsyncClient, taken: Taken) -> None:
    key = new_id()
    await noted(writer, key, 3)
    answer = await append(writer, "order", key, "was_noted", 1, previous_length=1)
    told = refused(answer, 409, "version_conflict", more=("length", "missed", "missed_next"))
    assert taken.said[-1]
    assert [event["version"] for event in told["missed"]] == [2, 3]


@pytest.mark.bug
async def test_a_bug_while_a_refusal_is_written_is_an_unknown_outcome_and_not_a_hang(
    writer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, taken: Taken
) -> None:
    key = new_id()
    await noted(writer, key, 1)

    async def broken(*_args: object, **_more: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Log, "page", broken)
    answer = await append(writer, "order", key, "was_noted", 1, previous_length=0)
    refused(answer, 504, "outcome_unknown")
    assert taken.said[-1]


@pytest.mark.bug
async def test_a_bug_before_the_hand_over_is_logged_and_the_application_appends_once(
    writer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_id()
    await noted(writer, key, 1)
    monkeypatch.setattr("gateway.http.fast_path.appends.compose", broken)
    assert (await append(writer, "order", key, "was_noted", 2)).json()["length"] == 2
    assert await length_of(writer, key) == 2
    assert failures(caplog) == ["POST"]


@pytest.mark.bug
async def test_a_bug_after_the_hand_over_is_logged_and_makes_one_event(
    writer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_id()
    await noted(writer, key, 1)
    with monkeypatch.context() as patch:
        break_hand_over(patch)
        answer = await append(writer, "order", key, "was_noted", 2)
    refused(answer, 504, "outcome_unknown")
    assert failures(caplog) == ["POST"]
    assert (await append(writer, "order", key, "was_noted", 3)).json()["length"] == 3
    events = (await writer.get(f"/order/{key}/events")).json()["events"]
    assert [event["data"] for event in events[1:]] == [2, 3]


@pytest.mark.bug
async def test_a_bug_while_a_receipt_is_written_is_logged_and_answered(
    writer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_id()
    await noted(writer, key, 1)
    with monkeypatch.context() as patch:
        patch.setattr("gateway.http.fast_path.appends.appended", broken)
        refused(await append(writer, "order", key, "was_noted", 2), 504, "outcome_unknown")
    assert failures(caplog) == ["POST"]
    assert await length_of(writer, key) == 2


async def test_a_client_that_has_gone_is_appended_for_all_the_same(
    gateway: Served, tenant: Account, client: httpx.AsyncClient
) -> None:
    key = new_id()
    async with connected(gateway.port) as connection:
        await connection.send(an_append(key, tenant.write))

    async def there() -> bool:
        return await length_of(client, key) == 1

    await until(there)


async def test_a_client_that_asks_to_close_is_answered_and_let_go(gateway: Served, tenant: Account) -> None:
    key = new_id()
    body = json.dumps(envelope(1)).encode()
    asked = request("POST", f"/order/{key}/was_noted", tenant.write, body, [(b"Connection", b"close")])
    async with connected(gateway.port) as connection:
        answer = await connection.ask(asked)
        assert answer is not None
        assert (answer.status, answer.headers["connection"]) == (201, "close")
        assert await connection.rest() == b""


async def test_a_client_that_does_not_read_is_not_taken(
    gateway: Served, tenant: Account, outbox: asyncpg.Pool
) -> None:
    """Its answers would pile up in memory: the usual way waits until they are read."""
    key = new_id()
    async with connected(gateway.port, receive_bytes=4096) as connection:
        connection.read_no_more()
        sent = 0
        for _ in range(400):
            try:
                async with asyncio.timeout(0.5):
                    await connection.send(an_append(key, tenant.write) * 50)
            except TimeoutError:
                break
            sent += 50
        connection.read_again()
        for _ in range(min(sent, 500)):
            answer = await connection.answer(b"POST")
            assert answer is not None
            assert answer.status == 201


async def test_zeros_before_a_length_mean_nothing_on_either_way(
    gateway: Served, tenant: Account, writer: httpx.AsyncClient, taken: Taken
) -> None:
    await length_of(writer, new_id())  # the key is known from here on
    for more in (b"", b"expect: 100-continue\r\n", b"x-twice: 1\r\nx-twice: 1\r\n"):
        for zeros in (b"0", b"0" * 30):
            key = new_id()
            raw = an_append(key, tenant.write)
            at = raw.lower().index(b"content-length: ") + len(b"content-length: ")
            async with connected(gateway.port) as connection:
                answer = await connection.ask(raw[:at] + zeros + raw[at:].replace(b"\r\n", b"\r\n" + more, 1))
                if answer is not None and answer.status == 100:
                    answer = await connection.answer()
            assert answer is not None
            assert answer.status == 201, answer.body
    assert taken.said == [True, True]
