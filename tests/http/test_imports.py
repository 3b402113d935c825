"""POST /_/import: records become events where they say something new."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC, open_account
from tests.support.calls import events_of, new_client, refused
from tests.support.serving import Served

TITLE = {"schema": {"properties": {"title": {"type": "string"}}}}
SMALL = {"lt": ["$.data.count", 10]}
DECLARED: dict[str, Any] = {
    **SPEC,
    "aggregate_types": {
        "issue": {"events": {"was_seen": TITLE}},
        "part": {"events": {"was_seen": {**TITLE, "rules": [{"require": SMALL, "error": "Too many."}]}}},
        "task": {
            "identity": {"content": {"json": ["$.data.title"]}},
            "events": {"was_seen": TITLE, "was_noted": TITLE},
        },
        "block": {
            "mint": "content",
            "identity": {"content": {"text": "$.data.title"}},
            "events": {"was_seen": TITLE},
        },
        "order": SPEC["aggregate_types"]["order"],
    },
}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, (await open_account(outbox, DECLARED)).admin) as client:
        yield client


async def imported(client: httpx.AsyncClient, *records: object, **more: object) -> list[dict[str, Any]]:
    response = await client.post(
        "/_/import",
        params={"type": "issue", "event": "was_seen", "ref": "id", **more},
        content="\n".join(json.dumps(each) for each in records),
        headers=NDJSON,
    )
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def results(told: list[dict[str, Any]]) -> list[str]:
    assert all(each.get("ok") for each in told), told
    return [each["result"] for each in told]


def keys(told: list[dict[str, Any]]) -> list[str]:
    return [each["key"] for each in told]


@pytest.mark.parametrize("kind", ["issue", "task"])
async def test_records_are_imported_once_and_edits_and_renames_are_found(
    client: httpx.AsyncClient, kind: str
) -> None:
    records = {"id": "a", "title": "A"}, {"id": 7, "title": "B"}, {"title": "C"}
    would = await imported(client, *records, type=kind, dry_run=True)
    assert [(each["result"], each["key"]) for each in would] == [("new", None)] * 3
    first = await imported(client, *records, type=kind)
    assert [(each["line"], each["status"], each["result"]) for each in first] == [
        (1, 201, "new"), (2, 201, "new"), (3, 201, "new"),
    ]  # fmt: skip
    again = await imported(client, *records, type=kind)
    assert results(again) == ["unchanged"] * 3
    assert keys(again) == keys(first)

    moved = {"id": "a", "title": "A2"}, {"id": "b", "title": "B"}, {"id": "c", "title": "C"}
    for more in ({"dry_run": True}, {}):
        told = await imported(client, *moved, type=kind, **more)
        assert results(told) == ["edited", "renamed", "linked"]
        assert [each.get("was") for each in told] == [None, "7", None]
        assert keys(told) == keys(first)
    assert results(await imported(client, *moved, type=kind)) == ["unchanged"] * 3
    events = await events_of(client, kind, keys(first)[0])
    assert [each["data"] for each in events] == [{"title": "A"}, {"title": "A2"}]
    assert events[1]["id"] == told[0]["event_id"]
    assert [len(await events_of(client, kind, key)) for key in keys(first)[1:]] == [1, 1]


async def test_equal_contents_under_two_refs_stay_two_in_any_order_and_in_any_requests(
    client: httpx.AsyncClient,
) -> None:
    a, b = {"id": "a", "title": "Same"}, {"id": "b", "title": "Same"}
    (of_a,) = keys(await imported(client, a))
    told = await imported(client, b, a)
    assert results(told) == ["new", "unchanged"]
    assert told[1]["key"] == of_a != told[0]["key"]
    for order in ((a, b), (b, a)):
        assert results(await imported(client, *order)) == ["unchanged"] * 2
    c, run = {"id": "c", "title": "Same"}, str(uuid4())
    assert await imported(client, {"id": "c"}, a, b, **{"import": run}, only_refs=True) == []
    parts = [await imported(client, each, **{"import": run}) for each in (c, a, b)]
    assert [results(each) for each in parts] == [["new"], ["unchanged"], ["unchanged"]]
    renamed = await imported(client, {"id": "d", "title": "Same"})
    assert results(renamed) == ["renamed"]
    assert renamed[0]["was"] in ("a", "b", "c")


async def test_many_senders_of_one_file_write_each_record_once(client: httpx.AsyncClient) -> None:
    file = [{"id": n, "title": f"T{n % 5}"} for n in range(20)] + [{"title": f"T{n}"} for n in range(8)]
    told = await asyncio.gather(*[imported(client, *file[n:], *file[:n]) for n in range(0, 28, 4)])
    found = {
        json.dumps(file[(each["line"] - 1 + 4 * n) % 28]): each["key"]
        for n, several in enumerate(told)
        for each in several
    }
    for n, several in enumerate(told):
        results(several)
        assert all(
            found[json.dumps(file[(each["line"] - 1 + 4 * n) % 28])] == each["key"] for each in several
        )
    again = await imported(client, *file)
    assert set(results(again)) == {"unchanged"}
    assert {len(await events_of(client, "issue", key)) for key in set(keys(again))} == {1}


async def test_a_record_whose_event_is_there_but_not_noted_is_not_written_again(
    client: httpx.AsyncClient, outbox: asyncpg.Pool
) -> None:
    first = await imported(client, {"id": "a", "title": "A"}, {"title": "B"})
    await imported(client, {"id": "a", "title": "A2"})
    # As after a kill between the two.
    await outbox.execute("UPDATE imported SET appended = false WHERE key = ANY ($1)", keys(first))
    again = await imported(client, {"id": "a", "title": "A2"}, {"title": "B"})
    assert results(again) == ["edited", "new"]
    assert keys(again) == keys(first)
    assert [len(await events_of(client, "issue", key)) for key in keys(first)] == [2, 1]
    assert results(await imported(client, {"id": "a", "title": "A2"}, {"title": "B"})) == ["unchanged"] * 2


async def test_what_others_append_is_not_undone_and_does_not_hinder_an_edit(
    client: httpx.AsyncClient,
) -> None:
    (key,) = keys(await imported(client, {"id": "a", "title": "A"}))
    said = {"data": {"title": "mine"}, "metadata": {"actor": {"type": "user", "id": "global"}}}
    assert (await client.post(f"/issue/{key}/was_seen", json=said)).status_code == 201
    assert results(await imported(client, {"id": "a", "title": "A"})) == ["unchanged"]
    assert results(await imported(client, {"id": "a", "title": "A2"})) == ["edited"]
    titles = [each["data"]["title"] for each in await events_of(client, "issue", key)]
    assert titles == ["A", "mine", "A2"]


async def test_the_importer_acts_unless_an_actor_is_named(client: httpx.AsyncClient) -> None:
    told = await imported(client, {"id": "a", "title": "A"})
    told += await imported(client, {"id": "b", "title": "B"}, actor="user:global")
    actors = [(await events_of(client, "issue", key))[0]["metadata"]["actor"] for key in keys(told)]
    assert actors[0] == {"type": "system_importer", "id": "test_data_importer"}
    assert actors[1] == {"type": "user", "id": "global"}
    fed = (await client.get("/_/feed?actor=system_importer:test_data_importer")).json()["events"]
    assert [event["id"] for event in fed] == [told[0]["event_id"]]
    refused(await client.get("/_/feed?actor=system_importer:nobody"), 422, "invalid_identifier", "actor")
    for actor, code in (
        ("robot:global", "unknown_actor_type"),
        ("system_importer:test_data_importer", "unknown_actor_type"),
    ):
        (line,) = await imported(client, {"id": "c", "title": "C"}, actor=actor)
        assert line["code"] == code


async def test_a_record_that_a_rule_refuses_may_come_again(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        (told,) = await imported(client, {"id": "a", "count": 12}, type="part")
        assert (told["code"], told["path"]) == ("rule_violated", "rules[0]")
        assert results(await imported(client, {"id": "b", "count": 12}, type="part", dry_run=True)) == ["new"]
    told = await imported(client, {"id": "a", "count": 3}, {"id": "a", "count": 3}, type="part")
    assert results(told) == ["new", "unchanged"]
    assert [each["data"] for each in await events_of(client, "part", told[0]["key"])] == [{"count": 3}]


async def test_a_record_that_can_not_be_one_is_refused_by_its_line(client: httpx.AsyncClient) -> None:
    records = {"title": 1}, [], {"id": {}, "title": "A"}, {"id": "z", "title": "Z"}, {"id": "z", "title": "Y"}
    told = await imported(client, *records)
    assert [(each["line"], each["status"], each.get("code")) for each in told] == [
        (1, 422, "schema_violation"),
        (2, 422, "invalid_field"),
        (3, 422, "invalid_field"),
        (4, 201, None),
        (5, 422, "invalid_field"),
    ]
    response = await client.post("/_/import?type=issue", content=b"{\n\n[1", headers=NDJSON)
    assert [json.loads(line)["code"] for line in response.text.splitlines()] == ["invalid_json"] * 2


async def test_a_header_that_asks_something_of_one_append_is_refused(client: httpx.AsyncClient) -> None:
    """As of a bulk request: it would be ignored otherwise."""
    for name, value in (("Idempotency-Key", "k"), ("If-Match", '"0"'), ("Sluice-If-Unchanged", "skip")):
        answer = await client.post(
            "/_/import?type=issue", content=b'{"title": "T"}', headers={**NDJSON, name: value}
        )
        refused(answer, 400, "bad_request", name)
    assert results(await imported(client, {"title": "T"}, dry_run=True)) == ["new"]


async def test_an_import_names_a_type_and_an_event(client: httpx.AsyncClient) -> None:
    for query, code, path in (
        ("", "missing_field", "type"),
        ("?type=task", "missing_field", "event"),
        ("?type=isue&event=was_seen", "unknown_aggregate_type", "type"),
        ("?type=issue&event=x", "unknown_event_type", "event"),
        ("?type=block", "invalid_field", "type"),
        ("?type=issue&actor=x", "invalid_field", "actor"),
        ("?type=issue&import=x", "invalid_field", "import"),
    ):
        refused(await client.post(f"/_/import{query}", content=b"{}", headers=NDJSON), 422, code, path)
    many = await client.post("/_/import?type=issue", content=b"{}\n" * 1_001, headers=NDJSON)
    refused(many, 413, "too_large")
