"""What the rig's tenants declare: one kind of event, whose handler counts and remembers the last."""

from __future__ import annotations

import json
from typing import Any

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

TRIAL = "trial"
"""An aggregate type and a source of webhooks. Of each deployment, the type has an event type of its own, and
the source a secret of its own; so the deployment before it judges both otherwise."""


def trial_event(deployment: int) -> str:
    return f"was_tried_{deployment}"


def trial_secret(deployment: int) -> str:
    return f"trial-secret-{deployment}"


def _source(to: str, event: str, secret: str) -> dict[str, Any]:
    return {
        "provider": "hmac",
        "header": "X-Hook-Signature",
        "id_header": "X-Hook-Delivery",
        "secrets": [secret],
        "to": {"type": to, "id": "$.body.key", "event": event},
        "data": "$.body",
    }


def document(deployment: int) -> bytes:
    """The spec as the deployment of that number has it."""
    return json.dumps(
        {
            "aggregate_types": {
                ORDER: {"events": {EVENT_TYPE: _NOTED}},
                CONFIG: {"events": {EVENT_TYPE: _NOTED}},
                TRIAL: {"events": {trial_event(deployment): _NOTED}},
            },
            "agent_types": ["user", "webhook"],
            "singletons": [*SINGLETONS, f"{HOOK}_webhook", f"{TRIAL}_webhook"],
            "webhooks": {
                HOOK: _source(ORDER, EVENT_TYPE, HOOK_SECRET),
                TRIAL: _source(ORDER, EVENT_TYPE, trial_secret(deployment)),
            },
        }
    ).encode()


SPEC = document(0)
