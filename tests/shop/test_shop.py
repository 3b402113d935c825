"""The shop in short; `python -m tests.shop` is the long form. And its checker, held against bad histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shop.campaign import Campaign
from tests.shop.checker import Cart, harms
from tests.shop.lives import NODE, PYTHON, process
from tests.shop.stage import open_stage
from tests.support.databases import cloned
from tests.support.servers import Servers

ORIGIN = "https://shop.example"
Broken = Callable[[list[dict[str, Any]], Cart], None]


async def test_a_program_that_is_killed_ends_with_the_same_receipts_and_workers_sell_what_there_is(
    servers: Servers, template: str, tmp_path: Path
) -> None:
    random.seed(1)
    async with cloned(servers, template) as url, open_stage(servers, tmp_path, url, ORIGIN) as on:
        campaign = Campaign(on, 1)
        await campaign.lives("Python", process(PYTHON), [("confirm", "after")])
        if NODE is not None:  # said at the end of the run: tests/docs/conftest.py
            await campaign.lives("Node", process(NODE), [("place", "under way")])
        await campaign.rush(4, 9, gateways_die=False)
        assert await campaign.harms() == []
        assert campaign.done["ordered"] == 12 and campaign.done["sold out"] == 6


def event(kind: str, key: str, version: int, type_: str, **data: object) -> dict[str, Any]:
    return {
        "id": f"{type_}-{key}", "aggregate_type": kind, "key": key, "version": version, "type": type_,
        "data": data,
    }  # fmt: skip


def history() -> tuple[list[dict[str, Any]], Cart]:
    events = [
        event("item", "i", 1, "was_stocked", quantity=1),
        event("customer", "c", 1, "was_registered"),
        event("item", "i", 2, "was_reserved", order="o", quantity=1),
        event("order", "o", 1, "was_placed"),
        event("order", "o", 2, "was_confirmed"),
        event("order", "o", 3, "was_paid"),
    ]
    steps = {"register": events[1], "reserve": events[2], "place": events[3], "confirm": events[4]}
    receipts = {
        step: {"key": each["key"], "event_id": each["id"], "length": each["version"], "aliases": []}
        for step, each in steps.items()
    }
    first = {step: dict(receipts[step]) for step in ("register", "reserve")}
    return events, Cart("cart", "c", "o", "i", [first, receipts], paid=True)


def test_a_history_as_it_should_be_has_no_harm() -> None:
    events, cart = history()
    assert harms(events, [cart], ["stranger"]) == []


@pytest.mark.parametrize(
    ("breaks", "harm"),
    [
        (lambda events, cart: events.append(events[5]), "its order has"),
        (lambda events, cart: events.pop(4), "its order has"),
        (lambda events, cart: events.append(event("order", "x", 1, "was_paid")), "never placed"),
        (lambda events, cart: events.append({**events[2], "id": "again"}), "item i has -1 left"),
        (lambda events, cart: events.append({**events[2], "id": "again"}), "2 reservations, not 1"),
        (lambda events, cart: events.append(events[1]), "its customer has"),
        (lambda events, cart: cart.lives[0]["reserve"].update(event_id="other"), "life 1 was told"),
        (lambda events, cart: cart.lives[1]["place"].update(length=7), "that is not stored"),
        (lambda events, cart: cart.lives[1].pop("confirm"), "the last life was told"),
    ],
)  # fmt: skip
def test_a_broken_history_is_caught(breaks: Broken, harm: str) -> None:
    events, cart = history()
    breaks(events, cart)
    assert any(harm in each for each in harms(events, [cart], ["x"])), harms(events, [cart], ["x"])
