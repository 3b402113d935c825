"""A deployed spec that this gateway can't read, or not all of: what works, and what the rest is told."""

from __future__ import annotations

import asyncpg
import pytest

from gateway.catalog.secrets import prefix_of
from gateway.config import Config
from tests.http.webhooks import SOURCES, Hooks, declared
from tests.support.accounts import SPEC, open_account
from tests.support.calls import JSON, NDJSON, append, appended, bulk_line, lines, new_client, new_id, refused
from tests.support.serving import serving


async def test_a_secret_that_is_not_set_at_a_start_closes_only_its_source(
    own_config: Config, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await open_account(own_outbox, None)
    old = f"{prefix_of(account.name)}OLD"
    held = {"provider": "github", "secrets": ["new", f"env:{old}"]}
    spec = declared(held=held, stripe=SOURCES["stripe"])
    target = {"type": "webhook", "url": "https://a.example/", "secret": f"env:{old}"}
    spec["subscriptions"] = {"out": {"target": target}}
    for document in (spec, {"spec": {**spec, "target_types": ["repository"]}}):
        monkeypatch.setenv(old, "b2xk")
        async with serving(own_config) as served, new_client(served.url, account.admin) as client:
            response = await client.put("/_/spec", json=document)
            assert response.status_code == 200, response.text
            revision = response.json()["revision"]
        monkeypatch.delenv(old)
        async with serving(own_config) as served, new_client(served.url, account.admin) as client:
            hooks = Hooks(account, declared(stripe=SOURCES["stripe"]), client)
            response = await client.post(hooks.path("held"), content=b"{}")
            refused(response, 503, "not_committed")
            assert "secret" in response.json()["error"]
            refused(await client.post(hooks.path("nobody"), content=b"{}"), 404, "not_found")
            assert (await hooks.send("stripe", {"id": f"evt_{revision}"})).status_code == 202
            await appended(
                client, "repository", new_id(), "was_notified", actor={"type": "user", "id": "global"}
            )
            shown = (await client.get("/_/spec")).json()
            assert (shown["revision"], set(shown["spec"]["webhooks"])) == (revision, {"held", "stripe"})
            response = await client.put("/_/spec", json=spec)
            refused(response, 422, "invalid_spec", more=("faults",))
            codes = {fault["code"] for fault in response.json()["faults"]}
            assert codes == {"missing_secret"}


async def test_where_no_spec_could_be_read_answers_say_so_until_one_is_deployed(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    hooked = declared(stripe=SOURCES["stripe"])
    account = await open_account(own_outbox, hooked)
    await own_outbox.execute(
        "UPDATE spec_revision SET document = $2 WHERE tenant = $1::uuid", account.id, b'{"holograms": {}}'
    )
    async with serving(own_config) as served, new_client(served.url, account.admin) as client:
        hooks = Hooks(account, hooked, client)
        for response in (
            await append(client, "order", "global", "was_noted"),
            await client.post("/order", content=b"{}", headers=JSON),
            await client.post("/_/bulk", content=lines(bulk_line("global")), headers=NDJSON),
            await hooks.send("stripe", {"id": "evt_1"}),
        ):
            refused(response, 503, "not_committed")
            assert "can't read the spec" in response.json()["error"]
        reads = ("/order/global", "/order/global/length", "/_/spec", "/_/openapi.json", "/_/resolve/order~1")
        for path in reads:
            refused(await client.get(path), 503, "unavailable")
        refused(await client.post("/_/ids/check", json={"ids": []}), 503, "unavailable")
        assert (await client.get("/_/ids/humane")).status_code == 200
        assert (await client.put("/_/spec?force=true", json=SPEC)).status_code == 200
        await appended(client, "order", "global", "was_noted")


async def test_a_tenant_without_a_spec_has_none_and_is_told_so(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    account = await open_account(own_outbox, None)
    async with serving(own_config) as served, new_client(served.url, account.admin) as client:
        refused(await client.get("/_/spec"), 404, "not_found")
        refused(await append(client, "order", "global", "was_noted"), 404, "unknown_aggregate_type", "type")
