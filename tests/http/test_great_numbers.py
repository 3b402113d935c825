"""Numbers that no double and no decoder in C holds are JSON too: whatever reads stored data takes them."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import ACTOR, new_client, new_id
from tests.support.serving import Served

ANY: dict[str, Any] = {"schema": True}
IDENTITY: dict[str, Any] = {
    "content": {"text": "$.data.text"},
    "context": {"name": "$.data.n", "properties": "$.data.properties"},
}
DECLARED: dict[str, Any] = {
    **SPEC,
    "aggregate_types": {
        "unit": {"identity": IDENTITY, "events": {"was_seen": ANY}},
        "block": {"mint": "content", "identity": IDENTITY, "events": {"was_seen": ANY}},
        "project": {"events": {"was_begun": ANY}},
        "character": {"events": {"was_made": ANY}},
        "timeline": {"events": {"was_made": ANY}},
    },
    "public_ids": {
        "projects": {"type": "project", "key": "$.data.key"},
        "member": {"character": "$.data.project_id", "timeline": "^.project_id"},
    },
}
METADATA = json.dumps({"actor": ACTOR})
NUMBERS = pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 4301])


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    tenant: Account = await open_account(outbox, DECLARED)
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


async def post(client: httpx.AsyncClient, path: str, body: str, kind: str = "application/json") -> Any:
    headers = {"content-type": kind, "prefer": "wait"}
    return await client.post(path, content=body, headers=headers)


async def made(client: httpx.AsyncClient, path: str, data: str) -> dict[str, Any]:
    answer = await post(client, path, f'{{"data": {data}, "metadata": {METADATA}}}')
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


@NUMBERS
async def test_a_record_may_hold_one_in_its_content_and_its_context(
    client: httpx.AsyncClient, number: str
) -> None:
    data = f'{{"text": "a", "n": {number}, "properties": {{"x": {number}}}}}'
    key = new_id()
    await made(client, f"/unit/{key}/was_seen", data)
    events = f'[{{"type": "was_seen", "data": {data}}}]'
    minted = [await post(client, "/block", f'{{"events": {events}, "metadata": {METADATA}}}') for _ in (1, 2)]
    assert [each.status_code for each in minted] == [201, 200]  # the same content is the same aggregate
    named = f'[{{"aggregate_type": "unit", "type": "was_seen", "data": {data}}}]'
    several = await post(client, "/_/append", f'{{"events": {named}, "metadata": {METADATA}}}')
    assert several.status_code == 201
    named = f'"aggregate_type": "unit", "key": "{key}", "type": "was_seen"'
    line = f'{{{named}, "data": {data}, "metadata": {METADATA}}}'
    bulk = await post(client, "/_/bulk", line, "application/x-ndjson")
    assert bulk.json()["status"] == 201
    assert '"grade":"unchanged"' in (await client.get(f"/unit/{key}/events/2")).text


@NUMBERS
async def test_a_context_that_is_hashed_may_hold_one(client: httpx.AsyncClient, number: str) -> None:
    context = f'{{"properties": {{"x": {number}}}}}'
    answer = await post(client, "/_/ids/hash", f'{{"text": "a", "context": {context}}}')
    assert answer.status_code == 200
    text = f'{{"properties": {{"x": "{number}"}}}}'
    other = await post(client, "/_/ids/hash", f'{{"text": "a", "context": {text}}}')
    assert answer.json()["context"] != other.json()["context"]


@NUMBERS
async def test_projects_and_their_members_may_hold_one(client: httpx.AsyncClient, number: str) -> None:
    project = new_id()
    await made(client, f"/project/{project}/was_begun", f'{{"key": "VNO", "n": {number}}}')
    member = f'{{"project_id": "{project}", "n": {number}}}'
    first = await made(client, f"/character/{new_id()}/was_made", member)
    second = await made(client, f"/timeline/{new_id()}/was_made", member)
    assert first["aliases"] + second["aliases"] == ["VNO-1", "VNO-2"]


@NUMBERS
async def test_stored_events_that_hold_one_are_compared_with_what_is_deployed(
    client: httpx.AsyncClient, number: str
) -> None:
    await made(client, f"/unit/{new_id()}/was_seen", f'{{"text": "a", "n": {number}}}')
    spec = copy.deepcopy(DECLARED)
    event: dict[str, Any] = spec["aggregate_types"]["unit"]["events"]["was_seen"]
    event |= {"schema": {"properties": {"n": {"type": "string"}}}}
    refused = await client.put("/_/spec", json=spec)
    (conflict,) = refused.json()["conflicts"]
    assert refused.status_code == 409 and "1 of 1 stored was_seen events" in conflict["error"]
    assert (await client.post("/_/spec/try", json=spec)).json()["refused"]["count"] == 1
    event |= {"schema": True, "claims": {"text": {"value": "$.data.text"}}, "tags": ["text:$.data.text"]}
    answer = await client.put("/_/spec", json=spec)
    assert answer.status_code == 200, answer.text
