"""What the campaign declares: orders that imply a credit and expire unless they are paid; carts with a
saga."""

from __future__ import annotations

from typing import Any

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
DELAY_S = 1.5
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {},
                    "implications": [
                        {"emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_credited"}},
                        {
                            "schedule": {
                                "delay_ms": int(DELAY_S * 1000),
                                "emit": {
                                    "aggregate_type": "order",
                                    "id": "$.key",
                                    "event_type": "had_expired",
                                },
                                "cancel_on": [
                                    {"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}
                                ],
                            }
                        },
                    ],
                },
                "was_paid": {"schema": {}},
                "had_expired": {"schema": {}},
            }
        },
        "account": {"events": {"was_credited": {"schema": {}}}},
        "cart": {"events": {"was_checked_out": {"schema": {}}, "was_shipped": {"schema": {}}}},
        "stock": {
            "events": {
                "reservation_asked": {"schema": {}},
                "was_reserved": {"schema": {}},
                "reservation_failed": {"schema": {}},
                "was_released": {"schema": {}},
            }
        },
        "payment": {"events": {"charge_asked": {"schema": {}}, "was_refunded": {"schema": {}}}},
    },
    "agent_types": ["user"],
    "sagas": {
        "checkout": {
            "trigger": {"aggregate_type": "cart", "event_type": "was_checked_out"},
            "steps": [
                {
                    "name": "reserve",
                    "emit": {"aggregate_type": "stock", "id": "$.key", "event_type": "reservation_asked"},
                    "await": {
                        "aggregate_type": "stock",
                        "event_types": ["was_reserved", "reservation_failed"],
                    },
                    "fail_on": ["reservation_failed"],
                    "compensate": {"aggregate_type": "stock", "id": "$.key", "event_type": "was_released"},
                    "timeout_ms": 3000,
                },
                {
                    "name": "charge",
                    "emit": {"aggregate_type": "payment", "id": "$.key", "event_type": "charge_asked"},
                    "compensate": {"aggregate_type": "payment", "id": "$.key", "event_type": "was_refunded"},
                },
                {
                    "name": "ship",
                    "emit": {"aggregate_type": "cart", "id": "$.key", "event_type": "was_shipped"},
                },
            ],
        }
    },
}
