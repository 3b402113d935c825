"""Hash ids in the `{id}` slot: computed by anyone, extended where they collide, abbreviated on reads."""

from __future__ import annotations

import uuid
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.names.hash_ids import bodies
from tests.http.hashed import alike, lettered
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import append, appended, new_client, new_id, refused, until
from tests.support.serving import Served

HASHED: dict[str, Any] = {**SPEC, "hash_ids": {"prefix": "bd", "types": ["order", "ticket"]}}
BOTH: dict[str, Any] = {**HASHED, "public_ids": {"key": "VNO", "types": ["order"]}}
WAIT = {"prefer": "wait"}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, HASHED)


@pytest.fixture
def tenant_id(tenant: Account) -> uuid.UUID:
    return uuid.UUID(tenant.id)


async def create(client: httpx.AsyncClient, key: str | None = None) -> str:
    """The hash id of a new order."""
    told = await appended(client, "order", key or new_id(), "was_placed", headers=WAIT)
    (name,) = told["aliases"]
    return str(name)


async def test_a_new_aggregate_has_the_name_that_anyone_computes(
    client: httpx.AsyncClient, tenant_id: uuid.UUID
) -> None:
    key = new_id()
    name = await create(client, key)
    assert name == f"bd-{bodies(tenant_id.bytes, 'order', key)[0]}"
    for text in (name, name.upper(), name.removeprefix("bd-"), name.removeprefix("bd-").upper()):
        told = await client.get(f"/_/resolve/@{text}")
        assert told.json() == {"ok": True, "aggregate_type": "order", "key": key, "alias": name}
        state = await client.get(f"/order/@{text}")
        assert (state.status_code, state.json()["key"]) == (200, key)
        assert state.headers["content-location"] == f"/order/{key}"
    receipt = await append(client, "order", f"@{name.upper()}", "was_noted")
    assert (receipt.status_code, receipt.json()["key"]) == (201, key)


async def test_names_that_collide_are_one_character_longer_and_both_resolve(
    client: httpx.AsyncClient, tenant_id: uuid.UUID
) -> None:
    one, other = alike(tenant_id, "order", characters=6)
    first, second = await create(client, one), await create(client, other)
    assert (len(first), len(second)) == (len("bd-") + 6, len("bd-") + 7)
    assert second.startswith(first)
    for name, key in ((first, one), (second, other)):
        assert (await client.get(f"/_/resolve/@{name}")).json()["key"] == key
        assert (await append(client, "order", f"@{name}", "was_noted")).json()["key"] == key
        assert (await client.get(f"/order/{key}/aliases")).json()["aliases"] == [name]


async def test_names_that_collide_within_one_batch_are_told_apart_too(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    account = await open_account(outbox)
    owner = uuid.UUID(account.id)
    async with new_client(gateway.url, account.admin) as client:
        keys = [*alike(owner, "order", characters=6), *(new_id() for _ in range(5))]
        for key in keys:
            await appended(client, "order", key, "was_placed")
        assert (await client.put("/_/spec", json=HASHED)).status_code == 200

        async def all_named() -> bool:
            told = [(await client.get(f"/order/{key}/aliases")).json()["aliases"] for key in keys]
            return all(told)

        await until(all_named)
        names = [(await client.get(f"/order/{key}/aliases")).json()["aliases"][0] for key in keys]
        assert names[1].startswith(names[0])
        assert len(set(names)) == len(keys)


async def test_an_abbreviation_reads_and_never_writes(
    client: httpx.AsyncClient, tenant_id: uuid.UUID
) -> None:
    key = lettered(tenant_id, "order")
    name = await create(client, key)
    for text in (name[:7], name[:8], name[3:7], name[3:8], name[3:8].upper()):
        assert (await client.get(f"/order/@{text}")).json()["key"] == key
        assert (await client.get(f"/_/resolve/@{text}")).json()["alias"] == name
        assert (await client.get(f"/order/@{text}/length")).json()["length"] == 1
        refused(await append(client, "order", f"@{text}", "was_noted"), 404, "unknown_alias", "key")
    for text in (name[:6], name[3:6], "bd-"):
        refused(await client.get(f"/order/@{text}"), 422, "invalid_identifier", "key")
    assert (await client.get(f"/order/{key}/length")).json()["length"] == 1


async def test_an_abbreviation_that_two_match_is_ambiguous_and_names_both(
    client: httpx.AsyncClient, tenant_id: uuid.UUID
) -> None:
    one, other = alike(tenant_id, "order", characters=4)
    names = sorted([await create(client, one), await create(client, other)])
    for text in (names[0][:7], names[0][3:7]):
        told = refused(await client.get(f"/order/@{text}"), 422, "ambiguous_alias", "key", ("candidates",))
        assert told["candidates"] == names
        told = refused(
            await client.get(f"/_/resolve/@{text}"), 422, "ambiguous_alias", "key", ("candidates",)
        )
        assert told["candidates"] == names
        refused(await append(client, "order", f"@{text}", "was_noted"), 404, "unknown_alias", "key")
    for name, key in zip(
        names, sorted([one, other], key=lambda each: bodies(tenant_id.bytes, "order", each)), strict=True
    ):
        assert (await client.get(f"/order/@{name}")).json()["key"] == key


async def test_a_name_that_begins_a_longer_one_is_exact_and_not_ambiguous(
    client: httpx.AsyncClient, tenant_id: uuid.UUID
) -> None:
    one, other = alike(tenant_id, "order", characters=6)
    first, second = await create(client, one), await create(client, other)
    for text in (first, first[3:]):
        assert (await client.get(f"/order/@{text}")).json()["key"] == one
    told = refused(await client.get(f"/order/@{first[3:8]}"), 422, "ambiguous_alias", "key", ("candidates",))
    assert told["candidates"] == [first, second]


async def test_no_more_than_ten_candidates_are_told(
    client: httpx.AsyncClient, tenant_id: uuid.UUID, outbox: asyncpg.Pool
) -> None:
    bodies = [f"k86g{number}a" for number in range(30, 18, -1)]  # as many take a million keys to find
    await outbox.executemany(
        "INSERT INTO alias (tenant, path, body, prefix, kind, aggregate_type, aggregate_id, version)"
        " VALUES ($1, '', $2, 'bd', 'hash', 'order', $3, 1)",
        [(tenant_id, body, new_id()) for body in bodies],
    )
    told = refused(await client.get("/order/@k86g"), 422, "ambiguous_alias", "key", ("candidates",))
    assert told["candidates"] == sorted(f"bd-{body}" for body in bodies)[:10]


async def test_an_abbreviation_knows_nothing_of_another_type_or_tenant(
    client: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    name = await create(client)
    refused(await client.get(f"/ticket/@{name}"), 404, "unknown_alias", "key")
    refused(await client.get(f"/ticket/@{name[:7]}"), 404, "unknown_alias", "key")
    account = await open_account(outbox, HASHED)
    async with new_client(gateway.url, account.admin) as other:
        for text in (name, name[:7], name[3:]):
            refused(await other.get(f"/order/@{text}"), 404, "unknown_alias", "key")
            refused(await other.get(f"/_/resolve/@{text}"), 404, "unknown_alias", "key")


async def test_an_aggregate_may_have_a_number_and_a_hash(gateway: Served, outbox: asyncpg.Pool) -> None:
    account = await open_account(outbox, BOTH)
    async with new_client(gateway.url, account.admin) as client:
        told = await appended(client, "order", new_id(), "was_placed", headers=WAIT)
        number, name = told["aliases"]
        assert number == "VNO-1"
        assert name.startswith("bd-")
        for text in (number, name):
            assert (await client.get(f"/order/@{text}")).json()["key"] == told["key"]


async def test_who_has_a_number_already_gets_no_hash_id_without_being_migrated(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    numbered = {**SPEC, "public_ids": {"key": "VNO", "types": ["order"]}}
    account = await open_account(outbox, numbered)
    async with new_client(gateway.url, account.admin) as client:
        old = await appended(client, "order", new_id(), "was_placed", headers=WAIT)
        assert (await client.put("/_/spec", json=BOTH)).status_code == 200
        new = await appended(client, "order", new_id(), "was_placed", headers=WAIT)
        assert len(new["aliases"]) == 2
        assert (await client.get(f"/order/{old['key']}/aliases")).json()["aliases"] == ["VNO-1"]
