"""What the doctor says of timers and sagas."""

from __future__ import annotations

import pytest

from gateway.operations.findings import Verdict
from gateway.operations.reaction_findings import judge

FINE = {
    "pending": 3, "parked": 0, "running": 1, "stuck": 0, "late_s": None, "unkept": 0, "not_set": 0,
    "not_set_last": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.OK),
        ({"parked": 1}, Verdict.WARNING),
        ({"stuck": 2}, Verdict.WARNING),
        ({"late_s": 5.0}, Verdict.OK),
        ({"late_s": 61.0}, Verdict.WARNING),
        ({"unkept": 1}, Verdict.WARNING),
    ],
)
def test_what_waits_for_a_person_or_for_a_gateway_is_a_warning(
    changed: dict[str, object], verdict: Verdict
) -> None:
    found, _ = judge(FINE | changed)
    assert found.verdict is verdict
    assert bool(found.means) is (verdict is not Verdict.OK)


def test_timers_that_could_not_be_set_are_a_warning_with_the_last_one() -> None:
    last = "order.was_placed 1, implications[0].schedule.at: This is not a time."
    _, found = judge(FINE | {"not_set": 2, "not_set_last": last})
    assert (found.verdict, found.found) == (Verdict.WARNING, f"2, the last one by {last}")
    _, fine = judge(FINE)
    assert (fine.verdict, fine.found) == (Verdict.OK, "0")
