"""403 `storage_full`: a tenant that stores all it may. What is committed is told all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.log.postgres import Postgres
from gateway.log.storage import ROW_BYTES, Storage
from gateway.postgres.errors import PostgresTrouble
from gateway.setting_rows import KIB
from tests.http.webhooks import SOURCES, open_hooks
from tests.support.accounts import Account, open_account
from tests.support.calls import append, envelope, new_client, new_id, refused, until
from tests.support.serving import Served, serving
from tests.telemetry.scrape import scrape

TOKEN = "for-the-tests"
MOST = 40 * KIB


@pytest.fixture
async def served(own_config: Config) -> AsyncIterator[Served]:
    async with serving(replace(own_config, tenant_bytes_max=MOST, metrics_token=TOKEN)) as served:
        yield served


async def fill(client: httpx.AsyncClient) -> None:
    """Until appends are refused."""

    async def full() -> bool:
        answer = await append(client, "order", new_id(), "was_noted", "x" * 20 * KIB)
        if answer.status_code == 201:
            return False
        refused(answer, 403, "storage_full")
        return True

    await until(full)


async def test_a_full_tenant_is_refused_and_its_repeats_are_answered(
    served: Served, own_tenant: Account, own_outbox: asyncpg.Pool
) -> None:
    async with new_client(served.url, own_tenant.write) as client:
        path, keyed = f"/order/{new_id()}/was_noted", {"idempotency-key": "first"}
        first = await client.post(path, json=envelope("x"), headers=keyed)
        assert first.status_code == 201
        await fill(client)
        again = await client.post(path, json=envelope("x"), headers=keyed)
        assert (again.status_code, again.json()) == (201, first.json())
        assert again.headers["idempotency-replayed"] == "true"
        refused(await client.post(path, json=envelope("y")), 403, "storage_full")
        line = {"aggregate_type": "order", "key": path.split("/")[2], "type": "was_noted", **envelope("x")}
        lines = [line, {**line, "type": "was_eaten"}]
        told = await client.post(
            "/_/bulk",
            content=b"\n".join(json.dumps(each).encode() for each in lines),
            headers={"content-type": "application/x-ndjson"},
        )
        statuses = [json.loads(each)["status"] for each in told.text.splitlines()]
        assert statuses == [403, 404]
        assert (await client.get(f"/order/{path.split('/')[2]}/events")).status_code == 200
    neighbour = await open_account(own_outbox)
    async with new_client(served.url, neighbour.write) as other:

        async def let_in() -> bool:
            return (await append(other, "order", new_id(), "was_noted")).status_code == 201

        await until(let_in)


async def test_a_full_tenants_webhooks_are_to_come_again(served: Served, own_outbox: asyncpg.Pool) -> None:
    async with new_client(served.url, None) as stranger:
        hooks = await open_hooks(own_outbox, stranger, SOURCES)
        first = await hooks.taken("stripe", {"id": "evt_1"})

        async def full() -> bool:
            answer = await hooks.send("stripe", {"id": new_id(), "note": "x" * 20 * KIB})
            if answer.status_code == 202:
                return False
            refused(answer, 503, "not_committed")
            assert answer.headers["retry-after"] == "60"
            return True

        await until(full)
        assert await hooks.taken("stripe", {"id": "evt_1"}) == {**first, "duplicate": True}


async def test_each_event_is_counted_once_with_its_row(
    served: Served, own_tenant: Account, own_outbox: asyncpg.Pool
) -> None:
    key = new_id()
    async with new_client(served.url, own_tenant.write) as client, new_client(served.url, TOKEN) as operator:
        for _ in range(3):
            assert (await append(client, "order", key, "was_noted", "abc")).status_code == 201
        handle, specs = await own_outbox.fetchrow(
            "SELECT handle, spec_bytes FROM tenant WHERE id = $1", own_tenant.id
        )
        rows = await own_outbox.fetch("SELECT payload, extra FROM outbox WHERE tenant = $1", own_tenant.id)
        size = sum(ROW_BYTES + len(row["payload"]) + len(row["extra"] or b"") + len(key) for row in rows)
        size += specs

        async def counted() -> bool:
            page = await operator.get("/_/metrics")
            return f'sluice_tenant_bytes{{handle="{handle}"}} {float(size)}' in page.text

        await until(counted)
        events = await own_outbox.fetchval(
            "SELECT events FROM tenant_storage WHERE tenant = $1", own_tenant.id
        )
        assert events == 3
        assert (await scrape(operator))("sluice_tenant_bytes", handle=handle) == size


async def test_where_nothing_is_appended_no_row_is_locked(
    served: Served, own_tenant: Account, own_outbox: asyncpg.Pool
) -> None:
    """A lock on a row is a write of Postgres: one a second and partition, for as long as a gateway idles."""
    async with new_client(served.url, own_tenant.write) as client:
        assert (await append(client, "order", new_id(), "was_noted")).status_code == 201

    async def counted() -> bool:
        return await own_outbox.fetchval("SELECT coalesce(sum(events), 0) FROM tenant_storage") > 0

    await until(counted)
    locked = "SELECT p FROM storage_mark WHERE xmax::text <> '0' AND seq = 0"
    storage = Storage(Postgres(own_outbox), 0)
    await storage.run_once()
    assert await own_outbox.fetch(locked) == []


async def test_what_keeps_tenants_from_being_counted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Denied:
        async def fetch(self, name: str, *_: object) -> list[object]:
            raise PostgresTrouble("permission denied for table storage_mark")

    async def logged() -> bool:
        return "storage_not_counted" in caplog.messages

    counting = asyncio.create_task(Storage(Denied(), 0).run())  # type: ignore[arg-type]
    await until(logged)
    counting.cancel()
    await asyncio.wait([counting])
    assert caplog.records[0].reason == "permission denied for table storage_mark"  # type: ignore[attr-defined]


async def test_revisions_of_a_spec_count_and_a_full_tenant_deploys_no_other(
    served: Served, own_outbox: asyncpg.Pool
) -> None:
    account = await open_account(own_outbox)
    async with new_client(served.url, account.admin) as client:
        deployed = (await client.get("/_/spec")).json()["spec"]
        sent = [deployed]

        async def full() -> bool:
            sent.append({**deployed, "agent_types": ["user", *[f"user_{len(sent)}_{n}" for n in range(500)]]})
            answer = await client.put("/_/spec", json=sent[-1])
            if answer.status_code == 200:
                return False
            refused(answer, 403, "storage_full")
            return True

        await until(full)
        again = await client.put("/_/spec", json=sent[-2])
        assert (again.status_code, again.json()["changed"]) == (200, False)
        refused(await client.post("/_/spec/rollback", json={"revision": 1}), 403, "storage_full")
        refused(await append(client, "order", new_id(), "was_noted"), 403, "storage_full")
        stored = "SELECT sum(700 + octet_length(document)) FROM spec_revision WHERE tenant = $1"
        counted = "SELECT spec_bytes FROM tenant WHERE id = $1"
        assert await own_outbox.fetchval(counted, UUID(account.id)) == await own_outbox.fetchval(
            stored, UUID(account.id)
        )
