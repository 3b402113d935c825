"""What the doctor says of lists and projections."""

from __future__ import annotations

import pytest

from gateway.operations.findings import Verdict
from gateway.operations.follow_findings import judge

FINE = {"serving": 3, "building": 1, "paused": 0, "unkept": 0, "unfit": 0}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.OK),
        ({"paused": 1}, Verdict.WARNING),
        ({"unkept": 2}, Verdict.WARNING),
        ({"unfit": 1}, Verdict.WARNING),
    ],
)
def test_what_nothing_keeps_or_an_operator_paused_or_does_not_fit_is_told(
    changed: dict[str, int], verdict: Verdict
) -> None:
    found = judge(FINE | changed)
    assert found.verdict is verdict
    assert bool(found.means) is (verdict is not Verdict.OK)
