"""Exactly once, whatever dies: the storm, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inbound.storm import storm
from tests.support.servers import open_folder


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_deliveries_and_their_duplicates_are_one_event_each_through_kills_of_gateway_and_redis() -> (
    None
):
    with open_folder() as folder:
        found = await storm(Path(folder), deliveries=600, duplicates=0.3, senders=16, kills=4)
    assert found.wrong == ()
    assert (found.deliveries, found.events, found.kills) == (420, 420, 4)
    assert found.quarantined == 4
    assert found.tried_again > 0, "no kill was felt"
