"""Subscriptions that specs declare, where not all that the specs name is there."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog import specs, tenants
from gateway.relay import after_deploys, subscriptions
from gateway.relay import relay as relay_module
from gateway.relay.database import fetch
from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, WebReceiver
from tests.support.accounts import SPEC
from tests.support.calls import new_id
from tests.support.drive import Proceed, interpose

SOURCE = {
    "provider": "stripe",
    "secrets": ["env:SLUICE_SECRET_NOT_HERE"],
    "to": {"type": "order", "id": "stripe_webhook", "event": "was_noted"},
}


async def _deploy(bench: Bench, tenant: uuid.UUID, spec: dict[str, Any]) -> None:
    """By a gateway that has the secrets that the spec names, unlike the relay of the test."""
    environ = {"SLUICE_SECRET_NOT_HERE": SECRET, "SLUICE_ALLOW_PRIVATE_TARGETS": "on"}
    accepted = await specs.deploy(bench.pool, tenant, json.dumps(spec).encode(), environ)
    assert isinstance(accepted, specs.Accepted), accepted


async def test_a_relay_without_the_secret_of_a_webhook_source_delivers_what_the_spec_declares(
    bench: Bench, receiver: WebReceiver
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
    declared = {"all": {"start": "beginning", "target": target}}
    await _deploy(bench, bench.tenant, {**SPEC, "webhooks": {"stripe": SOURCE}, "subscriptions": declared})
    await bench.append([new_id()])
    async with bench.relaying():
        await until(lambda: len(receiver.deliveries) == 1)


async def test_a_declared_subscription_whose_secret_is_nowhere_says_so(
    bench: Bench, receiver: WebReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    target = {"type": "webhook", "url": receiver.url, "secret": "env:SLUICE_SECRET_NOT_HERE"}
    await _deploy(bench, bench.tenant, {**SPEC, "subscriptions": {"all": {"target": target}}})

    async def told() -> bool:
        return "SLUICE_SECRET_NOT_HERE" in ((await bench.stands("all"))["why"] or "")

    async with bench.relaying(lease_s=0.2) as relay:
        await until(told)
        for _ in range(3):
            await relay.look()
    assert caplog.messages.count("subscription_unusable") == 1


async def test_specs_that_can_not_be_read_keep_no_other_tenant_from_its_subscriptions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriptions, "SPECS_AT_ONCE", 5)
    for n in range(20):
        other = await tenants.create(bench.pool, f"unread-{n}-{uuid.uuid4().hex[:8]}")
        await _deploy(bench, other.id, SPEC)
        await bench.pool.execute(
            "UPDATE spec_revision SET document = '{\"newer\": 1}' WHERE tenant = $1", other.id
        )
    declaring = await tenants.create(bench.pool, f"declaring-{uuid.uuid4().hex[:8]}")
    await _deploy(bench, declaring.id, {**SPEC, "subscriptions": {"all": {"target": {"type": "pull"}}}})
    await bench.pool.execute("DELETE FROM subscribed_spec")

    async def stands() -> bool:
        await bench.subscriptions.declare()
        found = await bench.pool.fetchval("SELECT count(*) FROM subscription WHERE tenant = $1", declaring.id)
        return bool(found == 1)

    await until(stands)
    for _ in range(20):
        await bench.subscriptions.declare()
    told = [each for each in caplog.records if each.message == "subscription_unusable"]
    assert len({each.tenant for each in told}) == len(told) <= 20  # type: ignore[attr-defined]


async def test_a_relay_looks_specs_up_after_they_changed_and_not_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_deploys, "ANYWAY_EVERY_S", 60.0)
    monkeypatch.setattr(subscriptions, "SPECS_AT_ONCE", 10_000)
    serving, looks = [object()], 0

    async def around(proceed: Proceed, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await proceed()

    async with bench.relaying(deployed=lambda: serving[0]) as relay:
        await relay.look()
        interpose(bench.subscriptions, "declare", around)
        for _ in range(3):
            await relay.look()
        assert looks == 0
        serving[0] = object()
        await relay.look()
        assert looks > 0


async def test_certificates_are_read_beside_the_event_loop_and_once_for_all_targets(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes tens of milliseconds, in which a gateway would do nothing else."""
    readers: list[threading.Thread] = []
    read = httpx.create_ssl_context

    def noted() -> ssl.SSLContext:
        readers.append(threading.current_thread())
        return read()

    monkeypatch.setattr(httpx, "create_ssl_context", noted)
    for name in ("one", "other"):
        await bench.put(name, {"type": "webhook", "url": receiver.url, "secret": SECRET})
    await bench.append([new_id()])
    async with bench.relaying():
        await until(lambda: len(receiver.deliveries) == 2)
    assert len(readers) == 1
    assert readers[0] is not threading.main_thread()


@pytest.mark.bug
async def test_commits_are_told_of_again_after_a_bug(
    bench: Bench, receiver: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop's RuntimeError of a connection that is closed in this very moment: nothing was delivered any
    more."""
    fails = [RuntimeError("unable to perform operation on a closed transport")]

    async def failing(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        if name == "heads" and fails:
            raise fails.pop()
        return await fetch(pool, name, *args)

    monkeypatch.setattr(relay_module, "fetch", failing)
    await bench.put("all", {"type": "webhook", "url": receiver.url, "secret": SECRET})
    async with bench.relaying():
        for n in range(1, 4):
            await bench.append([new_id()])
            await until(lambda: len(receiver.deliveries) == n)  # noqa: B023
    assert not fails
