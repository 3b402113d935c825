"""Secrets that a spec holds, and keys, are in no answer and in no line of the log, at any level."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any, Final

import asyncpg
import httpx
import pytest

from gateway.telemetry.logs import JsonFormatter
from spec.webhooks.presets import PRESETS
from tests.http.every_route import DECLARED, OPENED, path_of
from tests.http.webhooks import declared
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client, refused, until
from tests.support.serving import Served

HUSH: Final = "aHVzaA"
"""Part of each secret here, and of nothing else."""
SECRET: Final = f"whsec_{HUSH * 6}"
ACTOR: Final = {"type": "webhook", "id": "stripe_webhook"}
TO: Final = {"type": "order", "id": "stripe_webhook", "event": "was_noted"}


def holding(secret: str) -> dict[str, Any]:
    """A spec with a secret in every place that takes one."""
    spec = copy.deepcopy(DECLARED)
    spec["webhooks"] = {
        "plain": {"provider": "github", "secrets": [secret], "to": TO, "actor": ACTOR},
        "rotating": {
            "provider": "github",
            "secrets": [{"secret": secret, "until": "2100-01-01T00:00:00Z"}, f"{secret}AA"],
            "to": TO,
            "actor": ACTOR,
        },
        "meta": {
            "provider": "hmac",
            "header": "X-Hub-Signature-256",
            "prefix": "sha256=",
            "secrets": [secret],
            "handshake": "hub_challenge",
            "verify_token": secret,
            "to": TO,
            "actor": ACTOR,
        },
    }
    stream = f"rediss://me:{secret}@redis.example.com/0"
    spec["subscriptions"] |= {
        "hook": {"target": {"type": "webhook", "url": "https://shop.example.com/", "secret": secret}},
        "stream": {"target": {"type": "redis_stream", "url": stream, "stream": "x"}},
    }
    return spec


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, holding(SECRET))


async def test_no_route_tells_a_secret(
    gateway: Served, client: httpx.AsyncClient, tenant: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def is_served() -> bool:
        return (await client.get("/_/spec")).status_code == 200

    await until(is_served)
    another = holding(f"{SECRET}AAAA")
    told = [await client.post(f"/_/spec/{act}", json=another) for act in ("diff", "try")]
    told.append(await client.put("/_/spec", json=another))
    told.append(await client.post("/_/spec/rollback", json={"revision": 1}))
    for name, each in another["subscriptions"].items():
        told.append(await client.put(f"/_/subscriptions/own-{name}", json={"target": each["target"]}))
    assert [each.status_code for each in told] == [200, 200, 200, 200, 201, 201, 201]
    for key in (tenant.read, tenant.write, tenant.admin):
        async with new_client(gateway.url, key) as reader:
            for route in OPENED:
                if route.method == "GET":
                    told.append(await reader.get(path_of(route)))
            for path in ("/_/subscriptions/hook", "/_/subscriptions/own-stream", "/_/spec?revision=1"):
                told.append(await reader.get(path))
    secrets = (HUSH, tenant.read, tenant.write, tenant.admin)
    for answer in told:
        assert not any(secret in answer.text + str(answer.headers) for secret in secrets), answer.url
    lines = [JsonFormatter().format(each) for each in caplog.records]
    assert [line for line in lines if any(secret in line for secret in secrets)] == []


@pytest.mark.parametrize("provider", sorted(PRESETS))
async def test_a_secret_that_cannot_be_one_is_not_repeated(client: httpx.AsyncClient, provider: str) -> None:
    source = {"provider": provider, "public_base_url": "https://hooks.example.com"}
    answer = await client.put("/_/spec", json=declared(s={**source, "secrets": [f"{HUSH} \u00e9"]}))
    assert answer.status_code in (200, 422)  # some take any text
    assert HUSH not in answer.text
    for secrets in (HUSH, [[HUSH]], [{"secret": [HUSH]}], [{"secret": HUSH, "until": HUSH}]):
        answer = await client.put("/_/spec", json=declared(s={**source, "secrets": secrets}))
        refused(answer, 422, "invalid_spec", more=("faults",))
        assert HUSH not in answer.text


BAD_TARGETS: Final[list[dict[str, Any]]] = [
    {"type": "webhook", "url": f"https://me:{HUSH}@shop.example.com/", "secret": SECRET},
    {"type": "webhook", "url": "https://shop.example.com/", "secret": f"{HUSH} "},
    {"type": "webhook", "url": "https://shop.example.com/", "secret": [HUSH]},
    {"type": "redis_stream", "url": f"redis://:{HUSH}/@shop.example.com:70000", "stream": "x"},
    {"type": "redis_stream", "url": f"rediss://:{HUSH}@@shop.example.com", "stream": "x"},
    {"type": "redis_stream", "url": f"rediss://:{HUSH}@shop.example.com/x", "stream": "x", "maxlen": "1"},
]


@pytest.mark.parametrize("target", BAD_TARGETS, ids=json.dumps)
async def test_a_target_that_cannot_be_one_is_not_repeated(
    client: httpx.AsyncClient, target: dict[str, Any]
) -> None:
    answer = await client.put("/_/subscriptions/bad", json={"target": target})
    assert answer.status_code == 422, answer.text
    assert HUSH not in answer.text
