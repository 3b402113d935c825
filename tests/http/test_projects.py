"""Projects: each has a key of its own, claimed once, and numbers its members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import append, appended, bulk, envelope, new_client, new_id, refused
from tests.support.serving import Served

WAIT = {"prefer": "wait"}
ANY = {"schema": True}
PROJECTS: dict[str, Any] = {
    **SPEC,
    "aggregate_types": {
        "project": {"events": {"was_begun": ANY, "was_changed": ANY}},
        "character": {"events": {"was_made": ANY}},
        "timeline": {
            "events": {
                "was_made": {"schema": True, "handler": {"set": {"target": "of.it", "value": "$.data.p"}}}
            }
        },
    },
    "public_ids": {
        "projects": {"type": "project", "key": "$.data.key"},
        "member": {"character": "$.data.project_id", "timeline": "^.of.it"},
    },
}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, PROJECTS)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


async def begun(client: httpx.AsyncClient, key: str) -> str:
    """A project."""
    project = new_id()
    await appended(client, "project", project, "was_begun", {"key": key})
    return project


async def made(client: httpx.AsyncClient, of_type: str, data: object, key: str | None = None) -> list[str]:
    receipt = await appended(client, of_type, key or new_id(), "was_made", data, WAIT)
    return list(receipt["aliases"])


async def test_members_of_all_types_are_numbered_by_their_project(client: httpx.AsyncClient) -> None:
    vno, abc = await begun(client, "VNO"), await begun(client, "ABC")
    assert await made(client, "character", {"project_id": vno}) == ["VNO-1"]
    assert await made(client, "timeline", {"p": vno}) == ["VNO-2"]
    assert await made(client, "character", {"project_id": abc.upper()}) == ["ABC-1"]
    assert (await client.get("/character/@abc-1")).status_code == 200
    assert await made(client, "character", {"project_id": new_id()}) == []
    assert await made(client, "character", {"project_id": vno}, "global") == []
    assert await made(client, "character", {"project_id": vno}, f"{new_id()}:2026") == []
    assert await made(client, "character", {"project_id": vno}) == ["VNO-3"]


async def test_many_writers_of_many_projects_leave_no_gaps(client: httpx.AsyncClient) -> None:
    keys = [f"P{n}" for n in range(10)]
    projects = [await begun(client, key) for key in keys]
    told = await asyncio.gather(
        *[
            made(client, ("character", "timeline")[n % 2], {"project_id": each, "p": each})
            for n in range(8)
            for each in projects
        ]
    )
    expected = sorted(f"{key}-{n}" for key in keys for n in range(1, 9))
    assert sorted(alias for aliases in told for alias in aliases) == expected


async def test_a_key_is_claimed_once_and_never_changes(
    client: httpx.AsyncClient, outbox: asyncpg.Pool
) -> None:
    project = await begun(client, "VNO")
    other = await client.post(
        "/project", json={"events": [{"type": "was_begun", "data": {"key": "VNO"}}], **META}
    )
    refused(other, 409, "key_taken", "events[0].data.key")
    for key in ("vno", "V", "VN-O", None, "ABCDEFGHIJK"):
        wrong = await append(client, "project", new_id(), "was_begun", {"key": key})
        refused(wrong, 422, "invalid_field", "data.key")
    await appended(client, "project", project, "was_changed", {"key": "XYZ"})
    assert await made(client, "character", {"project_id": project}) == ["VNO-1"]
    for changed in (
        {**PROJECTS, "public_ids": {}},
        {
            **PROJECTS,
            "public_ids": {**PROJECTS["public_ids"], "projects": {"type": "project", "key": "$.data.other"}},
        },
        PROJECTS,
    ):
        assert (await client.put("/_/spec", json=changed)).status_code == 200
    assert await made(client, "character", {"project_id": project}) == ["VNO-2"]
    line = {"aggregate_type": "project", "key": new_id(), "type": "was_begun", **envelope({"key": "VNO"})}
    (told,) = await bulk(client, line)
    assert (told["status"], told["code"]) == (409, "key_taken")


META = {"metadata": {"actor": {"type": "user", "id": "global"}}}


async def test_a_key_may_be_claimed_for_the_whole_instance(gateway: Served, outbox: asyncpg.Pool) -> None:
    everywhere = {**PROJECTS["public_ids"]["projects"], "unique": "instance"}
    spec = {**PROJECTS, "public_ids": {**PROJECTS["public_ids"], "projects": everywhere}}
    accounts = [await open_account(outbox, spec) for _ in range(2)]
    told = []
    for account in accounts:
        async with new_client(gateway.url, account.admin) as client:
            told.append(await append(client, "project", new_id(), "was_begun", {"key": "SOLE"}))
    assert told[0].status_code == 201
    refused(told[1], 409, "key_taken", "data.key")


async def test_the_repeat_of_a_creation_is_its_receipt(client: httpx.AsyncClient) -> None:
    """Whose key is minted, and another one each time."""
    body = {"events": [{"type": "was_begun", "data": {"key": "VNO"}}], **META}
    several = {
        "events": [creation("ABC"), {**creation(None), "aggregate_type": "character", "type": "was_made"}]
    }
    for path, sent in (("/project", body), ("/_/append", several | META)):
        headers = {"idempotency-key": path}
        first, again = [await client.post(path, json=sent, headers=headers) for _ in range(2)]
        assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
        assert again.headers["idempotency-replayed"] == "true"


def creation(key: object, project: str | None = None) -> dict[str, Any]:
    named = {} if project is None else {"key": project}
    return {"aggregate_type": "project", **named, "type": "was_begun", "data": {"key": key}}


async def test_an_append_to_several_claims_the_keys_of_its_projects(client: httpx.AsyncClient) -> None:
    vno = await begun(client, "VNO")

    async def tried(*events: dict[str, Any]) -> httpx.Response:
        return await client.post("/_/append", json={"events": events, **META})

    change = {**creation("XYZ", vno), "type": "was_changed"}
    for wrong in ("VNO", "vno"):
        code = (409, "key_taken") if wrong == "VNO" else (422, "invalid_field")
        refused(await tried(change, creation(wrong)), *code, "events[1].data.key")
        refused(await tried(creation(wrong)), *code, "events[0].data.key")
    refused(await tried(creation("TWO"), creation("TWO")), 409, "key_taken", "events[1].data.key")
    told = await tried(change, creation("ABC", abc := new_id()))
    assert told.status_code == 201, told.text
    assert await made(client, "character", {"project_id": abc}) == ["ABC-1"]


async def test_no_project_has_the_key_of_the_tenants_own_public_ids(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    types = {**PROJECTS["aggregate_types"], "ticket": {"events": {"was_made": ANY}}}
    public = {**PROJECTS["public_ids"], "key": "OWN", "types": ["ticket"]}
    account = await open_account(outbox, {**PROJECTS, "aggregate_types": types, "public_ids": public})
    async with new_client(gateway.url, account.admin) as client:
        taken = await append(client, "project", new_id(), "was_begun", {"key": "OWN"})
        refused(taken, 409, "key_taken", "data.key")
        assert await made(client, "ticket", {}) == ["OWN-1"]


async def test_a_key_that_was_claimed_for_a_project_that_is_not_written_is_not_taken_for_good(
    client: httpx.AsyncClient, tenant: Account, outbox: asyncpg.Pool
) -> None:
    """By an append that failed, perhaps this one: its client is told to try again."""
    claimed = (
        "INSERT INTO project_key (tenant, key, aggregate_id, everywhere, claimed_at) VALUES ($1, $2, $3, $4, "
    )
    await outbox.execute(f"{claimed} now())", tenant.id, "VNO", new_id(), False)
    body = {"events": [{"type": "was_begun", "data": {"key": "VNO"}}], **META}
    answer = await client.post("/project", json=body)
    refused(answer, 503, "not_committed")
    assert answer.headers["retry-after"] == "5"
    await outbox.execute("UPDATE project_key SET claimed_at = now() - interval '2 minutes' WHERE key = 'VNO'")
    assert (await client.post("/project", json=body)).status_code == 201
