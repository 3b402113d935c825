"""The campaign in short: some seconds of it, with another seed each day."""

from __future__ import annotations

import pytest

from tests.following.checker import Switch, check_switches
from tests.support.daily import run_daily

MINUTES = 0.1


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_rows_equal_a_fold_of_what_is_committed_while_everything_is_killed() -> None:
    told = run_daily("tests.following", "--minutes", str(MINUTES), timeout_s=180)
    assert "0 violations" in told
    assert " 0 of" not in told.partition("stops:")[0], "no process was killed"


def test_a_build_that_serves_less_than_was_served_is_told() -> None:
    switches = [Switch("list order", 7, 7), Switch("list order", 7, 9), Switch("projection totals", 9, 8)]
    assert [each.kind for each in check_switches(switches)] == ["early"]
