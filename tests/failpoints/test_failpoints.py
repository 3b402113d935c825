"""A gateway that ends, or stands still and continues, wherever it waits: a sample of all cases, another one
each day. All of them: `python -m tests.failpoints`."""

from __future__ import annotations

import pytest

from tests.support.daily import run_daily

SECONDS = 20
NAMING_SECONDS = 7


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_wherever_a_gateway_ends_or_stands_still() -> None:
    """It also fails where an await of the append path is passed by no scene."""
    run_daily("tests.failpoints", "--seconds", str(SECONDS), timeout_s=280)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_name_is_lost_or_given_twice_wherever_a_gateway_ends_while_it_names() -> None:
    """It also fails where an await on the way from a new aggregate to its names is not passed."""
    run_daily("tests.failpoints", "--names", "--seconds", str(NAMING_SECONDS), timeout_s=110)
