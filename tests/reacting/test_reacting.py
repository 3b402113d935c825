"""The campaign of reactions in short, and its checker on histories that are wrong."""

from __future__ import annotations

import contextlib

import pytest

from tests.reacting.campaign import DELAY_S, Campaign
from tests.reacting.checker import Row, violations
from tests.support.servers import open_folder, servers_in


@pytest.mark.slow
async def test_each_output_happens_once_whatever_is_killed() -> None:
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            campaign = Campaign(servers, folder, seed=1)
            rows = await campaign.run(6, 8)
    assert violations(rows, DELAY_S) == []
    assert campaign.begun and campaign.kills["gateway"]


def row(seq: int, type_: str, at: float, cause: str | None = None, of: str = "order") -> Row:
    return Row(seq, f"e{seq}", cause, of, "k", type_, at)


GOOD = [row(1, "was_placed", 0), row(2, "was_credited", 0, "e1", "account"), row(3, "had_expired", 2, "e1")]


def test_a_good_history_has_no_violation() -> None:
    assert violations(GOOD, 1.5) == []


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([GOOD[0], GOOD[2]], "0 credits"),
        ([*GOOD, row(4, "was_credited", 0, "e1", "account")], "2 credits"),
        ([*GOOD, row(4, "had_expired", 3, "e1")], "expired twice"),
        (GOOD[:2], "never expired"),
        ([*GOOD[:2], row(3, "had_expired", 1, "e1")], "expired after 1.000 s"),
        ([*GOOD[:2], row(3, "was_paid", 1), row(4, "had_expired", 2, "e1")], "paid before"),
        ([row(1, "was_checked_out", 0, of="cart")], "taken 0 times"),
        (
            [row(1, "was_checked_out", 0, of="cart"), row(2, "reservation_asked", 0, of="stock")],
            "not compensated once",
        ),
    ],
)
def test_a_wrong_history_is_told(rows: list[Row], why: str) -> None:
    assert any(why in each for each in violations(rows, 1.5)), violations(rows, 1.5)
