"""The campaign in short, and its checker on histories with something wrong."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reserving.campaign import Campaign
from tests.reserving.checker import RESERVED, STOCKED, History, Row, Told
from tests.support.servers import Servers


async def test_reservations_are_exact_while_gateways_and_redis_are_killed(
    start_servers: Callable[..., Awaitable[Servers]], tmp_path: Path
) -> None:
    campaign = Campaign(await start_servers(), tmp_path, random.randrange(10**6))
    rows = await campaign.run(2.5, 50)
    assert History(rows, campaign.told).check() == [], f"seed {campaign.seed}"
    statuses = [each.status for each in campaign.told]
    assert statuses.count(201) > 20
    assert statuses.count(422) > 20


ROWS = (Row(1, STOCKED, "a", 2), Row(2, RESERVED, "b", 2))
TOLD = (
    Told(STOCKED, "a", 2, 201, 1),
    Told(RESERVED, "b", 2, 201, 2),
    Told(RESERVED, "c", 1, 422, 2, "Only 0 are left."),
)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((ROWS[0], replace(ROWS[1], quantity=3)), TOLD),
        ((*ROWS, Row(3, STOCKED, "a", 2)), TOLD),
        ((ROWS[0], replace(ROWS[1], version=3)), TOLD),
        ((ROWS[0],), TOLD),
        ((*ROWS, Row(3, STOCKED, "d", 1)), TOLD),
        ((*ROWS, Row(3, STOCKED, "c", 1)), TOLD),
        (ROWS, (*TOLD[:2], replace(TOLD[2], length=1))),
        (ROWS, (*TOLD[:2], replace(TOLD[2], length=3))),
        (ROWS, (*TOLD[:2], replace(TOLD[2], error="Only 1 are left."))),
        (ROWS, (*TOLD[:2], replace(TOLD[2], status=500))),
    ],
)
def test_the_checker_finds_what_is_wrong(rows: tuple[Row, ...], told: tuple[Told, ...]) -> None:
    assert History(ROWS, TOLD).check() == []
    assert History(rows, told).check() != []
    assert History(ROWS, TOLD, [(1, 2), (2, 0)]).check() == []
    assert History(ROWS, TOLD, [(2, 1)]).check() != []
