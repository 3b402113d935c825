"""What the shop promises, held against the feed. Shares no code with the gateway."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Cart:
    """What its programs were told: of each life, the receipts of its steps."""

    name: str
    customer: str
    order: str
    item: str
    lives: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    ordered: bool = True
    """False: the item was sold out."""
    paid: bool = False


def harms(events: list[dict[str, Any]], carts: list[Cart], strangers: list[str]) -> list[str]:
    """Sentences about what is not as it should be; `strangers` are orders that only payments know."""
    found: list[str] = []
    stock: Counter[str] = Counter()
    of: dict[tuple[str, str], list[dict[str, Any]]] = {}
    reserved: Counter[str] = Counter()
    for event in events:
        of.setdefault((event["aggregate_type"], event["key"]), []).append(event)
        if event["type"] == "was_stocked":
            stock[event["key"]] += event["data"]["quantity"]
        elif event["type"] == "was_reserved":
            stock[event["key"]] -= event["data"]["quantity"]
            reserved[event["data"]["order"]] += 1
            if stock[event["key"]] < 0:
                found.append(f"item {event['key']} has {stock[event['key']]} left")
    for cart in carts:
        found.extend(_harms_of(cart, of, reserved[cart.order]))
    found.extend(
        f"order {order} was never placed, and is there" for order in strangers if ("order", order) in of
    )
    return found


def _harms_of(cart: Cart, of: dict[tuple[str, str], list[dict[str, Any]]], reserved: int) -> list[str]:
    found = []
    ordered = int(cart.ordered)
    customer = Counter(event["type"] for event in of.get(("customer", cart.customer), ()))
    order = Counter(event["type"] for event in of.get(("order", cart.order), ()))
    wanted = {"was_placed": ordered, "was_paid": int(cart.paid), "was_confirmed": ordered}
    if customer != Counter(was_registered=1):
        found.append(f"{cart.name}: its customer has {dict(customer)}")
    if order != +Counter(wanted):
        found.append(f"{cart.name}: its order has {dict(order)}, not {wanted}")
    if reserved != ordered:
        found.append(f"{cart.name}: {reserved} reservations, not {ordered}")
    last = cart.lives[-1]
    for number, life in enumerate(cart.lives):
        for step, receipt in life.items():
            if receipt != last.get(step):
                found.append(
                    f"{cart.name}: life {number + 1} was told {receipt} of {step}, the last {last.get(step)}"
                )
    stored = {
        event["id"]: event for kind in ("customer", "order", "item")
        for event in of.get((kind, getattr(cart, kind)), ())
    }  # fmt: skip
    for step, receipt in last.items():
        event = stored.get(receipt["event_id"])
        if event is None or (event["key"], event["version"]) != (receipt["key"], receipt["length"]):
            found.append(f"{cart.name}: the receipt of {step} is {receipt}, and that is not stored")
    if ordered and len(last) != 4:
        found.append(f"{cart.name}: the last life was told {sorted(last)}")
    return found
