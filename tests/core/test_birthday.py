from __future__ import annotations

import random

import pytest

from gateway.names.birthday import any_collision, share_taken

SIX_HEX = 16**6
BASE62_8 = 62**8


def test_the_chance_of_any_collision_is_the_published_one() -> None:
    assert any_collision(1_000, SIX_HEX) == pytest.approx(0.0293, abs=1e-4)
    assert any_collision(10_000, SIX_HEX) == pytest.approx(0.949, abs=1e-3)
    assert any_collision(1_000_000, BASE62_8) == pytest.approx(0.0023, abs=1e-4)
    assert any_collision(10_000_000, BASE62_8) == pytest.approx(0.205, abs=1e-3)
    assert any_collision(1, SIX_HEX) == 0
    assert any_collision(23, 365) == pytest.approx(0.5, abs=0.01)


def test_the_share_that_is_taken_is_what_a_trial_gives() -> None:
    draw = random.Random(97)
    taken = 0
    for _ in range(50):
        seen: set[int] = set()
        for _ in range(1_000):
            place = draw.randrange(20_000)
            taken += place in seen
            seen.add(place)
    assert taken / 50_000 == pytest.approx(share_taken(1_000, 20_000), rel=0.1)


def test_the_seeds_97_percent_is_another_figure_than_it_says() -> None:
    """That none of a thousand collide has 97 %; that a name stays short, 99.997 %."""
    assert 1 - any_collision(1_000, SIX_HEX) == pytest.approx(0.97, abs=1e-3)
    assert 1 - share_taken(1_000, SIX_HEX) == pytest.approx(0.99997, abs=1e-6)
