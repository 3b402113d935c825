"""Tenants for the tests: each with a spec, and a key of each scope."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from gateway.catalog import keys, specs, tenants
from gateway.catalog.model import Scope

_numbers = itertools.count(1)

ANYTHING: dict[str, Any] = {"type": "object"}

# One event type for each thing that a test needs.
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "total": {"type": "number", "minimum": 0},
                            "customer": {
                                "type": "object",
                                "properties": {"email": {"type": "string", "pattern": "@"}},
                            },
                        },
                    }
                },
                "was_noted": {"schema": True, "handler": []},
                "was_named": {
                    "schema": ANYTHING,
                    "handler": {"set": {"target": "customer.name", "value": "$.data.name"}},
                },
                "had_item_added": {
                    "schema": ANYTHING,
                    "handler": [
                        {
                            "append": {
                                "target": "items",
                                "value": {"sku": "$.data.sku", "by": "$.metadata.actor.id"},
                            }
                        },
                        {"increment": {"target": "count"}},
                        {"append_unique": {"target": "skus", "value": "$.data.sku"}},
                    ],
                },
                "had_item_removed": {
                    "schema": ANYTHING,
                    "handler": [
                        {"remove": {"target": "items", "where": {"equals": ["@.sku", "$.data.sku"]}}},
                        {"decrement": {"target": "count", "value": 1}},
                    ],
                },
                "was_cleared": {"schema": ANYTHING, "handler": {"remove": {"target": "items"}}},
            }
        },
        "ticket": {"mint": "humane", "events": {"was_opened": {"schema": ANYTHING}}},
        "config": {"events": {"was_changed": {"schema": ANYTHING}}},
    },
    "agent_types": ["user", "webhook"],
    "target_types": ["order", "user"],
    "singletons": ["stripe_webhook", "main_webhook"],
}


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant and its keys, the secrets as they go into `Authorization`."""

    id: str
    name: str
    admin: str
    write: str
    read: str


async def open_account(database: asyncpg.Pool, spec: dict[str, Any] | None = SPEC) -> Account:
    """A new tenant; without a spec if that is None."""
    tenant = await tenants.create(database, f"tenant-{next(_numbers)}")
    texts = {scope: (await keys.create(database, tenant, scope)).text for scope in Scope}
    if spec is not None:
        accepted = await specs.deploy(database, tenant.id, json.dumps(spec).encode(), {})
        assert isinstance(accepted, specs.Accepted), accepted
    return Account(str(tenant.id), tenant.name, texts[Scope.ADMIN], texts[Scope.WRITE], texts[Scope.READ])


async def revoked(pool: asyncpg.Pool, account: Account, scope: Scope) -> None:
    """Its key of this scope."""
    mine = [each for each in await keys.every(pool) if each.tenant == account.name]
    await keys.revoke(pool, next(each.handle for each in mine if each.scope is scope))
