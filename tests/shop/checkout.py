"""A shop's checkout, as an application writes it: four appends, each under a key derived from the cart.

    SLUICE_URL=… SLUICE_KEY_FILE=… python checkout.py CART ITEM

Says each step before it and after it, with the receipt, and continues when it reads a line: what started it
may end it anywhere. It uses only what `pip install sluice-gateway` installs.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.client import Actor, AsyncClient, Conflict, Receipt, Refused

ACTOR = Actor("service", "checkout")
CARTS = uuid.UUID("8d0f8e3e-0a52-4c57-9d63-3f8a5f0f3a11")
STEPS = ("register", "reserve", "place", "confirm")

Checkpoint = Callable[[str, dict[str, object] | None], Awaitable[None]]


def key_of(kind: str, cart: str) -> str:
    """Of the customer or the order of a cart: the same in every life and every language."""
    return str(uuid.uuid5(CARTS, f"{kind}:{cart}"))


async def check_out(sluice: AsyncClient, cart: str, item: str, at: Checkpoint) -> bool:
    """False where the item is sold out: nothing is ordered then. May be called again, whatever happened."""
    customer, order = key_of("customer", cart), key_of("order", cart)

    async def step(name: str, appended: Callable[[], Awaitable[Receipt]]) -> None:
        await at(name, None)
        receipt = await appended()
        told = {"key": receipt.key, "event_id": receipt.event_id, "length": receipt.length}
        await at(name, {**told, "aliases": list(receipt.aliases)})

    def keyed(name: str) -> str:
        return f"{cart}:{name}"

    await step(
        "register",
        lambda: sluice.append(
            "customer", customer, "was_registered", {"name": cart},
            actor=ACTOR, idempotency_key=keyed("register"), wait=True,
        ),
    )  # fmt: skip
    try:
        await step(
            "reserve",
            lambda: sluice.append(
                "item", item, "was_reserved", {"order": order, "quantity": 1},
                actor=ACTOR, event_id=str(uuid.uuid5(CARTS, keyed("reserve"))),
            ),
        )  # fmt: skip
    except Refused as refused:
        if refused.code != "rule_violated":
            raise
        return False
    await step(
        "place",
        lambda: sluice.append(
            "order", order, "was_placed", {"customer": customer, "item": item},
            actor=ACTOR, previous_length=0, idempotency_key=keyed("place"), wait=True,
        ),
    )  # fmt: skip
    await step("confirm", lambda: _confirm(sluice, order, keyed("confirm")))
    return True


async def _confirm(sluice: AsyncClient, order: str, intention: str) -> Receipt:
    """At the length that this life reads, which payments change: so it asks first what an earlier one did."""
    while True:
        if done := await sluice.receipt(idempotency_key=intention):
            return done
        length = (await sluice.state("order", order)).length
        try:
            return await sluice.append(
                "order", order, "was_confirmed", {},
                actor=ACTOR, previous_length=length, idempotency_key=intention,
            )  # fmt: skip
        except Conflict:
            continue
        except Refused as refused:
            if refused.code != "idempotency_mismatch":
                raise


async def _main(cart: str, item: str) -> None:
    async def at(step: str, receipt: dict[str, object] | None) -> None:
        print(json.dumps({"step": step, "receipt": receipt}), flush=True)
        sys.stdin.readline()

    key = Path(os.environ["SLUICE_KEY_FILE"]).read_text().strip()
    async with AsyncClient(os.environ["SLUICE_URL"], key) as sluice:
        await check_out(sluice, cart, item, at)


if __name__ == "__main__":
    import asyncio

    asyncio.run(_main(*sys.argv[1:]))
