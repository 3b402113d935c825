"""Records in an append to several aggregates, or on a condition: graded as those of single appends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.aggregates.ruled import Ruled
from gateway.appends import Append
from gateway.names.content import content_of_text
from tests.http.test_records import client, tenant
from tests.support.calls import ACTOR, append, bulk, events_of, new_id, refused, until

__all__ = ["client", "tenant"]


def event(aggregate_type: str, text: object, **more: object) -> dict[str, object]:
    return {"aggregate_type": aggregate_type, "type": "was_seen", "data": {"text": text}, **more}


async def of_several(client: httpx.AsyncClient, *events: dict[str, object], **more: object) -> httpx.Response:
    body = {"events": events, "metadata": {"actor": ACTOR}, **more}
    return await client.post("/_/append", json=body)


async def grades(client: httpx.AsyncClient, key: str) -> list[Any]:
    identities = [each["metadata"]["identity"] for each in await events_of(client, "unit", key)]
    return [each and each["grade"] for each in identities]


async def test_events_of_several_aggregates_are_records_of_each(client: httpx.AsyncClient) -> None:
    one, other, plain = new_id(), new_id(), new_id()
    order = {"aggregate_type": "order", "type": "was_noted", "data": 1, "key": plain}
    nothing = {"aggregate_type": "unit", "type": "was_noted", "data": {}, "key": one}
    first = await of_several(
        client, event("unit", "a", key=one), order, event("unit", "a", key=other), nothing,
        event("unit", "b", key=one),
    )  # fmt: skip
    assert first.status_code == 201, first.text
    again = await of_several(client, event("unit", "b", key=one), event("unit", "c", key=other))
    assert again.status_code == 201, again.text
    assert await grades(client, one) == ["new", None, "edited", "unchanged"]
    assert await grades(client, other) == ["new", "edited"]
    assert "identity" not in (await events_of(client, "order", plain))[0]["metadata"]
    found = (await client.get("/unit", params={"content": content_of_text("b")})).json()["items"]
    assert [each["key"] for each in found] == [one]


async def test_each_event_of_several_is_graded_by_its_own_source(client: httpx.AsyncClient) -> None:
    key = new_id()
    for source_id in ("tu1", "tu2"):
        linked = {"aggregate_type": "unit", "key": key}
        assert (await client.put(f"/_/sources/xliff/a/{source_id}", json=linked)).status_code == 200
    tu1, tu2 = [{"source": "xliff", "scope": "a", "id": each} for each in ("tu1", "tu2")]
    made = await of_several(client, event("unit", "a", source=tu1), event("unit", "b", source=tu2))
    assert made.status_code == 201, made.text
    line = json.dumps({"events": [event("unit", "a", source=tu1)], "metadata": {"actor": ACTOR}}).encode()
    (told,) = await bulk(client, line)
    assert told["status"] == 201, told
    assert await grades(client, key) == ["new", "new", "unchanged"]
    where = (await client.get("/_/sources/xliff/a/tu2")).json()
    assert where["content"] == content_of_text("b")


async def test_many_appends_to_several_are_graded_one_after_the_other(client: httpx.AsyncClient) -> None:
    keys = [new_id(), new_id()]
    answers = await asyncio.gather(
        *[of_several(client, *[event("unit", str(n), key=key) for key in keys]) for n in range(12)]
    )
    assert [each.status_code for each in answers] == [201] * 12, [each.text for each in answers]
    for key in keys:
        assert await grades(client, key) == ["new"] + ["edited"] * 11


async def test_a_length_that_is_asked_for_holds_for_records_of_several(client: httpx.AsyncClient) -> None:
    key, other = new_id(), new_id()
    assert (await append(client, "unit", key, "was_seen", {"text": "a"})).status_code == 201
    two = (event("unit", "b", key=other), event("unit", "b", key=key, previous_length=0))
    told = (await of_several(client, *two)).json()
    assert (told["code"], told["path"], told["length"]) == (
        "version_conflict",
        "events[1].previous_length",
        1,
    )
    assert await grades(client, key) == ["new"]


@pytest.mark.parametrize("by_bulk", [False, True])
async def test_a_condition_holds_for_an_append_of_records(client: httpx.AsyncClient, by_bulk: bool) -> None:
    key = new_id()
    condition = {"fail_if_events_match": {"items": [{"types": ["unit.was_seen"]}]}}
    assert (await append(client, "unit", key, "was_seen", {"text": "a"})).status_code == 201
    body = {"events": [event("unit", "b", key=key)], "metadata": {"actor": ACTOR}, "condition": condition}
    if by_bulk:
        (told,) = await bulk(client, json.dumps(body).encode())
        assert (told["status"], told["code"]) == (409, "condition_failed")
    else:
        told = (await client.post("/_/append", json=body)).json()
        assert told["code"] == "condition_failed"
    assert await grades(client, key) == ["new"]


async def test_an_aggregate_that_is_its_content_is_none_of_several(client: httpx.AsyncClient) -> None:
    made = await client.post("/block", json={"events": [{"type": "was_seen", "data": {"text": "a"}}],
                                             "metadata": {"actor": ACTOR}})  # fmt: skip
    key = made.json()["key"]
    for more in ({"key": key}, {}):
        answer = await of_several(client, event("unit", "a", key=new_id()), event("block", "b", **more))
        refused(answer, 422, "invalid_field", "events[1].aggregate_type")
    overlay = await of_several(client, event("unit", "a", key=new_id()), event("block", "b", key=f"{key}:de"))
    assert overlay.status_code == 201, overlay.text
    assert len(await events_of(client, "block", key)) == 1


async def test_a_bug_behind_the_hand_over_of_a_record_leaves_its_outcome_unknown(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, append = new_id(), Ruled.append

    def failing(self: Ruled, asked: Append) -> object:
        append(self, asked)
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Ruled, "append", failing)
        line = json.dumps({"events": [event("unit", "a", key=key)], "metadata": {"actor": ACTOR}}).encode()
        (told,) = await bulk(client, line)
    assert (told["status"], told["code"]) == (504, "outcome_unknown")

    async def committed() -> bool:
        return (await client.get(f"/unit/{key}")).status_code == 200

    await until(committed)
