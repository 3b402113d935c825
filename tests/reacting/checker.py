"""What must hold of the stored events of a campaign: every implied event, firing and step exactly once, none
early, no cancelled one fired, every saga at its end. Shares no code with the gateway."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

STEPS = ("reservation_asked", "charge_asked", "was_shipped")


class Violation(NamedTuple):
    kind: str
    told: str


class Row(NamedTuple):
    """An event as it is stored; `seq` is its place in the order of commits."""

    seq: int
    id: str
    causation: str | None
    aggregate_type: str
    key: str
    type: str
    stored_s: float
    """Unix seconds by Postgres' clock, a moment before its commit."""


class Acknowledged(NamedTuple):
    """An append of a client that was answered 201."""

    aggregate_type: str
    key: str
    type: str


def check(rows: Sequence[Row], acknowledged: Sequence[Acknowledged], delay_s: float) -> list[Violation]:
    """Of the campaign's own spec: an order that is placed implies a credit, and expires unless it is paid; a
    cart goes through reservation, charge and shipping, or is compensated."""
    of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        of[row.aggregate_type, row.key].append(row)
    found: list[Violation] = []
    for (kind, key), events in of.items():
        if kind == "order":
            found += [
                Violation(what, f"order {key}: {told}") for what, told in _order(key, events, of, delay_s)
            ]
        elif kind == "cart":
            found += [Violation(what, f"cart {key}: {told}") for what, told in _cart(key, of)]
    stored = Counter((row.aggregate_type, row.key, row.type) for row in rows)
    for append in acknowledged:
        if stored[append] != 1:
            kind = "doubled" if stored[append] else "lost"
            found.append(Violation(kind, f"{append} was acknowledged, and is stored {stored[append]} times"))
    return found


def lateness(rows: Sequence[Row], delay_s: float) -> list[float]:
    """Of each firing, in seconds behind its due time, in order."""
    placed = {row.id: row.stored_s for row in rows if row.type == "was_placed"}
    fired = [row for row in rows if row.type == "had_expired" and row.causation in placed]
    return sorted(row.stored_s - placed[row.causation or ""] - delay_s for row in fired)


Of = dict[tuple[str, str], list[Row]]


def _order(key: str, events: Sequence[Row], of: Of, delay_s: float) -> Iterator[tuple[str, str]]:
    placed = events[0]
    credits = [each for each in of.get(("account", key), ()) if each.type == "was_credited"]
    if len(credits) != 1:
        yield "doubled" if credits else "lost", f"{len(credits)} credits for one order"
    expired = [each for each in events if each.type == "had_expired"]
    if len(expired) > 1:
        yield "doubled", f"it expired {len(expired)} times"
    if any(each.causation != placed.id for each in (*credits, *expired)):
        yield "cause", "what followed from it names another cause"
    paid = next((each for each in events if each.type == "was_paid"), None)
    if paid is None and not expired:
        yield "lost", "it never expired"
    if paid is not None and any(each.seq > paid.seq for each in expired):
        yield "cancelled", "it expired although it had been paid before"
    for each in expired:
        if (after_s := each.stored_s - placed.stored_s) < delay_s:
            yield "early", f"it expired after {after_s:.3f} s"


def _cart(key: str, of: Of) -> Iterator[tuple[str, str]]:
    rows = [row for kind in ("stock", "payment", "cart") for row in of.get((kind, key), ())]
    count = Counter(row.type for row in rows)
    for name in (*STEPS, "was_released", "was_refunded"):
        if count[name] > 1:
            yield "doubled", f"{name} {count[name]} times"
    places = [row.seq for name in STEPS for row in rows if row.type == name]
    if places != sorted(places):
        yield "order", f"its steps are at {places}"
    if not count["reservation_asked"]:
        yield "lost", "its saga never began"
    elif count["was_shipped"]:
        if not count["charge_asked"] or count["was_refunded"] or count["was_released"]:
            yield "steps", f"shipped with {dict(count)}"
    elif not count["was_released"] or count["was_refunded"] != count["charge_asked"]:
        yield "compensation", f"not shipped, and not compensated: {dict(count)}"
