"""A second or two of each attack that a limit keeps from the neighbours, and what the harness must see."""

from __future__ import annotations

import pytest

from gateway.config import Config
from tests.neighbours.bounds import BOUNDS, bounded_memory
from tests.neighbours.campaign import MIB, Measured, campaign
from tests.neighbours.stand import Felt, stands

HELD = (
    "fold", "schema", "pages", "unread", "filters", "unknown-keys", "openapi", "half-bodies", "connections"
)  # fmt: skip
ATTACK_S = 1.5


@pytest.mark.slow
async def test_no_attack_is_noticed_by_a_neighbour() -> None:
    broken: list[str] = []
    async with stands() as start:
        async for each in campaign(start, ATTACK_S, HELD):
            print(each)
            broken += each.broken(BOUNDS[each.attack])
            assert each.grown_bytes <= sum(bounded_memory(Config(redis_url="", postgres_url="")).values())
    assert broken == []


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
