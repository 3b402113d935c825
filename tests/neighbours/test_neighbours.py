"""A second or two of each attack that a limit keeps from the neighbours, and what the harness must see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.bounded_memory import parts, total
from gateway.config import SETTINGS, Config
from tests.conftest import PARTITIONS
from tests.neighbours.bounds import BOUNDS
from tests.neighbours.campaign import MIB, Measured, campaign
from tests.neighbours.stand import Felt, StartStand, stands

HELD = (
    "fold", "schema", "pages", "unread", "filters", "beginners", "unknown-keys", "nat", "openapi",
    "half-bodies", "connections",
)  # fmt: skip
ATTACK_S = 1.5
TRIES = 3
DEFAULTS = Config(redis_url="", postgres_url="")
SIZING = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_attack_is_noticed_by_a_neighbour() -> None:
    async with stands() as start:
        broken = [each for name in HELD for each in await broken_by(start, name)]
    assert broken == []


async def broken_by(start: StartStand, name: str) -> list[str]:
    """The bounds that hold at no try: what an attack does it does each time, and a machine stands still now
    and then."""
    broken: list[str] = []
    for _ in range(TRIES):
        async for each in campaign(start, ATTACK_S, (name,)):
            print(each)
            broken = each.broken(BOUNDS[each.attack])
            assert each.grown_bytes <= (total(parts(DEFAULTS, PARTITIONS)) or 0)
        if not broken:
            break
    return broken


@pytest.mark.parametrize(
    ("felt", "grown", "why"),
    [
        (Felt([0.01] * 90 + [0.7] * 10), 0, "p99"),
        (Felt([0.01] * 999 + [1.5]), 0, "waited 1.500 s"),
        (Felt([0.01], ["GET: 503"]), 0, "were refused"),
        (Felt([0.01]), 300 * MIB, "grew by 300 MiB"),
        (Felt([]), 0, "p99 is inf"),
    ],
)
def test_what_a_neighbour_notices_breaks_a_bound(felt: Felt, grown: int, why: str) -> None:
    found = Measured("pages", felt, 1, 0, grown).broken(BOUNDS["pages"])
    assert any(why in each for each in found), found


def test_the_page_on_sizes_has_each_part_and_the_sum() -> None:
    listed = parts(DEFAULTS, DEFAULTS.partitions)
    told = total(listed)
    assert told is not None and f"{told // MIB:,} MiB together" in SIZING
    for each in listed:
        assert each.bytes_max is not None
        of = f" (`SLUICE_{each.setting.upper()}`)" if each.setting else ""
        assert f"| {each.name}{of} | {round(each.bytes_max / MIB)} MiB |" in SIZING


def test_each_setting_of_the_sum_is_one_and_no_limit_is_no_sum() -> None:
    names = {each.field for each in SETTINGS}
    assert {each.setting for each in parts(DEFAULTS, 1)} - {None} <= names
    for field in ("bodies_bytes_max", "requests_max", "connections_max"):
        assert total(parts(replace(DEFAULTS, **{field: 0}), 1)) is None


def test_more_partitions_wait_for_more() -> None:
    one, two = (total(parts(DEFAULTS, partitions)) or 0 for partitions in (1, 2))
    assert two > one
