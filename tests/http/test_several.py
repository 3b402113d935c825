"""POST /_/append: events of several aggregates in one append, all or none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.relay import outbox
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    bulk,
    bulk_line,
    events_of,
    new_event_id,
    new_id,
    refused,
)


def of(key: str | None, event_type: str = "was_noted", data: object = 1, **more: Any) -> dict[str, Any]:
    named = {} if key is None else {"key": key}
    return {"aggregate_type": "order", **named, "type": event_type, "data": data, **more}


def body(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"events": list(events), "metadata": {"actor": ACTOR}, **more}


async def done(client: httpx.AsyncClient, *events: dict[str, Any], **headers: str) -> dict[str, Any]:
    response = await client.post("/_/append", json=body(*events), headers=headers)
    assert response.status_code == 201, response.text
    told: dict[str, Any] = response.json()
    return told


async def test_the_receipt_says_where_each_event_is(client: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()
    await appended(client, "order", two, "was_noted", 0)
    told = await done(client, of(one), of(two, previous_length=1), of(one, data={"b": 2}))
    assert list(told) == ["ok", "position", "count", "events"]
    assert told["count"] == 3
    assert [list(each) for each in told["events"]] == [
        ["aggregate_type", "key", "event_id", "stream_id", "length"]
    ] * 3
    assert [(each["key"], each["stream_id"], each["length"]) for each in told["events"]] == [
        (one, "1-0", 1),
        (two, "2-0", 2),
        (one, "2-0", 2),
    ]
    assert [event["id"] for event in await events_of(client, "order", one)] == [
        told["events"][0]["event_id"],
        told["events"][2]["event_id"],
    ]
    fed = (await client.get("/_/feed")).json()["events"]
    assert [event["id"] for event in fed[-3:]] == [each["event_id"] for each in told["events"]]
    assert fed[-1]["position"] == told["position"]


async def test_of_one_aggregate_it_is_answered_alike(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await done(client, of(key, previous_length=0), of(key))
    assert [(each["aggregate_type"], each["length"]) for each in told["events"]] == [
        ("order", 1),
        ("order", 2),
    ]


async def test_without_a_key_each_event_is_of_a_new_aggregate(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await done(client, of(None), of(key), of(None, previous_length=0), **{"idempotency-key": "k"})
    keys = [each["key"] for each in told["events"]]
    assert keys[1] == key
    assert len(set(keys)) == 3
    assert [each["length"] for each in told["events"]] == [1, 1, 1]
    refusal = await client.post("/_/append", json=body(of(None, previous_length=1)))
    refused(refusal, 422, "invalid_field", "events[0].previous_length")


async def test_a_conflict_of_one_aggregate_refuses_all_and_shows_what_was_missed(
    client: httpx.AsyncClient,
) -> None:
    one, two = new_id(), new_id()
    await appended(client, "order", two, "was_noted", "missed")
    sent = body(of(one), of(two, previous_length=0), of(one))
    response = await client.post("/_/append", json=sent)
    more = ("length", "missed", "missed_next")
    told = refused(response, 409, "version_conflict", "events[1].previous_length", more)
    assert (told["length"], [event["data"] for event in told["missed"]]) == (1, ["missed"])
    response = await client.post("/_/append", json=sent, headers={"prefer": "return=minimal"})
    refused(response, 409, "version_conflict", "events[1].previous_length", ("length",))
    assert (await client.get(f"/order/{one}/length")).json()["length"] == 0


async def test_a_repeat_is_answered_with_the_original_receipt(client: httpx.AsyncClient) -> None:
    sent = body(of(new_id()), of(None), of(new_id(), event_id=new_event_id()))
    headers = {"idempotency-key": "transfer-1"}
    first = await client.post("/_/append", json=sent, headers=headers)
    again = await client.post("/_/append", json=sent, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    found = await client.get("/_/receipts", params={"idempotency_key": "transfer-1"})
    assert found.json() == first.json()
    for each in first.json()["events"]:
        found = await client.get("/_/receipts", params={"event_id": each["event_id"]})
        assert found.json() == first.json()
    other = body(of(new_id()))
    told = refused(await client.post("/_/append", json=other, headers=headers), 422, "idempotency_mismatch")
    assert told["receipt"] == first.json()


async def test_an_event_may_have_a_target_of_its_own(client: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()
    everywhere, own = {"type": "order", "id": "global"}, {"type": "order", "id": "ABC123XYZ"}
    sent = body(of(one), of(two, target=own))
    sent["metadata"] |= {"target": everywhere, "extra": {"note": 1}}
    assert (await client.post("/_/append", json=sent)).status_code == 201
    for key, target in ((one, everywhere), (two, own)):
        (event,) = await events_of(client, "order", key)
        assert (event["metadata"]["target"], event["metadata"]["extra"]) == (target, {"note": 1})


KEY = "a0000000-0000-4000-a000-000000000001"


@pytest.mark.parametrize(
    ("sent", "status", "code", "path"),
    [
        (body(of(KEY), of("nothing", "_was_noted")), 422, "reserved_event_type", "events[1].type"),
        (body(of(KEY), {**of(KEY), "aggregate_type": "ordr"}), 404, "unknown_aggregate_type",
         "events[1].aggregate_type"),
        (body(of(KEY), of("nothing", "was_lost")), 422, "unknown_event_type", "events[1].type"),
        (body(of(KEY), of("nothing")), 422, "invalid_identifier", "events[1].key"),
        (body(of(KEY), of("@NONE-1")), 404, "unknown_alias", "events[1].key"),
        ({"metadata": {"actor": ACTOR}}, 422, "missing_field", "events"),
        ({"events": [{"aggregate_type": "order", "type": "was_noted"}], "metadata": {"actor": ACTOR}}, 422,
         "missing_field", "events[0].data"),
        (body(of(KEY, spare=1)), 422, "unknown_field", "events[0].spare"),
        ({**body(of(KEY)), "metadata": {"actor": ACTOR, "previous_length": 0}}, 422, "unknown_field",
         "metadata.previous_length"),
        (body(), 422, "invalid_field", "events"),
        (body(of(KEY, previous_length=-1)), 422, "invalid_field", "events[0].previous_length"),
        (body(of(KEY, event_id="1")), 422, "invalid_field", "events[0].event_id"),
        (body(of(KEY), of(KEY, previous_length=1)), 422, "contradiction", "events[1].previous_length"),
        (body(of(KEY), of(KEY.upper(), previous_length=1)), 422, "contradiction",
         "events[1].previous_length"),
        (body(*[of(None) for _ in range(101)]), 422, "invalid_field", "events"),
        (body(of(KEY), of(KEY, target={"type": "none", "id": "global"})), 422, "unknown_target_type",
         "events[1].target.type"),
        (body(of(KEY), of(KEY, target={"type": "order", "id": "x"})), 422, "invalid_identifier",
         "events[1].target.id"),
        (body(of(KEY), of(KEY, "was_placed", {"total": -1})), 422, "schema_violation",
         "events[1].data.total"),
    ],
)  # fmt: skip
async def test_refusals_name_the_event(
    client: httpx.AsyncClient, sent: dict[str, Any], status: int, code: str, path: str
) -> None:
    refused(await client.post("/_/append", json=sent), status, code, path)


async def test_an_event_may_name_a_source_in_place_of_a_key(client: httpx.AsyncClient) -> None:
    scope = new_id()
    one, two = [{"source": "xliff", "scope": scope, "id": each} for each in ("tu1", 2)]
    sent = body(of(None, source=one), of(None, source=two), of(None, source=one), of(None, source=None))
    headers = {"idempotency-key": new_id()}
    told = [(await client.post("/_/append", json=sent, headers=headers)) for _ in range(2)]
    keys = [each["key"] for each in told[0].json()["events"]]
    assert (keys[0], len(set(keys))) == (keys[2], 3)
    assert (told[1].json(), told[1].headers["idempotency-replayed"]) == (told[0].json(), "true")
    found = (await client.get(f"/_/sources/xliff/{scope}/2")).json()
    assert (found["key"], found["aggregate_type"]) == (keys[1], "order")
    lines = await bulk(client, body(of(None, source=two, previous_length=1)))
    assert [(each["status"], each["events"][0]["key"]) for each in lines] == [(201, keys[1])]
    for event, code, path in (
        (of(keys[0], source=one), "contradiction", "events[0].source"),
        (of(None, source={"id": "x"}), "missing_field", "events[0].source.source"),
        (of(None, source="tu1"), "invalid_field", "events[0].source"),
        (
            {**of(None, source=one), "aggregate_type": "ordr"},
            "unknown_aggregate_type",
            "events[0].aggregate_type",
        ),
    ):
        answer = await client.post("/_/append", json=body(event))
        refused(answer, answer.status_code, code, path)
        (line,) = await bulk(client, body(event))
        assert (line["code"], line["path"]) == (code, path)


async def test_lengths_are_not_asked_for_by_headers(client: httpx.AsyncClient) -> None:
    for headers, path in (
        ({"if-match": '"1"'}, "If-Match"),
        ({"if-none-match": "*"}, "If-None-Match"),
        ({"if-match": "1"}, "If-Match"),
        ({"if-none-match": "1"}, "If-None-Match"),
        ({"if-none-match": "*", "if-match": "*"}, "If-Match"),
    ):
        answer = await client.post("/_/append", json=body(of(KEY)), headers=headers)
        refused(answer, 400, "bad_request", path)


async def test_no_record_is_skipped_for_a_header(client: httpx.AsyncClient) -> None:
    """A header that was passed over would write what its sender asked not to write."""
    for value in ("skip", "sometimes"):
        headers = {"sluice-if-unchanged": value}
        answer = await client.post("/_/append", json=body(of(KEY)), headers=headers)
        refused(answer, 400, "bad_request", "Sluice-If-Unchanged")


async def test_it_is_told_whose_the_system_s_actors_are(client: httpx.AsyncClient) -> None:
    actor = {"type": "system_saga", "id": "saga_coordinator"}
    sent = {"events": [of(None)], "metadata": {"actor": actor}}
    answer = await client.post("/_/append", json=sent)
    told = refused(answer, 422, "unknown_actor_type", "metadata.actor.type")
    assert "are the gateway's own parts" in told["error"]


async def test_a_field_that_is_unknown_is_told_with_all_that_are_known(client: httpx.AsyncClient) -> None:
    answer = await client.post("/_/append", json=body(of(None, sorce={"id": "1"})))
    told = refused(answer, 422, "unknown_field", "events[0].sorce")
    assert told["error"] == "`events[0].sorce` is not a field (did you mean `source`?)."


async def test_what_contradicts_a_header_comes_after_names(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "a b"}
    sent = body(of("nothing"))
    refused(
        await client.post("/_/append", json=sent, headers=headers), 422, "invalid_identifier", "events[0].key"
    )
    refused(
        await client.post("/_/append", json=body(of(KEY, spare=1)), headers=headers),
        422, "invalid_field", "Idempotency-Key",
    )  # fmt: skip


async def test_one_of_many_that_ask_for_the_same_length_is_appended(client: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()
    await append(client, "order", one, "was_noted", 0)
    sent = [
        body(of(one, previous_length=1), of(two)) if n % 2 else body(of(two), of(one, previous_length=1))
        for n in range(20)
    ]
    answers = await asyncio.gather(*(client.post("/_/append", json=each) for each in sent))
    assert sorted(each.status_code for each in answers) == [201] + [409] * 19
    assert (await client.get(f"/order/{two}/length")).json()["length"] == 1


# -- conditions


def unless(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"fail_if_events_match": {"items": list(items)}, **more}


async def test_a_condition_refuses_what_a_committed_event_contradicts(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await appended(client, "order", key, "was_noted", "first")
    own = {"tags": [f"order:{key}"]}
    sent = body(of(new_id()), of(new_id()), condition=unless(own))
    response = await client.post("/_/append", json=sent)
    told = refused(response, 409, "condition_failed", "condition", ("matched", "matched_next", "position"))
    assert [event["data"] for event in told["matched"]] == ["first"]
    assert told["matched"][0]["position"] == first["position"]
    assert told["matched_next"] is None
    again = body(of(new_id()), condition=unless(own, after=told["position"]))
    assert (await client.post("/_/append", json=again)).status_code == 201
    response = await client.post("/_/append", json=sent, headers={"prefer": "return=minimal"})
    refused(response, 409, "condition_failed", "condition", ("position",))


async def test_a_refusal_by_many_events_says_where_to_read_on(client: httpx.AsyncClient) -> None:
    key = new_id()
    await done(client, *(of(key, data=n) for n in range(130)))
    query = {"items": [{"tags": [f"order:{key}"], "types": ["order.was_noted"]}]}
    sent = body(of(new_id()), condition={"fail_if_events_match": query})
    told = (await client.post("/_/append", json=sent)).json()
    assert [event["data"] for event in told["matched"]] == list(range(100))
    rest = await client.post("/_/feed/query", params={"after": told["matched_next"]}, json=query)
    assert [event["data"] for event in rest.json()["events"]] == list(range(100, 130))
    sent["condition"]["after"] = told["matched_next"]
    more = (await client.post("/_/append", json=sent)).json()
    assert [event["data"] for event in more["matched"]] == list(range(100, 130))
    assert more["matched_next"] is None
    sent["condition"]["after"] = told["position"]
    assert (await client.post("/_/append", json=sent)).status_code == 201


async def test_the_first_of_several_faults_is_told(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", 1)
    condition = unless({"tags": [f"order:{key}"]})
    sent = body(of(key, previous_length=5), condition=condition)
    told = (await client.post("/_/append", json=sent)).json()
    assert told["code"] == "version_conflict"
    headers = {"idempotency-key": "once"}
    sent = body(of(new_id()), of(key), condition=unless({"tags": ["order:global"]}))
    first = await client.post("/_/append", json=sent, headers=headers)
    assert first.status_code == 201
    sent["condition"] = unless({"tags": [f"order:{key}"]})
    told = (await client.post("/_/append", json=sent, headers=headers)).json()
    assert told["code"] == "idempotency_mismatch"


@pytest.mark.parametrize(
    ("condition", "status", "code", "path"),
    [
        (5, 422, "invalid_field", "condition"),
        ({}, 422, "missing_field", "condition.fail_if_events_match"),
        (unless(spare=1), 422, "unknown_field", "condition.spare"),
        (unless(), 422, "invalid_field", "condition.fail_if_events_match.items"),
        (unless({}), 422, "invalid_field", "condition.fail_if_events_match.items[0]"),
        (unless({"tags": ["ordr:1"]}), 422, "unknown_tag",
         "condition.fail_if_events_match.items[0].tags[0]"),
        (unless({"types": ["order.was_lost"]}), 422, "unknown_event_type",
         "condition.fail_if_events_match.items[0].types[0]"),
        (unless({"tags": ["order:1"]}, after=1), 422, "invalid_field", "condition.after"),
        (unless({"tags": ["order:1"]}, after="nowhere"), 400, "invalid_position", "condition.after"),
        (unless({"tags": ["order:1"]}, after="AQABAAAAAAAAAAF2MsH7"), 400, "invalid_position",
         "condition.after"),
    ],
)  # fmt: skip
async def test_conditions_that_mean_nothing_are_refused(
    client: httpx.AsyncClient, condition: Any, status: int, code: str, path: str
) -> None:
    sent = {**body(of(KEY)), "condition": condition}
    refused(await client.post("/_/append", json=sent), status, code, path)


# -- lines of /_/bulk


async def test_a_line_may_be_such_a_body(client: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()
    told = await bulk(
        client,
        bulk_line(one, "first"),
        body(of(one, previous_length=1), of(two), idempotency_key="line-1"),
        bulk_line(two, "third"),
        body(of(two, previous_length=1), of(one)),
        body(of(one), condition=unless({"tags": [f"order:{two}"]})),
        body(of(one), of(one, previous_length=1)),
        body(of(one, spare=1)),
        bulk_line(one, "last"),
    )
    assert [each["status"] for each in told] == [201, 201, 201, 409, 409, 422, 422, 201]
    assert [each["length"] for each in told[1]["events"]] == [2, 1]
    assert (told[0]["length"], told[2]["length"], told[7]["length"]) == (1, 2, 3)
    assert (told[3]["code"], told[3]["path"]) == ("version_conflict", "events[0].previous_length")
    assert [event["data"] for event in told[3]["missed"]] == ["third"]
    assert (told[4]["code"], len(told[4]["matched"])) == ("condition_failed", 2)
    assert (told[5]["code"], told[6]["code"]) == ("contradiction", "unknown_field")
    (again,) = await bulk(client, body(of(one, previous_length=1), of(two), idempotency_key="line-1"))
    assert again == {**told[1], "line": 1, "replayed": True}


async def test_a_line_waits_for_the_lines_before_it_of_all_its_aggregates(client: httpx.AsyncClient) -> None:
    keys = [new_id() for _ in range(3)]
    sent = [
        bulk_line(keys[n % 3], n) if n % 2 else body(of(keys[n % 3], data=n), of(keys[(n + 1) % 3], data=n))
        for n in range(60)
    ]
    told = await bulk(client, *sent)
    assert [each["status"] for each in told] == [201] * 60
    for key in keys:
        data = [event["data"] for event in await events_of(client, "order", key)]
        assert data == sorted(data)


async def test_a_page_of_the_feed_ends_between_two_appends(client: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()
    sizes = [400, 400, 400, 700]
    for size in sizes:
        await done(client, *(of(one if n % 2 else two, data=n) for n in range(size)))
    counts, after = [], "beginning"
    while sum(counts) < sum(sizes):
        page = (await client.get("/_/feed", params={"after": after})).json()
        counts.append(len(page["events"]))
        after = page["position"]
    assert counts == [800, 400, 700]
    page = (await client.get("/_/feed", params={"limit": "1000"})).json()
    assert (len(page["events"]), page["caught_up"]) == (1000, False)


@pytest.mark.parametrize("extra", ['{"$identity":{"content":"x"},"$extra":1}', '{"$identity":7}', '{"b":1}'])
async def test_an_extra_that_looks_like_a_record_is_kept_as_it_was_sent(
    client: httpx.AsyncClient, extra: str
) -> None:
    key = new_id()
    sent = body(of(key))
    sent["metadata"]["extra"] = {"mark": 1}
    text = json.dumps(sent).replace('{"mark": 1}', extra)
    told = await client.post("/_/append", content=text, headers={"content-type": "application/json"})
    assert told.status_code == 201, told.text
    (event,) = await events_of(client, "order", key)
    assert event["metadata"]["extra"] == json.loads(extra)
    assert "identity" not in event["metadata"]


async def test_a_page_that_ends_with_its_search_ends_between_two_appends(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "STRETCH", 5)
    monkeypatch.setattr(outbox, "SEARCH_S", -1.0)
    begun = await done(client, of(new_id()))
    for _ in range(3):
        await done(client, *(of(new_id(), data=n) for n in range(4)))
    first = (await client.get("/_/feed", params={"after": begun["position"]})).json()
    assert (len(first["events"]), first["caught_up"]) == (4, False)
    second = (await client.get("/_/feed", params={"after": first["position"]})).json()
    assert [event["data"] for event in second["events"]] == [0, 1, 2, 3]
