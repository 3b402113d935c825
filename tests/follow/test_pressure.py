"""A gateway that is given all that it can take is pressed, also where others use its core."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.follow import pressure
from gateway.follow.pressure import Pressure, wanted_s


def test_a_process_is_pressed_from_when_it_wants_nearly_all_of_a_core_until_it_wants_far_less() -> None:
    now = wanted = 0.0
    pressed = Pressure(lambda: now, lambda: wanted)
    for at, used, expected in [
        (0.0, 0.0, False),
        (1.0, 0.75, False),
        (2.0, 1.6, True),
        (2.1, 1.6, True),  # too soon to say
        (3.0, 2.3, True),
        (4.0, 2.9, False),
        (5.0, 3.65, False),
    ]:
        now, wanted = at, used
        assert pressed() is expected, at


def test_what_a_process_waits_for_a_core_counts_where_the_system_says_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "schedstat"
    monkeypatch.setattr(pressure, "_WAITED", told)
    before = time.process_time()
    assert before <= wanted_s() <= time.process_time()
    told.write_text("5000 2000000000 7\n")
    assert before + 2 <= wanted_s() <= time.process_time() + 2
