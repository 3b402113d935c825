"""The campaign of reactions in short, and its checker on histories that are wrong."""

from __future__ import annotations

import pytest

from tests.reacting.campaign import run_campaign
from tests.reacting.checker import Acknowledged, Row, check, lateness
from tests.support.daily import run_daily


@pytest.mark.slow
async def test_each_output_happens_once_whatever_is_killed() -> None:
    told = run_daily("tests.reacting", "--seconds", "3", timeout_s=180)
    assert "0 violations" in told and "gateway" in told


@pytest.mark.slow
async def test_a_build_that_fires_what_is_cancelled_is_caught() -> None:
    result = await run_campaign(0, 1, "no-condition")
    assert "cancelled" in {each.kind for each in result.violations}


def row(seq: int, type_: str, at: float, cause: str | None = None, of: str = "order") -> Row:
    return Row(seq, f"e{seq}", cause, of, "k", type_, at)


GOOD = [row(1, "was_placed", 0), row(2, "was_credited", 0, "e1", "account"), row(3, "had_expired", 2, "e1")]
CHARGED = "charge_asked"
CART = [
    row(1, "was_checked_out", 0, of="cart"),
    row(2, "reservation_asked", 0, of="stock"),
    row(3, CHARGED, 0, of="payment"),
    row(4, "was_shipped", 0, of="cart"),
]
UNDONE = [*CART[:2], row(3, "was_released", 0, of="stock")]
PAID = row(3, "was_paid", 1)


@pytest.mark.parametrize("rows", [GOOD, CART, UNDONE, [*GOOD[:2], PAID], [*GOOD, row(4, "was_paid", 3)]])
def test_a_good_history_has_no_violation(rows: list[Row]) -> None:
    assert check(rows, [Acknowledged("order", "k", "was_placed")] if rows[0] is GOOD[0] else [], 1.5) == []


@pytest.mark.parametrize(
    ("rows", "kind", "why"),
    [
        ([GOOD[0], GOOD[2]], "lost", "0 credits"),
        ([*GOOD, row(4, "was_credited", 0, "e1", "account")], "doubled", "2 credits"),
        ([*GOOD, row(4, "had_expired", 3, "e1")], "doubled", "expired 2 times"),
        ([*GOOD[:2], row(3, "had_expired", 2, "e2")], "cause", "another cause"),
        (GOOD[:2], "lost", "never expired"),
        ([*GOOD[:2], row(3, "had_expired", 1, "e1")], "early", "expired after 1.000 s"),
        ([*GOOD[:2], PAID, row(4, "had_expired", 2, "e1")], "cancelled", "paid before"),
        (CART[:1], "lost", "never began"),
        (CART[:2], "compensation", "not compensated"),
        ([*CART, row(5, CHARGED, 0, of="payment")], "doubled", "charge_asked 2 times"),
        ([*CART, row(5, "was_released", 0, of="stock")], "steps", "shipped with"),
        ([*CART[:2], row(3, "was_shipped", 0, of="cart"), row(4, CHARGED, 0, of="payment")], "order", "at"),
        ([*UNDONE, row(4, CHARGED, 0, of="payment")], "compensation", "not compensated"),
    ],
)  # fmt: skip
def test_a_wrong_history_is_told(rows: list[Row], kind: str, why: str) -> None:
    found = check(rows, [], 1.5)
    assert any(each.kind == kind and why in each.told for each in found), found


def test_what_was_acknowledged_has_to_be_stored_once() -> None:
    paid = Acknowledged("order", "k", "was_paid")
    assert [each.kind for each in check(GOOD, [paid], 1.5)] == ["lost"]
    twice = [*GOOD[:2], PAID, row(4, "was_paid", 1)]
    assert [each.kind for each in check(twice, [paid], 1.5)] == ["doubled"]


def test_a_firing_is_late_by_what_it_comes_behind_its_due_time() -> None:
    assert lateness(GOOD, 1.5) == [0.5]
