"""The campaign in short: some seconds of it, with another seed each day. A minute of it: docs/testing.md."""

from __future__ import annotations

import pytest

from tests.support.daily import run_daily

MINUTES = 0.1


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_every_reader_sees_every_event_while_gateways_and_relays_are_killed() -> None:
    told = run_daily("tests.outgoing", "--minutes", str(MINUTES), timeout_s=180)
    assert "0 violations" in told
    assert " 0 of" not in told.partition("stops:")[0], "no process was killed"
