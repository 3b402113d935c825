"""A tenant with sources of webhooks, and senders that sign as their providers do."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx

from gateway.catalog.secrets import Secrets
from gateway.inbound.request import Request
from gateway.inbound.signing import sign
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.sources import Source
from tests.support.accounts import Account, open_account
from tests.support.calls import DEADLINE_S

ANYTHING: dict[str, Any] = {"type": "object"}
NEEDS_TYPE: dict[str, Any] = {
    "type": "object",
    "properties": {"body": {"type": "object", "required": ["type"]}},
}


def to(event: str = "was_received", **more: str) -> dict[str, str]:
    return {"type": "webhook_log", "id": "some_webhook", "event": event} | more


def declared(**sources: dict[str, Any]) -> dict[str, Any]:
    """A spec with these sources, whose actor is `some_webhook`."""
    actor = {"type": "webhook", "id": "some_webhook"}
    return {
        "aggregate_types": {
            "webhook_log": {
                "events": {
                    "was_received": {"schema": ANYTHING, "handler": []},
                    "was_typed": {"schema": NEEDS_TYPE, "handler": []},
                }
            },
            "repository": {
                "events": {"was_notified": {"schema": ANYTHING}, "was_pushed": {"schema": ANYTHING}}
            },
        },
        "agent_types": ["webhook", "user"],
        "singletons": ["some_webhook"],
        "webhooks": {name: {"to": to(), "actor": actor, **source} for name, source in sources.items()},
    }


SOURCES: dict[str, dict[str, Any]] = {
    "stripe": {"provider": "stripe", "secrets": ["whsec_one"]},
    "github": {"provider": "github", "secrets": ["new", "old"]},
    "typed": {
        "provider": "hmac",
        "header": "X-Sig",
        "id_header": "X-Id",
        "secrets": ["s"],
        "to": to("was_typed"),
    },
    "repositories": {
        "provider": "github",
        "secrets": ["s"],
        "to": {"type": "repository", "source_id": "$.body.repository.id", "event": "$.body.event"},
        "data": {"name": "$.body.repository.name?", "by": "$.headers.x-github-event", "id": "$.delivery_id"},
        "headers": ["X-Kind"],
    },
    "twilio": {"provider": "twilio", "secrets": ["s"], "public_base_url": "https://hooks.example.com"},
    "gocardless": {"provider": "gocardless", "secrets": ["s"]},
    "slack": {"provider": "slack", "secrets": ["s"], "handshake": "url_verification"},
    "meta": {
        "provider": "hmac",
        "header": "X-Hub-Signature-256",
        "prefix": "sha256=",
        "secrets": ["s"],
        "batch": "$.body.entry",
        "delivery_id": "$.body.id",
        "handshake": "hub_challenge",
        "verify_token": "meatyhamhock",
    },
    "graph": {"unsigned": True, "handshake": "validation_token"},
    "x": {
        "provider": "hmac",
        "header": "X-Twitter-Webhooks-Signature",
        "secrets": ["Convoy"],
        "handshake": "crc",
    },
    "timed": {
        "provider": "hmac",
        "header": "X-Sig",
        "signed": ["timestamp", ".", "body"],
        "timestamp_header": "X-At",
        "secrets": ["timed"],
        "handshake": "crc",
    },
    "braintree": {
        "provider": "braintree",
        "secrets": ["integration_public_key|integration_private_key"],
        "handshake": "bt_challenge",
    },
    "messages": {
        "provider": "http_message_signatures",
        "secrets": ["whsec_" + "a2tr" * 8],
        "public_base_url": "https://hooks.example.com",
    },
    "dropbox": {
        "provider": "hmac",
        "header": "X-Dropbox-Signature",
        "secrets": ["s"],
        "handshake": "challenge",
    },
    "zoom": {
        "provider": "hmac",
        "header": "x-zm-signature",
        "prefix": "v0=",
        "signed": ["v0:", "timestamp", ":", "body"],
        "timestamp_header": "x-zm-request-timestamp",
        "secrets": ["s"],
        "handshake": "plain_token",
    },
    "adobe": {"provider": "adobe_sign", "secrets": ["client"], "handshake": "client_id"},
    "clouds": {"unsigned": True, "id_header": "Ce-Id", "handshake": "cloudevents"},
}


@dataclass(frozen=True)
class Hooks:
    """A tenant's sources at a gateway."""

    account: Account
    spec: dict[str, Any]
    client: httpx.AsyncClient

    def source(self, name: str) -> Source:
        parsed = parse(self.spec, Secrets({}).of("main"))
        assert isinstance(parsed, Spec), parsed
        return parsed.webhooks[name]

    def path(self, name: str) -> str:
        return f"/_/webhooks/{self.account.name}/{name}"

    def signed(self, name: str, body: bytes, delivery_id: str = "dlv_1", **headers: str) -> dict[str, str]:
        """The headers of a request by this source's provider, signed now."""
        more = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        raw = tuple((key.lower().encode(), value.encode()) for key, value in more.items())
        request = Request(b"POST", self.path(name).encode(), b"", raw, body)
        made = sign(self.source(name), request, time.time_ns() // 1_000_000, delivery_id)
        return {key.decode(): value.decode() for key, value in made.headers}

    async def send(
        self, name: str, body: object, delivery_id: str = "dlv_1", **headers: str
    ) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = self.signed(name, raw, delivery_id, **headers)
        return await self.client.post(self.path(name), content=raw, headers=signed)

    async def taken(self, name: str, body: object, delivery_id: str = "dlv_1", **headers: str) -> Any:
        response = await self.send(name, body, delivery_id, **headers)
        assert response.status_code == 202, response.text
        return response.json()

    async def events(self, aggregate_type: str = "webhook_log", key: str = "some_webhook") -> list[Any]:
        response = await self.client.get(
            f"/{aggregate_type}/{key}/events?limit=1000",
            headers={"authorization": f"Bearer {self.account.admin}"},
        )
        return [] if response.status_code == 404 else response.json()["events"]

    async def deploy(self, spec: dict[str, Any]) -> httpx.Response:
        return await self.client.put(
            "/_/spec", json=spec, headers={"authorization": f"Bearer {self.account.admin}"}
        )


async def open_hooks(
    outbox: asyncpg.Pool,
    client: httpx.AsyncClient,
    sources: dict[str, dict[str, Any]],
    **was_pushed: object,
) -> Hooks:
    """A new tenant with these sources, which the gateway knows. `was_pushed`: what that event type declares
    besides."""
    spec = declared(**sources)
    spec["aggregate_types"]["repository"]["events"]["was_pushed"].update(was_pushed)
    hooks = Hooks(await open_account(outbox, spec), spec, client)
    path, deadline = hooks.path(next(iter(sources))), time.monotonic() + DEADLINE_S
    while (await client.request("OPTIONS", path)).status_code == 404:
        assert time.monotonic() < deadline, "the gateway never heard of the spec"
        await asyncio.sleep(0.02)
    return hooks


async def kept(outbox: asyncpg.Pool, hooks: Hooks, count: int) -> list[asyncpg.Record]:
    """The tenant's raw deliveries, oldest first, once there are so many: they follow their answers."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = await outbox.fetch(
            "SELECT * FROM webhook_delivery WHERE tenant = $1::uuid ORDER BY id", hooks.account.id
        )
        if len(rows) >= count:
            assert len(rows) == count, rows
            return list(rows)
        assert time.monotonic() < deadline, rows
        await asyncio.sleep(0.02)
