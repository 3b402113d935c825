"""What the rig's tenants declare: one kind of event, whose handler counts and remembers the last."""

from __future__ import annotations

import json

_NOTED = {
    "schema": True,
    "handler": [
        {"increment": {"target": "count"}},
        {"set": {"target": "last", "value": "$.data.op"}},
    ],
}
EVENT_TYPE = "was_noted"
ORDER = "order"
CONFIG = "config"
SINGLETONS = ("main", "side")
HOOK = "hook"
HOOK_SECRET = "hook-secret"
"""Of the source of webhooks that each tenant has: a body becomes the data of an event of ORDER."""

SPEC = json.dumps(
    {
        "aggregate_types": {
            ORDER: {"events": {EVENT_TYPE: _NOTED}},
            CONFIG: {"events": {EVENT_TYPE: _NOTED}},
        },
        "agent_types": ["user", "webhook"],
        "singletons": [*SINGLETONS, f"{HOOK}_webhook"],
        "webhooks": {
            HOOK: {
                "provider": "hmac",
                "header": "X-Hook-Signature",
                "id_header": "X-Hook-Delivery",
                "secrets": [HOOK_SECRET],
                "to": {"type": ORDER, "id": "$.body.key", "event": EVENT_TYPE},
                "data": "$.body",
            }
        },
    }
).encode()
