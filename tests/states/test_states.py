"""The campaign in short, and its checker on states with something wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.outgoing.stand import open_stand_at
from tests.states.bad import argv
from tests.states.campaign import Campaign
from tests.states.checker import History, Read, Stored, Variant, apply, check, spec_of, variant_of
from tests.support.servers import Servers

SECONDS = 0.35


async def test_states_are_folds_of_what_is_committed_while_handlers_change(
    servers: Servers, postgres_url: str, tmp_path: Path
) -> None:
    """Nothing is killed: the servers are those of all tests."""
    seed = random.randrange(10**6)
    async with open_stand_at(
        replace(servers, postgres_url=postgres_url), tmp_path, None, argv, relay_count=0
    ) as stand:
        result = await Campaign(stand, seed, faults=False).run(SECONDS)
    assert result.violations == [], f"seed {seed}"
    assert result.reads > 0
    assert result.deployed > 0


EVENTS = [
    Stored("was_added", {"n": 8}, 1), Stored("was_moved", {"way": 5}, 1), Stored("was_added", {"n": 9}, 1),
]  # fmt: skip
SPECS = {1: Variant(1, ()), 2: Variant(3, (10, 20)), 3: Variant(1, ())}


def state(*by: int) -> dict[str, Any]:
    """Each event folded by one of the specs."""
    found: dict[str, Any] = {}
    for event, spec in zip(EVENTS, by, strict=False):
        apply(found, event, SPECS[spec])
    return found


RIGHT = Read("/counter/a", "a", 2, 3, state(2, 2, 2), 2, exact=False)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda read: replace(read, data=state(1, 2, 2)),
        lambda read: replace(read, data=state(2, 1, 2)),
        lambda read: replace(read, data=state(2, 2)),
        lambda read: replace(read, spec=1),
        lambda read: replace(read, spec=4),
        lambda read: replace(read, least=4),
        lambda read: replace(read, exact=True),
        lambda read: replace(read, length=4),
        lambda read: replace(read, key="b"),
    ],
)
def test_the_checker_finds_what_is_wrong(wrong: Callable[[Read], Read]) -> None:
    history = History({"a": EVENTS}, SPECS)
    earlier = Read("/counter/a?at_length=2", "a", 1, 2, state(1, 3), 2, exact=True)
    assert check(history, [RIGHT, earlier]) == []
    assert len(check(history, [earlier, wrong(RIGHT)])) == 1


def test_a_spec_of_the_campaign_is_read_back() -> None:
    for variant in SPECS.values():
        assert variant_of(spec_of(variant)) == variant
    assert variant_of({"aggregate_types": {}}) is None
