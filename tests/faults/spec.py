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

SPEC = json.dumps(
    {
        "aggregate_types": {
            ORDER: {"events": {EVENT_TYPE: _NOTED}},
            CONFIG: {"events": {EVENT_TYPE: _NOTED}},
        },
        "agent_types": ["user"],
        "singletons": list(SINGLETONS),
    }
).encode()
