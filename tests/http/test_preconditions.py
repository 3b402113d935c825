"""previous_length, skip_occ, If-Match, If-None-Match; and the 409 that brings what was missed."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.support.calls import append, appended, batch, events_of, length_of, new_id, noted, refused

CONFLICT = ("length", "missed", "missed_next")


async def test_previous_length_appends_only_at_exactly_that_length(client: httpx.AsyncClient) -> None:
    key = new_id()
    for length in range(3):
        receipt = await appended(client, "order", key, "was_noted", length, previous_length=length)
        assert receipt["length"] == length + 1
    for wrong in (0, 1, 2, 4, 2**63 - 1):
        response = await append(client, "order", key, "was_noted", previous_length=wrong)
        refused(response, 409, "version_conflict", more=CONFLICT)
    assert await length_of(client, key) == 3


async def test_a_conflict_brings_what_the_caller_missed(client: httpx.AsyncClient) -> None:
    key = new_id()
    for n in range(1, 7):
        await appended(client, "order", key, "was_placed", {"n": n})
    response = await append(client, "order", key, "was_placed", previous_length=4)
    told = refused(response, 409, "version_conflict", more=CONFLICT)
    assert told["error"] == "Concurrent write detected. Stream has 6 events, expected 4."
    assert (told["length"], told["missed_next"]) == (6, None)
    assert told["missed"] == (await events_of(client, "order", key))[4:]
    assert await length_of(client, key) == 6


async def test_nothing_is_missed_by_a_caller_who_is_ahead(client: httpx.AsyncClient) -> None:
    key = new_id()
    for length in (0, 2):
        if length:
            await noted(client, key, length)
        for expected in (length + 3, 2**63 - 1):
            response = await append(client, "order", key, "was_noted", previous_length=expected)
            told = refused(response, 409, "version_conflict", more=CONFLICT)
            assert told["error"].endswith(f", expected {expected}.")
            assert (told["length"], told["missed"], told["missed_next"]) == (length, [], None)


async def test_at_most_a_hundred_missed_events_come_at_once(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 150)
    told = (await append(client, "order", key, "was_noted", previous_length=20)).json()
    assert [event["version"] for event in told["missed"]] == list(range(21, 121))
    assert told["missed_next"] == 121
    page = (await client.get(f"/order/{key}/events?from={told['missed_next']}")).json()
    assert [event["version"] for event in page["events"]] == list(range(121, 151))
    told = (await append(client, "order", key, "was_noted", previous_length=50)).json()
    assert (len(told["missed"]), told["missed_next"]) == (100, None)


async def test_at_most_256_kib_of_missed_events_come_at_once(client: httpx.AsyncClient) -> None:
    key, data = new_id(), "x" * 100_000
    for _ in range(4):
        await appended(client, "order", key, "was_noted", data)
    told = (await append(client, "order", key, "was_noted", previous_length=0)).json()
    assert [event["version"] for event in told["missed"]] == [1, 2]
    assert told["missed_next"] == 3
    assert len(json.dumps(told["missed"])) <= 256 * 1024
    told = (await append(client, "order", key, "was_noted", previous_length=2)).json()
    assert ([event["version"] for event in told["missed"]], told["missed_next"]) == ([3, 4], None)


def missed_in(response: httpx.Response) -> bytes:
    """As it was sent, with its brackets."""
    return response.content.partition(b'"missed":')[2].partition(b',"missed_next"')[0]


async def test_what_was_missed_may_fill_256_kib_to_the_byte(client: httpx.AsyncClient) -> None:
    async def after(*sizes: int) -> httpx.Response:
        key = new_id()
        for size in sizes:
            await appended(client, "order", key, "was_noted", "x" * size)
        return await append(client, "order", key, "was_noted", previous_length=0)

    left = 256 * 1024 - len(missed_in(await after(100_000, 100_000)))
    full = await after(100_000, 100_000 + left)
    assert (len(missed_in(full)), full.json()["missed_next"]) == (256 * 1024, None)
    assert (await after(100_000, 100_001 + left)).json()["missed_next"] == 2


async def test_an_event_too_large_to_be_brought_along_is_named(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", "x" * (256 * 1024 - 2))
    response = await append(client, "order", key, "was_noted", previous_length=0)
    told = refused(response, 409, "version_conflict", more=CONFLICT)
    assert (told["length"], told["missed"], told["missed_next"]) == (1, [], 1)


async def test_return_minimal_leaves_out_what_was_missed(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 2)
    for prefer in ("return=minimal", 'return="minimal"', "Return=Minimal", "wait=10, return=minimal"):
        response = await append(
            client, "order", key, "was_noted", None, {"prefer": prefer}, previous_length=1
        )
        assert refused(response, 409, "version_conflict", more=("length",))["length"] == 2
    for prefer in ("return=representation", "nonsense", "minimal"):
        response = await append(
            client, "order", key, "was_noted", None, {"prefer": prefer}, previous_length=1
        )
        refused(response, 409, "version_conflict", more=CONFLICT)


async def test_skip_occ_true_is_no_check(client: httpx.AsyncClient) -> None:
    key = new_id()
    for skip_occ in (True, False, None):
        await appended(client, "order", key, "was_noted", skip_occ=skip_occ)
    await appended(client, "order", key, "was_noted", skip_occ=False, previous_length=3)
    response = await append(client, "order", key, "was_noted", skip_occ=True, previous_length=4)
    refused(response, 422, "invalid_field", "metadata.skip_occ")


async def test_if_match_says_the_same_as_previous_length(client: httpx.AsyncClient) -> None:
    key = new_id()
    for length, form in ((0, '"0"'), (1, '"1"'), (2, '"2.r1"'), (3, '"3.r77"')):
        response = await append(client, "order", key, "was_noted", None, {"if-match": form})
        assert response.json()["length"] == length + 1
    for form in ('"3"', '"5.r1"', '"0"'):
        response = await append(client, "order", key, "was_noted", None, {"if-match": form})
        told = refused(response, 409, "version_conflict", more=CONFLICT)
        assert told["length"] == 4


async def test_the_etag_of_every_answer_is_a_valid_if_match(client: httpx.AsyncClient) -> None:
    key = new_id()
    etag = (await append(client, "order", key, "was_placed")).headers["etag"]
    response = await append(client, "order", key, "was_placed", None, {"if-match": etag})
    assert (response.status_code, response.headers["etag"]) == (201, '"2"')
    etag = (await client.get(f"/order/{key}")).headers["etag"]
    response = await append(client, "order", key, "was_placed", None, {"if-match": etag})
    assert (response.status_code, response.headers["etag"]) == (201, '"3"')


async def test_if_match_star_asks_for_at_least_one_event(client: httpx.AsyncClient) -> None:
    key = new_id()
    response = await append(client, "order", key, "was_noted", None, {"if-match": "*"})
    told = refused(response, 409, "version_conflict", more=CONFLICT)
    assert (told["length"], told["missed"], told["missed_next"]) == (0, [], None)
    await appended(client, "order", key, "was_noted")
    for _ in range(2):
        await appended(client, "order", key, "was_noted", None, {"if-match": "*"})
    assert await length_of(client, key) == 3


async def test_if_none_match_star_asks_for_an_empty_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", None, {"if-none-match": "*"})
    response = await append(client, "order", key, "was_noted", None, {"if-none-match": "*"})
    told = refused(response, 409, "version_conflict", more=CONFLICT)
    assert (told["length"], len(told["missed"]), told["missed_next"]) == (1, 1, None)


@pytest.mark.parametrize(
    "form",
    [
        *('W/"1"', 'w/"1"', "1", '"1", "2"', '"1","1"', '*, "1"', "**", "", '""', '"1', "'1'"),
        *('"a"', '"-1"', '"01"', '"1.5"', '"1.r"', '"1.r-1"', '"1 "', '" 1"', '"9223372036854775808"'),
    ],
)
async def test_any_other_form_of_if_match_is_refused(client: httpx.AsyncClient, form: str) -> None:
    for path in ("/order/global/was_noted", "/order/global", "/order"):
        body = batch(("was_noted", 1)) if path.count("/") < 3 else {"data": 1, "metadata": {}}
        response = await client.post(path, json=body, headers={"if-match": form})
        refused(response, 422, "invalid_field", "If-Match")


@pytest.mark.parametrize("form", ['"1"', 'W/"1"', "1", "", '*, "1"', "**"])
async def test_any_other_form_of_if_none_match_is_refused(client: httpx.AsyncClient, form: str) -> None:
    response = await append(client, "order", "global", "was_noted", None, {"if-none-match": form})
    refused(response, 422, "invalid_field", "If-None-Match")


async def test_a_header_given_twice_is_a_list(client: httpx.AsyncClient) -> None:
    for name, path in (("if-match", "If-Match"), ("idempotency-key", "Idempotency-Key")):
        response = await client.post(
            "/order/global/was_noted",
            json={"data": 1, "metadata": {}},
            headers=[(name, '"1"'), (name, '"2"')],
        )
        refused(response, 422, "invalid_field", path)


@pytest.mark.parametrize(
    ("headers", "metadata", "path"),
    [
        ({"if-match": '"1"'}, {"previous_length": 2}, "If-Match"),
        ({"if-match": '"1"'}, {"skip_occ": True}, "If-Match"),
        ({"if-match": "*"}, {"previous_length": 0}, "If-Match"),
        ({"if-match": "*"}, {"skip_occ": True}, "If-Match"),
        ({"if-match": '"1"', "if-none-match": "*"}, {}, "If-Match"),
        ({"if-match": "*", "if-none-match": "*"}, {}, "If-Match"),
        ({"if-none-match": "*"}, {"previous_length": 1}, "If-None-Match"),
        ({"if-none-match": "*"}, {"skip_occ": True}, "If-None-Match"),
    ],
)
async def test_preconditions_that_contradict_each_other_are_refused(
    client: httpx.AsyncClient, headers: dict[str, str], metadata: dict[str, object], path: str
) -> None:
    await appended(client, "order", "global", "was_noted")
    response = await append(client, "order", "global", "was_noted", None, headers, **metadata)
    refused(response, 422, "invalid_field", path)
    assert await length_of(client, "global") == 1


async def test_preconditions_that_agree_are_one(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", None, {"if-none-match": "*"}, previous_length=0)
    await appended(client, "order", key, "was_noted", None, {"if-match": '"1"'}, previous_length=1)
    await appended(client, "order", key, "was_noted", None, {"if-match": "*"}, previous_length=2)
    await appended(client, "order", new_id(), "was_noted", None, {"if-match": '"0"', "if-none-match": "*"})


async def test_of_concurrent_writers_at_one_length_one_wins(client: httpx.AsyncClient) -> None:
    key = new_id()
    for length in range(3):
        writes = [append(client, "order", key, "was_noted", n, previous_length=length) for n in range(20)]
        answers = await asyncio.gather(*writes)
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19
        for answer in answers:
            if answer.status_code == 409:
                told = refused(answer, 409, "version_conflict", more=CONFLICT)
                assert told["length"] == length + 1
                assert [event["version"] for event in told["missed"]] == [length + 1]
