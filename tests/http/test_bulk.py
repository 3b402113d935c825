"""POST /_/bulk: NDJSON in and out, one independent append a line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.aside import Aside, Busy
from gateway.http.api import bulk as bulk_api
from tests.http.raw import connected, request
from tests.support.accounts import Account
from tests.support.calls import (
    ACTOR,
    NDJSON,
    append,
    bulk,
    bulk_line,
    events_of,
    length_of,
    lines,
    new_client,
    new_event_id,
    new_id,
    refused,
    told_in,
    until,
)
from tests.support.serving import Child, Served


async def test_a_receipt_a_line_in_the_order_of_the_request(client: httpx.AsyncClient) -> None:
    keys = [new_id() for _ in range(7)]
    sent = [bulk_line(keys[n % 7], n) for n in range(100)]
    told = await bulk(client, *sent)
    assert [answer["line"] for answer in told] == list(range(1, 101))
    for n, answer in enumerate(told):
        assert list(answer) == ["line", "status", "ok", "key", "event_id", "stream_id", "length", "position"]
        version = n // 7 + 1
        assert (answer["status"], answer["ok"], answer["key"]) == (201, True, keys[n % 7])
        assert (answer["stream_id"], answer["length"]) == (f"{version}-0", version)
    for key in keys:
        events = await events_of(client, "order", key)
        assert [event["id"] for event in events] == [each["event_id"] for each in told if each["key"] == key]
        assert [event["data"] for event in events] == list(range(keys.index(key), 100, 7))


async def test_a_line_may_have_all_that_a_single_append_has(client: httpx.AsyncClient) -> None:
    key, event_id, causation, correlation = new_id(), new_event_id(), new_id(), new_id()
    metadata = {
        "actor": ACTOR,
        "target": {"type": "order", "id": "ABC123XYZ"},
        "previous_length": 0,
        "event_id": event_id,
        "causation_id": causation,
        "extra": {"n": 1},
    }
    line = {**bulk_line(key, {"a": 1}, idempotency_key="mine"), "metadata": metadata}
    response = await client.post(
        "/_/bulk", content=lines(line), headers={**NDJSON, "x-correlation-id": correlation}
    )
    assert response.headers["x-correlation-id"] == correlation
    assert response.json()["event_id"] == event_id
    [event] = await events_of(client, "order", key)
    assert event["data"] == {"a": 1}
    assert event["metadata"] == {
        "actor": ACTOR,
        "target": metadata["target"],
        "timestamp": event["metadata"]["timestamp"],
        "correlation_id": correlation,
        "causation_id": causation,
        "extra": {"n": 1},
        "revision": 1,
    }


async def test_keys_are_answered_in_canonical_form(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await bulk(
        client, bulk_line(key.upper()), bulk_line(key), bulk_line("abc123xyi"), bulk_line("global")
    )
    assert [answer["key"] for answer in told] == [key, key, "ABC123XY1", "global"]
    assert [answer["length"] for answer in told] == [1, 2, 1, 1]


async def test_each_line_stands_by_itself(client: httpx.AsyncClient) -> None:
    key = new_id()
    bad: list[tuple[Any, int, str, str | None]] = [
        (b"{", 400, "invalid_json", None),
        (b'{"a": NaN}', 400, "invalid_json", None),
        (b'{"key": 1, "key": 2}', 400, "invalid_json", None),
        (b"\xff", 400, "invalid_json", None),
        ([], 422, "invalid_field", None),
        ({}, 422, "missing_field", "aggregate_type"),
        (without(bulk_line(key), "key"), 422, "missing_field", "key"),
        (without(bulk_line(key), "data"), 422, "missing_field", "data"),
        (without(bulk_line(key), "metadata"), 422, "missing_field", "metadata"),
        (bulk_line(key, more=1), 422, "unknown_field", "more"),
        ({**bulk_line(key), "key": 5}, 422, "invalid_field", "key"),
        ({**bulk_line(key), "metadata": []}, 422, "invalid_field", "metadata"),
        ({**bulk_line(key), "metadata": {}}, 422, "missing_field", "metadata.actor"),
        ({**bulk_line(key), "aggregate_type": "nope"}, 404, "unknown_aggregate_type", "type"),
        ({**bulk_line(key), "type": "nope"}, 404, "unknown_event_type", "event_type"),
        ({**bulk_line(key), "type": "_nope"}, 422, "reserved_event_type", "event_type"),
        (bulk_line("nope"), 422, "invalid_identifier", "key"),
        (bulk_line(key, idempotency_key=""), 422, "invalid_field", "idempotency_key"),
        (bulk_line(key, idempotency_key="a b"), 422, "invalid_field", "idempotency_key"),
        (bulk_line(key, idempotency_key=5), 422, "invalid_field", "idempotency_key"),
        (bulk_line(key, {"total": "x"}, "was_placed"), 422, "schema_violation", "data.total"),
        (bulk_line(key, "x" * 262_144), 413, "too_large", "data"),
    ]
    sent: list[object] = []
    for n, (line, *_) in enumerate(bad):
        sent += [bulk_line(key, n), line]
    told = await bulk(client, *sent)
    for n, (_, status, code, path) in enumerate(bad):
        good, refusal = told[2 * n], told[2 * n + 1]
        assert (good["line"], good["status"], good["length"]) == (2 * n + 1, 201, n + 1)
        assert (refusal["line"], refusal["status"], refusal["ok"]) == (2 * n + 2, status, False)
        assert (refusal["code"], refusal.get("path")) == (code, path), refusal
        assert refusal["error"]
    assert len(told) == 2 * len(bad)
    assert await length_of(client, key) == len(bad)


def without(line: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in line.items() if other != name}


async def test_a_line_is_refused_as_the_single_append_is(client: httpx.AsyncClient) -> None:
    key = new_id()
    await bulk(client, bulk_line(key), bulk_line(key))
    stale = {**bulk_line(key), "metadata": {"actor": ACTOR, "previous_length": 1}}
    [told] = await bulk(client, stale)
    single = await append(client, "order", key, "was_noted", previous_length=1)
    assert told == {"line": 1, "status": 409, **single.json()}
    assert [event["version"] for event in told["missed"]] == [2]


async def test_lines_of_one_aggregate_are_appended_in_line_order(client: httpx.AsyncClient) -> None:
    key, other = new_id(), new_id()
    sent = []
    for n in range(50):
        metadata = {"actor": ACTOR, "previous_length": n}
        sent += [{**bulk_line(key, n), "metadata": metadata}, bulk_line(other, n)]
    told = await bulk(client, *sent)
    assert {answer["status"] for answer in told} == {201}
    assert [event["data"] for event in await events_of(client, "order", other)] == list(range(50))


async def test_an_empty_line_is_none(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await bulk(client, b"", bulk_line(key), b"  \t\r", b"", bulk_line(key), b"")
    assert [(answer["line"], answer["length"]) for answer in told] == [(2, 1), (5, 2)]
    assert await bulk(client) == []
    assert await bulk(client, b"", b"") == []


async def test_the_last_line_needs_no_line_break(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = lines(bulk_line(key), bulk_line(key))[:-1].replace(b"\n", b"\r\n")
    response = await client.post("/_/bulk", content=sent, headers=NDJSON)
    assert [answer["status"] for answer in told_in(response.content)] == [201, 201]


async def test_lines_may_come_in_any_pieces(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = lines(*[bulk_line(key, "é\u2028" * n) for n in range(20)])

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), 97):
            yield sent[start : start + 97]

    response = await client.post("/_/bulk", content=pieces(), headers=NDJSON)
    assert [answer["length"] for answer in told_in(response.content)] == list(range(1, 21))


async def test_an_over_long_line_is_refused_and_the_next_ones_are_not(client: httpx.AsyncClient) -> None:
    key = new_id()
    long = b" " * (1024 * 1024 + 1)
    told = await bulk(client, bulk_line(key), long, bulk_line(key), long + long, bulk_line(key))
    assert [answer["status"] for answer in told] == [201, 413, 201, 413, 201]
    assert {answer["code"] for answer in told if answer["status"] == 413} == {"too_large"}
    assert [answer["line"] for answer in told] == [1, 2, 3, 4, 5]


async def test_at_most_a_hundred_thousand_lines(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await bulk(client, *[b""] * 99_999, bulk_line(key))
    assert [(answer["line"], answer["status"]) for answer in told] == [(100_000, 201)]
    told = await bulk(client, *[b""] * 99_999, bulk_line(key), bulk_line(key), bulk_line(key))
    assert [(answer["line"], answer["status"]) for answer in told] == [(100_000, 201), (100_001, 413)]
    assert told[1]["code"] == "too_large"
    assert await length_of(client, key) == 2
    sent = lines(*[b""] * 99_999, bulk_line(key), bulk_line(key)).removesuffix(b"\n")
    last_by_itself = await client.post("/_/bulk", content=sent, headers=NDJSON)
    told = told_in(last_by_itself.content)
    assert [(answer["line"], answer["status"]) for answer in told] == [(100_000, 201), (100_001, 413)]
    assert await length_of(client, key) == 3


async def test_blank_lines_behind_the_last_of_a_hundred_thousand_are_passed_over(
    client: httpx.AsyncClient,
) -> None:
    filling, line, key = [b""] * 99_999, bulk_line(new_id()), new_id()
    told = await bulk(client, *filling, line, b"", b" \r", b"")
    assert [(answer["line"], answer["status"]) for answer in told] == [(100_000, 201)]
    told = await bulk(client, *filling, line, *[b""] * 50, bulk_line(key))
    assert [(answer["line"], answer["status"]) for answer in told] == [(100_000, 201), (100_001, 413)]
    assert await length_of(client, key) == 0


async def test_a_body_over_64_mib_is_refused_unread(gateway: Served, tenant: Account) -> None:
    head = request("POST", "/_/bulk", tenant.write, b"", content_type=b"application/x-ndjson")
    head = head.replace(b"Content-Length: 0", b"Content-Length: %d" % (64 * 1024 * 1024 + 1))
    async with connected(gateway.port) as connection:
        answer = await connection.ask(head)
    assert answer is not None
    assert (answer.status, answer.code) == (413, "too_large")


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/ndjson", ""])
async def test_any_other_media_type_is_a_415(client: httpx.AsyncClient, content_type: str) -> None:
    response = await client.post("/_/bulk", content=b"", headers={"content-type": content_type})
    refused(response, 415, "unsupported_media_type", "Content-Type")
    response = await client.post("/_/bulk", content=b"", headers={**NDJSON, "content-encoding": "gzip"})
    refused(response, 415, "unsupported_media_type", "Content-Encoding")


async def test_receipts_come_while_the_request_continues(gateway: Served, tenant: Account) -> None:
    key = new_id()
    head = request("POST", "/_/bulk", tenant.write, headers=[(b"Transfer-Encoding", b"chunked")])
    head = head.replace(b"\r\n\r\n", b"\r\nContent-Type: application/x-ndjson\r\n\r\n")
    async with connected(gateway.port) as connection:
        await connection.send(head)
        for n in range(1, 4):
            line = lines(bulk_line(key, n))
            await connection.send(b"%x\r\n%b\r\n" % (len(line), line))
            while not (told := await connection.line()).startswith(b'{"line"'):
                assert told
            assert json.loads(told)["length"] == n
        await connection.send(b"0\r\n\r\n")
        assert (await connection.line(), await connection.line()) == (b"\r\n", b"0\r\n")


async def test_a_client_that_ends_its_direction_gets_the_whole_answer(child: Child, tenant: Account) -> None:
    key = new_id()
    sent = lines(*[bulk_line(key, n) for n in range(500)])
    data = request("POST", "/_/bulk", tenant.write, sent, content_type=b"application/x-ndjson")
    async with connected(child.served.port) as connection:
        await connection.send(data)
        connection.send_no_more()
        answer = await connection.answer(b"POST")
    assert answer is not None
    assert [told["length"] for told in told_in(answer.body)] == list(range(1, 501))


async def test_http_1_0_gets_the_lines_as_they_are(gateway: Served, tenant: Account) -> None:
    sent = lines(*[bulk_line("global", n) for n in range(3)])
    data = request("POST", "/_/bulk", tenant.write, sent, content_type=b"application/x-ndjson")
    async with connected(gateway.port) as connection:
        await connection.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert [told["length"] for told in told_in(body)] == [1, 2, 3]


async def test_the_request_is_read_on_although_the_answer_is_not_read(child: Child, tenant: Account) -> None:
    """Nearly six megabytes of answers: more than the sockets between them hold."""
    key = new_id()
    refusals = [{**bulk_line("global"), "type": "x" * 60}] * 30_000
    sent = lines(bulk_line(key, "first"), *refusals, bulk_line(key, "last"))
    data = request("POST", "/_/bulk", tenant.write, sent, content_type=b"application/x-ndjson")
    async with (
        connected(child.served.port, receive_bytes=16 * 1024) as connection,
        new_client(child.served.url, tenant.read) as client,
    ):
        connection.read_no_more()
        await connection.send(data)

        async def is_there() -> bool:
            return await length_of(client, key) == 2

        await until(is_there)
        connection.read_again()
        answer = await connection.answer(b"POST")
    assert answer is not None
    told = told_in(answer.body)
    assert [each["line"] for each in told] == list(range(1, 30_003))
    assert len(answer.body) > 5_500_000


async def test_receipts_that_are_not_read_yet_take_little_memory_and_come_in_order(
    child: Child, tenant: Account
) -> None:
    keys = [new_id() for _ in range(200)]
    sent = [bulk_line(keys[n % 200], n) for n in range(20_000)]
    sent[7_000] = {**sent[7_000], "type": "was_never_declared"}
    data = request("POST", "/_/bulk", tenant.write, lines(*sent), content_type=b"application/x-ndjson")
    async with (
        connected(child.served.port, receive_bytes=16 * 1024) as connection,
        new_client(child.served.url, tenant.read) as client,
    ):
        connection.read_no_more()
        before_kb = resident_kb(child)
        await connection.send(data)

        async def is_there() -> bool:
            return await length_of(client, keys[-1]) == 100

        await until(is_there, 60)
        assert resident_kb(child) - before_kb < 25_000, "receipts of 4.6 MB, and what is under way"
        connection.read_again()
        answer = await connection.answer(b"POST")
    assert answer is not None
    told = told_in(answer.body)
    assert [each["line"] for each in told] == list(range(1, 20_001))
    assert [each["line"] for each in told if each["status"] != 201] == [7_001]
    for n, key in enumerate(keys):
        lengths = [each["length"] for each in told[n::200] if each["status"] == 201]
        assert lengths == list(range(1, len(lengths) + 1)), key


async def test_answers_that_are_not_read_yet_take_little_memory_whatever_they_say(
    child: Child, tenant: Account
) -> None:
    """What can be told at once, what has to be looked up when it is told, and what 60 MB asked for."""
    key, last = new_id(), new_id()
    told_at_once = [{**bulk_line("global"), "type": "x" * 60}] * 40_000
    repeats = [bulk_line(key, {"total": "x"}, "was_placed", idempotency_key="mine")] * 5_000
    conflicts = [
        {**bulk_line(new_id(), "x" * 250_000), "metadata": {"actor": ACTOR, "previous_length": 7}}
        for _ in range(200)
    ]
    missing = {**bulk_line(key, 2), "metadata": {"actor": ACTOR, "previous_length": 0}}
    sent = [bulk_line(key, 1), *told_at_once, *repeats, *conflicts, missing, bulk_line(last)]
    data = request("POST", "/_/bulk", tenant.write, lines(*sent), content_type=b"application/x-ndjson")
    async with (
        connected(child.served.port, receive_bytes=16 * 1024) as connection,
        new_client(child.served.url, tenant.read) as client,
    ):
        connection.read_no_more()
        with most_held(child) as held:
            await connection.send(data)

            async def is_there() -> bool:
                return await length_of(client, last) == 1

            await until(is_there)
        assert held.kb < 75_000, "of what is under way 40 MB, of answers 15"
        connection.read_again()
        answer = await connection.answer(b"POST")
    assert answer is not None
    told = told_in(answer.body)
    assert [each["line"] for each in told] == list(range(1, len(sent) + 1))
    statuses = [201, *[404] * 40_000, *[422] * 5_000, *[409] * 201, 201]
    assert [each["status"] for each in told] == statuses
    assert [event["data"] for event in told[-2]["missed"]] == [1]


async def test_large_lines_of_one_aggregate_are_read_as_they_commit(child: Child, tenant: Account) -> None:
    """One of them is on its way at a time, and none of the others may fill the memory."""
    key = new_id()
    sent = [bulk_line(key, "x" * 250_000)] * 250
    async with new_client(child.served.url, tenant.write) as client:
        with most_held(child) as held:
            told = await bulk(client, *sent)
    assert [each["length"] for each in told] == list(range(1, 251))
    assert held.kb < 75_000, "of 63 MB that were sent, at most 16 MiB are held, 2.5 times"


@dataclass(slots=True)
class Held:
    """How much more memory a process had, at most, than at the beginning."""

    kb: int = 0


@contextmanager
def most_held(child: Child) -> Iterator[Held]:
    Path(f"/proc/{child.process.pid}/clear_refs").write_text("5")  # the most starts again
    before_kb, held = resident_kb(child), Held()
    yield held
    held.kb = resident_kb(child, "VmHWM") - before_kb


def resident_kb(child: Child, which: str = "VmRSS") -> int:
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    found = re.search(f"{which}:\\s+([0-9]+) kB", status)
    assert found
    return int(found[1])


async def test_what_was_read_is_appended_although_the_client_has_gone(
    gateway: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = new_id()
    sent = lines(*[bulk_line(key, n) for n in range(50)])
    data = request("POST", "/_/bulk", tenant.write, sent, content_type=b"application/x-ndjson")
    async with connected(gateway.port) as connection:
        await connection.send(data)
        while not (await connection.line()).startswith(b'{"line":1,'):
            pass

    async def is_there() -> bool:
        return await length_of(client, key) == 50

    await until(is_there)
    assert [event["data"] for event in await events_of(client, "order", key)] == list(range(50))


async def test_several_bulk_requests_at_once_are_independent(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = [[bulk_line(key, [writer, n]) for n in range(40)] for writer in range(5)]
    told = await asyncio.gather(*(bulk(client, *each) for each in sent))
    assert {answer["status"] for each in told for answer in each} == {201}
    data = [event["data"] for event in await events_of(client, "order", key)]
    for writer in range(5):
        assert [n for who, n in data if who == writer] == list(range(40))


async def test_a_header_that_asks_something_of_one_append_is_refused(client: httpx.AsyncClient) -> None:
    """It would be ignored otherwise, and the client believe that its repeat is known again."""
    key = new_id()
    body = json.dumps(bulk_line(key, 1))
    for name, value in (
        ("Idempotency-Key", "k"),
        ("X-Idempotency-Key", "k"),
        ("If-Match", '"0"'),
        ("If-None-Match", "*"),
        ("Sluice-If-Unchanged", "skip"),
    ):
        answer = await client.post("/_/bulk", content=body, headers={**NDJSON, name: value})
        refused(answer, 400, "bad_request", name)
    assert await length_of(client, key) == 0


async def test_what_is_too_much_to_be_judged_now_is_not_overtaken_by_its_aggregate_s_later_lines(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(aside: Aside, tenant: bytes, work: object) -> object:
        raise Busy("Other heavy requests of this tenant took too long.")

    monkeypatch.setattr(bulk_api, "is_light", lambda spec, line: b"heavy" not in line)
    monkeypatch.setattr(Aside, "run", busy)
    one, two, other = new_id(), new_id(), new_id()
    event = {"aggregate_type": "order", "key": two.upper(), "type": "was_noted", "data": "heavy"}
    told = await bulk(
        client,
        bulk_line(one, "heavy"),
        bulk_line(one.upper(), 2),
        {"events": [event], "metadata": {"actor": ACTOR}},
        bulk_line(two, 4),
        bulk_line(other, 5),
    )
    assert [each["status"] for each in told] == [503, 503, 503, 503, 201]
    assert {each["code"] for each in told[:4]} == {"not_committed"}
    assert await length_of(client, one) == await length_of(client, two) == 0
