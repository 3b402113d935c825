"""What the doctor says of timers and sagas."""

from __future__ import annotations

import pytest

from gateway.operations.findings import Verdict
from gateway.operations.reaction_findings import judge

FINE = {"pending": 3, "parked": 0, "running": 1, "stuck": 0, "late_s": None, "unkept": 0}


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
    changed: dict[str, float], verdict: Verdict
) -> None:
    found = judge(FINE | changed)
    assert found.verdict is verdict
    assert bool(found.means) is (verdict is not Verdict.OK)
