"""Twelve incompatible changes of a spec, and where each of them meets what is stored."""

from __future__ import annotations

import copy
from typing import Any

import httpx

from tests.support.calls import appended, new_id

NAMED: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {
                        "type": "object",
                        "properties": {"total": {"type": "integer"}, "status": {"enum": ["new", "old"]}},
                    }
                },
                "was_paid": {"schema": {"type": "object"}},
            }
        },
        "parcel": {"events": {"was_sent": {"schema": {}}}},
    },
    "agent_types": ["user", "service"],
    "target_types": ["order"],
    "singletons": ["order_service", "settings"],
    "public_ids": {"key": "ORD", "types": ["order"]},
}
_PLACED = ("aggregate_types", "order", "events", "was_placed", "schema")


def _with(*places: tuple[str, ...], value: object = None) -> dict[str, Any]:
    """NAMED with another value at each of these places; without them where that is None."""
    spec = copy.deepcopy(NAMED)
    for place in places:
        inner = spec
        for name in place[:-1]:
            inner = inner[name]
        if value is None:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
    return spec


TWELVE: dict[str, tuple[dict[str, Any], str]] = {
    "another type of a property": (
        _with((*_PLACED, "properties", "total"), value={"type": "string"}),
        "/aggregate_types/order/events/was_placed/schema",
    ),
    "a property that is required": (
        _with((*_PLACED, "required"), value=["email"]),
        "/aggregate_types/order/events/was_placed/schema",
    ),
    "fewer values of a property": (
        _with((*_PLACED, "properties", "status"), value={"enum": ["old"]}),
        "/aggregate_types/order/events/was_placed/schema",
    ),
    "no more properties": (
        _with((*_PLACED, "additionalProperties"), value=False),
        "/aggregate_types/order/events/was_placed/schema",
    ),
    "no event of the type": (
        _with(_PLACED, value={"not": {}}),
        "/aggregate_types/order/events/was_placed/schema",
    ),
    "without an event type": (
        _with(("aggregate_types", "order", "events", "was_paid")),
        "/aggregate_types/order/events/was_paid",
    ),
    "without an aggregate type": (_with(("aggregate_types", "parcel")), "/aggregate_types/parcel"),
    "without an agent type": (_with(("agent_types",), value=["user"]), "/agent_types"),
    "without a target type": (_with(("target_types",), value=[]), "/target_types"),
    "without a singleton that acts": (_with(("singletons",), value=["settings"]), "/singletons/0"),
    "without a singleton that has a stream": (
        _with(("singletons",), value=["order_service"]),
        "/singletons/1",
    ),
    "another key of public ids": (_with(("public_ids", "key"), value="BST"), "/public_ids/key"),
}


async def append_what_is_in_the_way(client: httpx.AsyncClient) -> int:
    """The events that the changes meet, in a tenant whose spec is NAMED; how many."""
    key = new_id()
    acting = {"actor": {"type": "service", "id": "order_service"}}
    target = {"target": {"type": "order", "id": key}}
    placed = {"total": 5, "status": "new", "note": ""}
    await appended(client, "order", key, "was_placed", placed, {"prefer": "wait"}, **acting)
    await appended(client, "order", key, "was_paid", {}, **target)
    await appended(client, "parcel", "settings", "was_sent", {})
    return 3
