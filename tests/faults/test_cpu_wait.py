"""What a rig's bounds are spared for, and what not."""

from __future__ import annotations

import pytest

from tests.faults.cpu_wait import CpuWait, shared


@pytest.mark.parametrize(
    ("own_s", "busy_s", "counted_out_s"),
    [(0.0, 10.0, 4.0), (5.0, 10.0, 2.0), (10.0, 10.0, 0.0), (10.1, 10.0, 0.0), (0.0, 0.0, 0.0)],
)
def test_a_wait_is_counted_out_by_the_share_of_other_programs(
    own_s: float, busy_s: float, counted_out_s: float
) -> None:
    assert shared(4.0, own_s, busy_s) == pytest.approx(counted_out_s)


def test_what_did_not_wait_is_not_spared() -> None:
    assert CpuWait.begin().because_of_others_s() < 0.5
