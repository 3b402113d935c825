"""A tenant in which something of each kind waits for a person."""

from __future__ import annotations

from typing import Any

import httpx

from tests.relay.receivers import SECRET, Answer, WebReceiver
from tests.support.accounts import Account
from tests.support.calls import appended, new_id

SPEC: dict[str, Any] = {
    "aggregate_types": {
        "cart": {
            "events": {
                "checkout_started": {"schema": {}},
                "had_expired": {
                    "schema": {},
                    "rules": [{"require": {"exists": "@.old"}, "error": "Too young."}],
                },
                "was_aged": {"schema": {}},
                "was_shipped": {
                    "schema": {},
                    "rules": [{"require": {"exists": "@.paid"}, "error": "Not paid."}],
                },
            }
        },
        "inventory": {
            "events": {
                "was_reserved": {"schema": {}},
                "was_jammed": {"schema": {}},
                "was_freed": {"schema": {}, "handler": {"remove": {"target": "jammed"}}},
                "was_released": {
                    "schema": {},
                    "rules": [{"require": {"not": {"exists": "@.jammed"}}, "error": "It is jammed."}],
                },
            }
        },
        "payment": {"events": {"was_received": {"schema": {"properties": {"amount": {"type": "number"}}}}}},
    },
    "agent_types": ["user", "webhook"],
    "singletons": ["the_bank"],
    "webhooks": {
        "bank": {
            "unsigned": True,
            "to": {"type": "payment", "id": "the_bank", "event": "was_received"},
            "actor": {"type": "webhook", "id": "the_bank"},
            "data": {"amount": "$.body.amount"},
        }
    },
    "projections": {"carts": {"on": {"cart.checkout_started": {"key": "$.key", "do": []}}}},
    "sagas": {
        "checkout": {
            "trigger": {"aggregate_type": "cart", "event_type": "checkout_started"},
            "steps": [
                {
                    "name": "reserve",
                    "emit": {"aggregate_type": "inventory", "id": "$.data.sku", "event_type": "was_reserved"},
                    "compensate": {
                        "aggregate_type": "inventory",
                        "id": "$.data.sku",
                        "event_type": "was_released",
                    },
                },
                {
                    "name": "ship",
                    "emit": {"aggregate_type": "cart", "id": "$.key", "event_type": "was_shipped"},
                },
            ],
        }
    },
}


async def break_something(
    client: httpx.AsyncClient, receiver: WebReceiver, account: Account, said: str = "It is closed."
) -> tuple[str, str]:
    """A webhook in quarantine, a parked delivery, a parked timer, a stuck saga; the keys of a cart and of
    what was jammed. `said`: by the receiver, and by the provider."""
    cart, sku = new_id(), new_id()
    receiver.answer = lambda _: Answer(500, body=said.encode())
    target = {"type": "webhook", "url": receiver.url, "secret": SECRET, "retry_s": []}
    document = {"target": target, "filter": {"event_types": ["checkout_started"]}}
    assert (await client.put("/_/subscriptions/shipping", json=document)).status_code == 201
    await appended(client, "inventory", sku, "was_jammed", {"jammed": True})
    await appended(client, "cart", cart, "checkout_started", {"sku": sku})
    emit = {"aggregate_type": "cart", "id": cart, "event_type": "had_expired"}
    timer = {"due_at": "2020-01-01T00:00:00Z", "emit": emit}
    answer = await client.post("/_/schedules", json=timer, headers={"idempotency-key": new_id()})
    assert answer.status_code == 201, answer.text
    sent = await client.post(f"/_/webhooks/{account.name}/bank", json={"sum": 1, "note": said})
    assert sent.json().get("quarantined"), sent.text
    return cart, sku


async def all_broken(client: httpx.AsyncClient) -> bool:
    """Whether that has come to be."""

    async def get(path: str) -> Any:
        return (await client.get(path)).json()

    return bool(
        (await get("/_/sagas?state=stuck"))["items"]
        and (await get("/_/schedules?state=parked"))["items"]
        and (await get("/_/subscriptions/shipping"))["parked"]
        and (await get("/_/projections"))["projections"][0]["state"] == "live"
    )
