"""/_/tenants and /_/tenant: tenants are provisioned, suspended and deleted over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest
from redis.asyncio import Redis
from uuid_utils.compat import uuid7

from gateway.catalog import keys, tag_deletion, tenants
from gateway.catalog.database import change
from gateway.catalog.model import Scope
from gateway.config import Config
from gateway.log.log import Log
from gateway.operations.audit import audit
from gateway.operations.deletions import Deletions
from gateway.operations.place import open_place
from tests.support.accounts import SPEC, Account
from tests.support.calls import append, appended, bulk, bulk_line, new_client, new_id, refused, until
from tests.support.drive import STALL_S
from tests.support.serving import Served, serving

NAMES = {"public_ids": {"key": "GONE", "types": ["order"]}, "hash_ids": {"prefix": "go", "types": ["order"]}}


def tagged(*tags: str) -> dict[str, Any]:
    """A spec with tags of `was_placed`."""
    spec: dict[str, Any] = json.loads(json.dumps(SPEC))
    spec["aggregate_types"]["order"]["events"]["was_placed"]["tags"] = list(tags)
    return spec


TAGGED = tagged("total:$.data.total")
PLACE = {
    "seq",
    "version",
    "recorded_at",
    "stored_at",
    "id",
    "tenant",
    "p",
    "spec_rev",
    "append_id",
    "digest",
    "aggregate_id",
}
"""What is left of an event of a deleted tenant."""


async def operators_key(database: asyncpg.Pool) -> str:
    async with change(database) as (conn, _):
        owner = await tenants.operators(conn)
    return (await keys.create(database, owner, Scope.OPERATOR)).text


@pytest.fixture
async def operator(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, await operators_key(outbox)) as client:
        yield client


async def provisioned(operator: httpx.AsyncClient, name: str) -> tuple[str, str]:
    """Id and key of a new tenant."""
    tenant_id = str(uuid7())
    made = await operator.put(f"/_/tenants/{tenant_id}", json={"name": name})
    assert made.status_code == 201, made.text
    told = made.json()
    assert (told["id"], told["name"], told["status"]) == (tenant_id, name, "active")
    return tenant_id, told["key"]


async def test_a_tenant_is_provisioned_with_its_first_key_or_not_at_all(
    operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, lost = asyncpg.Connection.fetchrow, iter([asyncpg.ConnectionDoesNotExistError("gone")])

    async def losing(conn: asyncpg.Connection, query: str, *args: Any, **more: Any) -> Any:
        for trouble in lost if "INSERT INTO api_key" in query else ():
            raise trouble
        return await connection(conn, query, *args, **more)

    monkeypatch.setattr(asyncpg.Connection, "fetchrow", losing)
    path = f"/_/tenants/{uuid7()}"
    refused(await operator.put(path, json={"name": "once-more"}), 503, "unavailable")
    again = await operator.put(path, json={"name": "once-more"})
    assert (again.status_code, "key" in again.json()) == (201, True)


async def test_a_provisioned_tenant_has_the_callers_id_and_its_first_key_works(
    gateway: Served, operator: httpx.AsyncClient
) -> None:
    tenant_id, key = await provisioned(operator, "theirs")
    async with new_client(gateway.url, key) as client:
        told = (await client.get("/_/tenant")).json()
        assert (told["ok"], told["id"], told["name"]) == (True, tenant_id, "theirs")
        assert (await client.put("/_/spec", json=SPEC)).status_code == 200
        await appended(client, "order", "global", "was_noted")
        refused(await client.get("/_/tenants"), 403, "forbidden")
    again = await operator.put(f"/_/tenants/{tenant_id}", json={"name": "theirs"})
    assert (again.status_code, "key" in again.json()) == (200, False)
    listed = (await operator.get("/_/tenants?after=theirr&limit=1")).json()["tenants"]
    assert [(each["name"], each["id"]) for each in listed] == [("theirs", tenant_id)]
    first = (await operator.get("/_/tenants?limit=1000")).json()["tenants"]
    assert "_operators" not in [each["name"] for each in first]


async def test_tenants_come_in_pages(operator: httpx.AsyncClient) -> None:
    for name in ("page-a", "page-b", "page-c"):
        await provisioned(operator, name)
    first = (await operator.get("/_/tenants?after=page&limit=2")).json()
    assert ([each["name"] for each in first["tenants"]], first["next"]) == (["page-a", "page-b"], "page-b")
    second = (await operator.get(f"/_/tenants?after={first['next']}&limit=1")).json()
    assert [each["name"] for each in second["tenants"]] == ["page-c"]


async def test_what_can_be_no_tenant_is_refused(operator: httpx.AsyncClient) -> None:
    tenant_id, _ = await provisioned(operator, "taken")
    path = f"/_/tenants/{tenant_id}"
    refused(await operator.put(path, json={"name": "other"}), 409, "tenant_conflict")
    refused(await operator.put(f"/_/tenants/{uuid7()}", json={"name": "taken"}), 409, "tenant_conflict")
    refused(await operator.put(f"/_/tenants/{uuid4()}", json={"name": "x"}), 422, "invalid_identifier", "id")
    refused(await operator.put(f"/_/tenants/{uuid7()}", json={"name": "X"}), 422, "invalid_field", "name")
    refused(await operator.put(f"/_/tenants/{uuid7()}", json={"name": 1}), 422, "invalid_field", "name")
    refused(await operator.put(f"/_/tenants/{uuid7()}", json={}), 422, "missing_field", "name")
    refused(await operator.put(path, json={"name": "taken", "x": 1}), 422, "unknown_field", "x")
    for method, below in (("GET", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume")):
        unknown = await operator.request(method, f"/_/tenants/{uuid7()}{below}")
        refused(unknown, 404, "not_found")


async def test_a_suspended_tenant_is_refused_everywhere_until_it_resumes(
    gateway: Served, operator: httpx.AsyncClient, client: httpx.AsyncClient, tenant: Account
) -> None:
    await appended(client, "order", "global", "was_noted")
    suspended = await operator.post(f"/_/tenants/{tenant.id}/suspend")
    assert (suspended.status_code, suspended.json()["status"]) == (200, "suspended")
    for path in ("/order/global", "/_/spec", "/_/feed", "/_/tenant"):
        refused(await client.get(path), 403, "tenant_suspended")
    refused(await append(client, "order", "global", "was_noted"), 403, "tenant_suspended")
    async with new_client(gateway.url, None) as stranger:
        refused(await stranger.post(f"/_/webhooks/{tenant.name}/stripe", json={}), 503, "not_committed")
    assert (await operator.post(f"/_/tenants/{tenant.id}/resume")).json()["status"] == "active"
    await appended(client, "order", "global", "was_noted")


async def test_what_waits_ends_once_its_tenant_is_suspended(
    gateway: Served, operator: httpx.AsyncClient, client: httpx.AsyncClient, tenant: Account
) -> None:
    await appended(client, "order", "global", "was_noted")
    end = (await client.get("/_/feed")).json()["position"]
    ticket = (await client.post("/_/tickets", json={"path": "/_/feed"})).json()["ticket"]
    live = {"accept": "text/event-stream"}
    async with (
        new_client(gateway.url, None) as browser,
        client.stream("GET", "/order/global/events", headers=live) as events,
        client.stream("GET", "/_/feed", headers=live) as feed,
        browser.stream("GET", f"/_/feed?ticket={ticket}") as ticketed,
    ):
        streams = [each.aiter_lines() for each in (events, feed, ticketed)]
        for lines in streams:
            assert (await anext(lines)).startswith("id: ")
        waiting = asyncio.create_task(client.get(f"/_/feed?after={end}&wait=60"))
        await client.get("/_/feed")
        assert (await operator.post(f"/_/tenants/{tenant.id}/suspend")).status_code == 200
        async with asyncio.timeout(5 + STALL_S):
            for lines in streams:
                assert [line async for line in lines if line.startswith("id: ")] == []
            refused(await waiting, 403, "tenant_suspended")


@pytest.mark.parametrize("path", ["/order/global/was_noted", "/order/global", "/_/append", "/_/bulk"])
async def test_what_comes_slowly_is_not_stored_once_its_tenant_is_suspended(
    operator: httpx.AsyncClient, client: httpx.AsyncClient, tenant: Account, path: str
) -> None:
    event = {"type": "was_noted", "data": {}}
    named = {"aggregate_type": "order", "key": "global", **event}
    metadata = {"actor": {"type": "user", "id": "global"}}
    bodies = {"/_/append": {"events": [named]}, "/_/bulk": named, "/order/global": {"events": [event]}}
    body = json.dumps(bodies.get(path, {"data": {}}) | {"metadata": metadata}).encode() + b"\n"

    async def sent() -> AsyncIterator[bytes]:
        yield body[:10]
        assert (await operator.post(f"/_/tenants/{tenant.id}/suspend")).status_code == 200
        yield body[10:]

    media = "application/x-ndjson" if path == "/_/bulk" else "application/json"
    answer = await client.post(path, content=sent(), headers={"Content-Type": media})
    if path == "/_/bulk":
        assert json.loads(answer.text.splitlines()[0])["code"] == "tenant_suspended"
    else:
        refused(answer, 403, "tenant_suspended")
    assert (await operator.post(f"/_/tenants/{tenant.id}/resume")).status_code == 200
    assert (await client.get("/order/global/length")).json()["length"] == 0


async def test_tags_of_all_revisions_and_quarantined_appends_go_with_their_tenant(
    own_config: Config, own_outbox: asyncpg.Pool, own_tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specs are read beside the event loop: a large one takes up to seconds."""
    loops: list[bool] = []
    for name in ("parse_deployed", "_rules"):
        of = getattr(tag_deletion, name)

        def noted(*args: Any, of: Any = of) -> Any:
            loops.append(threading.current_thread() is threading.main_thread())
            return of(*args)

        monkeypatch.setattr(tag_deletion, name, noted)
    key = await operators_key(own_outbox)
    async with serving(own_config) as served, new_client(served.url, key) as operator:
        going, admin = await provisioned(operator, "tagging")
        async with new_client(served.url, admin) as client:
            for spec in (tagged("first:$.data.total"), tagged("second:$.data.total"), SPEC):
                told = await client.put("/_/spec", json=spec, params={"force": "true"})
                assert told.status_code == 200, told.text
                await appended(client, "order", new_id(), "was_placed", {"total": 7})
            stays = UUID(own_tenant.id).bytes
            for named in (UUID(going).bytes, stays):
                await own_outbox.execute(
                    "INSERT INTO quarantined_append (p, epoch, seq, entry, error) VALUES (0, 1, 1, $1, '')",
                    b"\x91" + named,
                )
            assert await own_outbox.fetchval("SELECT count(*) FROM event_tag") == 2
            assert (await operator.delete(f"/_/tenants/{going}")).status_code == 202

            async def is_gone() -> bool:
                return bool((await operator.get(f"/_/tenants/{going}")).json()["status"] == "deleted")

            await until(is_gone)
    assert loops
    assert not any(loops)
    assert await own_outbox.fetchval("SELECT count(*) FROM event_tag") == 0
    left = await own_outbox.fetch("SELECT entry FROM quarantined_append")
    assert [row["entry"] for row in left] == [b"\x91" + stays]


async def test_a_deleted_tenant_leaves_nothing_but_places_and_the_rest_stays_whole(
    own_config: Config, own_outbox: asyncpg.Pool, own_tenant: Account
) -> None:
    key = await operators_key(own_outbox)
    async with serving(own_config) as served, new_client(served.url, key) as operator:
        going, admin = await provisioned(operator, "going")
        async with new_client(served.url, admin) as client, new_client(served.url, own_tenant.admin) as other:
            assert (await client.put("/_/spec", json={**TAGGED, **NAMES})).status_code == 200
            assert (await other.put("/_/spec", json=TAGGED)).status_code == 200
            mixed = await asyncio.gather(
                bulk(client, *[bulk_line(new_id(), {"total": n}, "was_placed") for n in range(300)]),
                bulk(other, *[bulk_line(new_id(), {"total": 1}, "was_placed") for _ in range(300)]),
            )
            assert {line["status"] for told in mixed for line in told} == {201}
            asked = await operator.delete(f"/_/tenants/{going}")
            assert (asked.status_code, asked.json()["status"]) == (202, "deleting")
            refused(await client.get("/order/global"), 401, "unauthorized")

            async def is_gone() -> bool:
                return bool((await operator.get(f"/_/tenants/{going}")).json()["status"] == "deleted")

            await until(is_gone)
            told = (await operator.get(f"/_/tenants/{going}")).json()
            assert (told["name"], told["deletion"]["events_deleted"] >= 300) == (None, True)
            again = await operator.put(f"/_/tenants/{going}", json={"name": "going"})
            refused(again, 409, "tenant_conflict")
            await provisioned(operator, "going")  # the name is free
            await appended(other, "order", "global", "was_noted")
    assert await own_outbox.fetchval("SELECT count(*) FROM event_tag") == 300
    assert await remains(own_outbox, UUID(going)) == {"outbox", "tenant_deletion", "tenant_storage"}
    row = await own_outbox.fetchrow("SELECT * FROM outbox WHERE tenant = $1 LIMIT 1", UUID(going))
    assert row is not None
    said = {name for name, value in row.items() if value not in (None, "", UUID(int=0))}
    assert said <= PLACE, said - PLACE
    async with open_place(own_config.postgres_url, own_config.redis_url, 5) as place:
        report = await audit(place, NoProgress())
        assert report.ok, report.violations
    redis = Redis.from_url(own_config.redis_url)
    assert [each async for each in redis.scan_iter(f"*s:{UUID(going).hex}:*")] == []
    await redis.aclose()


async def remains(database: asyncpg.Pool, tenant: UUID) -> set[str]:
    """The tables that still name the tenant."""
    rows = await database.fetch(
        """SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant'"""
    )
    found = set()
    for row in rows:
        if await database.fetchval(f"SELECT true FROM {row[0]} WHERE tenant = $1 LIMIT 1", tenant):
            found.add(row[0])
    return found


class NoProgress:
    """Who is told how far an audit has come."""

    def begin(self, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def now(self, doing: str) -> None: ...


async def test_nothing_is_deleted_while_a_gateway_that_is_silent_may_still_act(
    own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[UUID] = []

    async def begin(_: Deletions, tenant: UUID) -> None:
        begun.append(tenant)

    monkeypatch.setattr(Deletions, "_delete", begin)
    deletions = Deletions(own_outbox, cast(Log, None), lambda: True)
    tenant = await tenants.create(own_outbox, "silently-going")
    await tenants.delete(own_outbox, tenant.id)
    # It may have looked at the catalog within REPORT_S after its last word, and acts on that for STALE_S.
    silent = "INSERT INTO catalog_reader VALUES (gen_random_uuid(), 0, now() - interval '6 seconds')"
    await own_outbox.execute(silent)
    await deletions.run_once()
    assert begun == []
    await own_outbox.execute("UPDATE catalog_reader SET seen_at = now() - interval '9 seconds'")
    await deletions.run_once()
    assert begun == [tenant.id]
