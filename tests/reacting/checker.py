"""What must hold of the stored events of a campaign: every implied event, firing and step exactly once, none
early, no cancelled one fired, every saga at its end. Shares no code with the gateway."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

EARLY_S = 0.0


class Row(NamedTuple):
    """An event as it is stored; `seq` is its place in the order of commits."""

    seq: int
    id: str
    causation: str | None
    aggregate_type: str
    key: str
    type: str
    committed_s: float
    """Unix seconds at which the gateway took it in."""


def violations(rows: Sequence[Row], delay_s: float) -> list[str]:
    """Of the campaign's own spec: an order that is placed implies a credit, and expires unless it is paid; a
    cart goes through reservation, charge and shipping, or is compensated."""
    found: list[str] = []
    of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    by_cause: Counter[tuple[str, str]] = Counter()
    for row in rows:
        of[row.aggregate_type, row.key].append(row)
        if row.causation is not None:
            by_cause[row.causation, row.type] += 1
    for (kind, key), events in of.items():
        types = [each.type for each in events]
        if kind == "order":
            found += [f"order {key}: {each}" for each in _order(events, types, by_cause, delay_s)]
        elif kind == "cart":
            found += [f"cart {key}: {each}" for each in _cart(key, types, of)]
    return found


def _order(
    events: Sequence[Row], types: Sequence[str], by_cause: Counter[tuple[str, str]], delay_s: float
) -> list[str]:
    found = []
    placed = events[0]
    if (credits := by_cause[placed.id, "was_credited"]) != 1:
        found.append(f"{credits} credits for one order")
    expired = [each for each in events if each.type == "had_expired"]
    if len(expired) > 1:
        found.append("it expired twice")
    if "was_paid" in types:
        paid = next(each for each in events if each.type == "was_paid")
        if any(each.seq > paid.seq for each in expired):
            found.append("it expired although it had been paid before")
    elif not expired:
        found.append("it never expired")
    for each in expired:
        if each.committed_s - placed.committed_s < delay_s - EARLY_S:
            found.append(f"it expired after {each.committed_s - placed.committed_s:.3f} s")
    return found


def _cart(key: str, types: Sequence[str], of: dict[tuple[str, str], list[Row]]) -> list[str]:
    found = []
    stock = Counter(each.type for each in of.get(("stock", key), ()))
    payment = Counter(each.type for each in of.get(("payment", key), ()))
    for name, count in (
        ("reservation_asked", stock["reservation_asked"]),
        ("shipped", types.count("was_shipped")),
    ):
        if count > 1:
            found.append(f"{name} {count} times")
    if stock["reservation_asked"] != 1:
        found.append(f"the first step was taken {stock['reservation_asked']} times")
    shipped = types.count("was_shipped")
    if shipped:
        if payment["charge_asked"] != 1 or payment["was_refunded"] or stock["was_released"]:
            found.append(f"shipped with {dict(payment)} and {dict(stock)}")
    elif stock["was_released"] != 1 or payment["was_refunded"] != payment["charge_asked"]:
        found.append(f"not shipped, and not compensated once: {dict(payment)}, {dict(stock)}")
    return found
