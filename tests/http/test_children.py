"""Children of an aggregate that has a hash id: numbered by it, named below it, created once."""

from __future__ import annotations

import asyncio
import copy
import uuid
from typing import Any

import asyncpg
import httpx
import pytest
from uuid_utils import uuid7

from tests.http.hashed import lettered
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import ACTOR, append, appended, batch, new_client, new_id, refused
from tests.support.serving import Served

RULED = {
    "schema": {},
    "rules": [{"require": {"exists": "$.data.size"}, "error": "It has no size."}],
}
HASHED: dict[str, Any] = {
    **SPEC,
    "aggregate_types": {**SPEC["aggregate_types"], "part": {"events": {"was_cut": RULED}}},
    "public_ids": {"key": "VNO", "types": ["order"]},
    "hash_ids": {"prefix": "bd", "types": ["order"]},
}
WAIT = {"prefer": "wait"}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, HASHED)


async def born(
    client: httpx.AsyncClient,
    parent: str,
    *,
    aggregate_type: str = "order",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    event = "was_placed" if aggregate_type == "order" else "was_opened"
    return await client.post(
        f"/{aggregate_type}", json={**batch((event, {})), "parent": parent}, headers=headers
    )


async def name_of(client: httpx.AsyncClient, parent: str) -> str:
    answer = await born(client, parent)
    assert answer.status_code == 201, answer.text
    (name,) = answer.json()["aliases"]
    return str(name)


@pytest.fixture
async def root(client: httpx.AsyncClient, tenant: Account) -> tuple[str, str]:
    """Key and hash id of an order."""
    key = lettered(uuid.UUID(tenant.id), "order")
    told = await appended(client, "order", key, "was_placed", headers=WAIT)
    return told["key"], told["aliases"][1]


async def test_children_are_numbered_below_their_parent(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    key, name = root
    for number, parent in enumerate((f"@{name}", f"@{name.upper()}", key, key.upper(), "@VNO-1"), 1):
        answer = await born(client, parent)
        told = answer.json()
        assert (answer.status_code, told["aliases"], told["length"]) == (201, [f"{name}.{number}"], 1)
        assert answer.headers["location"] == f"/order/{told['key']}"
        for text in (f"{name}.{number}", f"{name[3:]}.{number}", f"{name[:7]}.{number}"):
            assert (await client.get(f"/order/@{text}")).json()["key"] == told["key"]
        assert (await append(client, "order", f"@{name}.{number}", "was_noted")).json()["length"] == 2
    assert (await client.get(f"/order/{key}/length")).json()["length"] == 1
    assert (await client.get(f"/order/@{name[:7]}")).json()["key"] == key, "not ambiguous with its children"


async def test_a_child_has_no_other_hash_id_and_may_have_a_number(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    answer = await born(client, f"@{root[1]}")
    key = answer.json()["key"]
    assert answer.json()["aliases"] == [f"{root[1]}.1"]
    await appended(
        client, "order", new_id(), "was_placed", headers=WAIT
    )  # all that came before is named by now
    listed = (await client.get(f"/order/{key}/aliases")).json()["aliases"]
    assert sorted(listed) == sorted(["VNO-2", f"{root[1]}.1"])
    waited = await born(client, f"@{root[1]}", headers=WAIT)
    assert waited.json()["aliases"] == [f"{root[1]}.2", "VNO-4"], "asked to wait, it tells all its names"


async def test_a_child_may_be_of_a_type_that_has_no_hash_ids(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    answer = await born(client, f"@{root[1]}", aggregate_type="ticket")
    assert answer.json()["aliases"] == [f"{root[1]}.1"]
    assert (await client.get(f"/ticket/@{root[1]}.1")).json()["key"] == answer.json()["key"]
    refused(await client.get(f"/order/@{root[1]}.1"), 404, "unknown_alias", "key")
    below = await born(client, f"@{root[1]}.1", aggregate_type="ticket")
    assert below.json()["aliases"] == [f"{root[1]}.1.1"]


async def test_a_child_that_its_rules_refuse_takes_no_number(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    key, name = root
    body = {**batch(("was_cut", {"size": 1}), ("was_cut", {})), "parent": f"@{name}"}
    kept = {"idempotency-key": "cut"}
    told = refused(
        await client.post("/part", json=body, headers=kept), 422, "rule_violated", "events[1].rules[0]"
    )
    assert (told["error"], told["length"]) == ("It has no size.", 0)
    refused(await client.post("/part", json={**body, "parent": "@bd-k86gaq"}), 404, "unknown_alias", "parent")
    assert (await client.get(f"/order/{key}/children")).json()["children"] == []
    body = {**batch(("was_cut", {"size": 1})), "parent": f"@{name}"}
    answer = await client.post("/part", json=body, headers=kept)
    assert (answer.status_code, answer.json()["aliases"]) == (201, [f"{name}.1"])


async def test_names_are_three_levels_deep(client: httpx.AsyncClient, root: tuple[str, str]) -> None:
    name = root[1]
    for _ in range(3):
        name = await name_of(client, f"@{name}")
    assert name == f"{root[1]}.1.1.1"
    told = refused(await born(client, f"@{name}"), 422, "depth_exceeded", "parent")
    assert "can't have children" in told["error"]
    key = (await client.get(f"/order/@{name}")).json()["key"]
    refused(await born(client, key), 422, "depth_exceeded", "parent")
    assert await name_of(client, f"@{root[1]}.1.1") == f"{root[1]}.1.1.2"
    assert await name_of(client, f"@{root[1]}.1") == f"{root[1]}.1.2"


@pytest.mark.parametrize(
    ("parent", "status", "code"),
    [
        ("@bd-k86gaq", 404, "unknown_alias"),
        ("@VNO-77", 404, "unknown_alias"),
        ("@VNO-042", 422, "invalid_identifier"),
        ("@bd-k8", 422, "invalid_identifier"),
        ("@", 422, "invalid_identifier"),
        ("VNO-1", 422, "invalid_identifier"),
        ("", 422, "invalid_identifier"),
        ("@bd-k86gaq\n", 422, "invalid_identifier"),
        ("global", 422, "invalid_field"),
        ("a0000000-0000-4000-a000-0000000000ff", 422, "invalid_field"),
        ("ﬁ\u0130", 422, "invalid_identifier"),
    ],
)
async def test_a_parent_that_is_none_is_refused_and_nothing_is_written(
    client: httpx.AsyncClient,
    root: tuple[str, str],
    tenant: Account,
    outbox: asyncpg.Pool,
    parent: str,
    status: int,
    code: str,
) -> None:
    written = "SELECT count(*) FROM outbox WHERE tenant = $1"
    before = await outbox.fetchval(written, tenant.id)
    refused(await born(client, parent), status, code, "parent")
    assert await outbox.fetchval(written, tenant.id) == before


async def test_an_abbreviation_is_no_parent(client: httpx.AsyncClient, root: tuple[str, str]) -> None:
    refused(await born(client, f"@{root[1][:7]}"), 404, "unknown_alias", "parent")


async def test_a_parent_stands_only_beside_the_events_of_a_new_aggregate(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    sent = {**batch(("was_placed", {})), "parent": root[0]}
    refused(await client.post(f"/order/{new_id()}", json=sent), 422, "unknown_field", "parent")
    single = {"data": {}, "metadata": {"actor": ACTOR}, "parent": root[0]}
    refused(await client.post(f"/order/{new_id()}/was_placed", json=single), 422, "unknown_field", "parent")
    refused(await client.post("/order", json={**sent, "parent": 7}), 422, "invalid_field", "parent")
    assert (await client.post("/order", json={**sent, "parent": None})).status_code == 201


async def test_a_child_that_would_be_refused_takes_no_number(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    wrong = {**batch(("was_placed", {"total": -1})), "parent": f"@{root[1]}"}
    refused(await client.post("/order", json=wrong), 422, "schema_violation", "events[0].data.total")
    assert await name_of(client, f"@{root[1]}") == f"{root[1]}.1"


async def test_children_born_at_once_have_each_a_number_of_its_own(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    answers = await asyncio.gather(*(born(client, f"@{root[1]}") for _ in range(16)))
    assert [answer.status_code for answer in answers] == [201] * 16
    names = {answer.json()["aliases"][0] for answer in answers}
    assert names == {f"{root[1]}.{number}" for number in range(1, 17)}
    assert len({answer.json()["key"] for answer in answers}) == 16


async def test_a_retry_is_the_same_child(client: httpx.AsyncClient, root: tuple[str, str]) -> None:
    headers = {"idempotency-key": "once"}
    first = await born(client, f"@{root[1]}", headers=headers)
    again = await born(client, f"@{root[1]}", headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert await name_of(client, f"@{root[1]}") == f"{root[1]}.2"
    other = await client.post(
        "/order", json={**batch(("was_placed", {"total": 9})), "parent": root[0]}, headers=headers
    )
    refused(other, 422, "idempotency_mismatch")
    assert await name_of(client, f"@{root[1]}") == f"{root[1]}.3"


async def test_two_attempts_at_once_under_one_key_are_one_child(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    headers = {"idempotency-key": "once"}
    answers = await asyncio.gather(*(born(client, f"@{root[1]}", headers=headers) for _ in range(6)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["aliases"] == [f"{root[1]}.1"]


async def test_a_refused_child_burns_no_key_and_takes_no_number(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    event_id = str(uuid7())
    taken = {**batch(("was_placed", {})), "parent": f"@{root[1]}"}
    taken["events"][0]["event_id"] = event_id
    assert (await client.post(f"/order/{new_id()}", json=_without_parent(taken))).status_code == 201
    headers = {"idempotency-key": "once"}
    refused(await client.post("/order", json=taken, headers=headers), 422, "idempotency_mismatch")
    refused(await client.get(f"/_/resolve/@{root[1]}.1"), 404, "unknown_alias", "key")
    mended = await born(client, f"@{root[1]}", headers=headers)
    assert (mended.status_code, mended.json()["aliases"]) == (201, [f"{root[1]}.1"])


def _without_parent(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "parent"}


async def test_a_committed_child_is_told_again_whatever_the_spec_says_of_it_by_now(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    headers = {"idempotency-key": "once"}
    first = await born(client, root[0], aggregate_type="ticket", headers=headers)
    assert first.json()["aliases"] == [f"{root[1]}.1"]
    unhashed = {name: part for name, part in HASHED.items() if name != "hash_ids"}
    assert (await client.put("/_/spec", json=unhashed)).status_code == 200
    again = await born(client, root[0], aggregate_type="ticket", headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    untyped = copy.deepcopy(unhashed)
    del untyped["aggregate_types"]["ticket"]
    assert (await client.put("/_/spec?force=true", json=untyped)).status_code == 200
    again = await born(client, root[0], aggregate_type="ticket", headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())


async def test_a_parent_named_by_its_key_may_be_of_a_type_that_gets_no_hash_ids(
    client: httpx.AsyncClient, root: tuple[str, str]
) -> None:
    ticket = await born(client, f"@{root[1]}", aggregate_type="ticket")
    below = await born(client, ticket.json()["key"])
    assert below.json()["aliases"] == [f"{root[1]}.1.1"]


async def test_no_alias_of_another_tenant_is_a_parent(
    client: httpx.AsyncClient, root: tuple[str, str], gateway: Served, outbox: asyncpg.Pool
) -> None:
    account = await open_account(outbox, HASHED)
    async with new_client(gateway.url, account.admin) as other:
        refused(await born(other, f"@{root[1]}"), 404, "unknown_alias", "parent")
        refused(await born(other, root[0]), 422, "invalid_field", "parent")


async def test_numbers_go_on_behind_names_that_were_imported(
    client: httpx.AsyncClient, root: tuple[str, str], outbox: asyncpg.Pool, tenant: Account
) -> None:
    body = root[1].removeprefix("bd-")
    await outbox.executemany(
        "INSERT INTO alias (tenant, path, body, prefix, kind, aggregate_type, aggregate_id, version)"
        " VALUES ($1, $2, $3, 'bd', 'hash', 'order', $4, 1)",
        [(tenant.id, path, body, new_id()) for path in (".1", ".2", ".347", ".2.900")],
    )
    assert [await name_of(client, f"@{root[1]}") for _ in range(2)] == [f"{root[1]}.348", f"{root[1]}.349"]


async def test_a_child_whose_minted_key_is_taken_has_its_name_under_another_key(
    client: httpx.AsyncClient, root: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = new_id(), new_id()
    other = await appended(client, "order", taken, "was_placed", headers=WAIT)
    minted = iter([taken, taken, free])
    monkeypatch.setattr("gateway.http.api.appends.minted_key", lambda _type: next(minted))
    headers = {"idempotency-key": "once"}
    answer = await born(client, f"@{root[1]}", headers=headers)
    assert (answer.status_code, answer.json()["key"]) == (201, free), answer.text
    (name,) = answer.json()["aliases"]
    assert (await client.get(f"/order/@{name}")).json()["key"] == free
    assert (await client.get(f"/order/{taken}/aliases")).json()["aliases"] == other["aliases"]
    assert (await client.get(f"/order/{taken}/length")).json()["length"] == 1
    monkeypatch.setattr("gateway.http.api.appends.minted_key", lambda _type: taken)
    again = await born(client, f"@{root[1]}", headers=headers)
    assert (again.status_code, again.json()) == (201, answer.json())
    refused_for_now = await born(client, f"@{root[1]}")
    assert refused_for_now.status_code == 503, "no key is free"
    assert (await client.get(f"/order/{taken}/aliases")).json()["aliases"] == other["aliases"]


async def test_a_narrowed_key_makes_no_children_of_what_it_may_not_read(
    client: httpx.AsyncClient, gateway: Served, root: tuple[str, str]
) -> None:
    key, name = root
    for only in (["ticket"], ["ticket", "order"]):
        made = (await client.post("/_/keys", json={"scope": "write", "only": only})).json()
        async with new_client(gateway.url, made["key"]) as narrow:
            for parent in (key, f"@{name}"):
                answer = await born(narrow, parent, aggregate_type="ticket")
                if "order" in only:
                    assert answer.status_code == 201, answer.text
                else:
                    refused(answer, 403, "forbidden")
    assert len((await client.get(f"/order/{key}/children")).json()["children"]) == 2
