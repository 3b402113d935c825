"""Specs for these tests, and stored events that may be in the way of them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
from uuid_utils.compat import uuid7

from gateway.catalog import specs
from gateway.catalog.specs import Accepted


def document(types: dict[str, list[str]], singletons: tuple[str, ...] = ()) -> bytes:
    """A spec with these event types in these aggregate types."""
    declared: dict[str, Any] = {
        name: {"events": {event: {"schema": {"type": "object"}} for event in events}}
        for name, events in types.items()
    }
    spec = {"aggregate_types": declared, "agent_types": ["user"], "singletons": list(singletons)}
    return json.dumps(spec).encode()


def with_an_id(identifier: str) -> bytes:
    """A spec that earlier releases accepted, whatever the identifier of what it implies."""
    emit = {"aggregate_type": "order", "id": identifier, "event_type": "was_shipped"}
    spec = json.loads(document({"order": ["was_placed", "was_shipped"]}))
    spec["aggregate_types"]["order"]["events"]["was_placed"]["implications"] = [{"emit": emit}]
    return json.dumps(spec).encode()


ORDERS = document({"order": ["was_placed", "was_shipped"], "invoice": ["was_sent"]}, ("stripe_webhook",))


async def accepted(database: Any, tenant_id: UUID, text: bytes, **options: Any) -> int:
    """Deploys, and returns the revision; anything but acceptance fails the test."""
    outcome = await specs.deploy(database, tenant_id, text, {}, **options)
    assert isinstance(outcome, Accepted), outcome
    return outcome.revision


async def store(
    conn: asyncpg.Connection, tenant_id: UUID, aggregate_type: str, key: str, event_type: str
) -> None:
    """An event in the outbox, as the log would commit it."""
    await conn.execute(
        """
        INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev, append_id,
                            digest, aggregate_type, aggregate_id, type, actor_type, actor_id)
        SELECT 0, coalesce(max(seq), 0) + 1, 1, now(), $1, $2, $1, 1, '', '', $3, $4, $5, 'user', 'global'
        FROM outbox
        """,
        uuid7(),
        tenant_id,
        aggregate_type,
        key,
        event_type,
    )
