"""What changed, as lines: right, short, and in bounded time."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from gateway.console.line_changes import LINES_MAX, changes


def test_what_changed_is_shown_with_a_line_around_it() -> None:
    before = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    assert changes(before, {**before, "c": 30}) == [
        (" ", '  "b": 2,'),
        ("-", '  "c": 3,'),
        ("+", '  "c": 30,'),
        (" ", '  "d": 4,'),
    ]
    assert changes(before, dict(before)) == ()


def test_both_values_can_be_read_from_the_changes() -> None:
    chance = random.Random(7)
    for _ in range(500):
        before, after = ([chance.choice("abc") for _ in range(chance.randrange(9))] for _ in range(2))
        lines = changes([*before, "end"], [*after, "end"])
        kept = [(mark, text) for mark, text in lines if mark in "-+"]
        gone = [text for mark, text in kept if mark == "-"]
        come = [text for mark, text in kept if mark == "+"]
        old, new = ([f'  "{each}",' for each in part] for part in (before, after))
        for text in gone:
            old.remove(text)
        for text in come:
            new.remove(text)
        assert sorted(old) == sorted(new), (before, after, lines)
        assert len(kept) == len(before) + len(after) - 2 * shared(before, after)


def shared(one: list[str], other: list[str]) -> int:
    """The length of the longest sequence that both have."""
    if not one or not other:
        return 0
    if one[-1] == other[-1]:
        return 1 + shared(one[:-1], other[:-1])
    return max(shared(one[:-1], other), shared(one, other[:-1]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 1] * 7000, [0] * 14_000),
        (list(range(9000)), list(range(9000))[::-1]),
        ([n // 80 for n in range(8000)], [n % 100 for n in range(8000)]),
    ],
)
def test_the_time_is_bounded(before: list[int], after: list[int]) -> None:
    used_s = []
    for _ in range(3):
        began = time.process_time()
        lines = changes(before, after)
        used_s.append(time.process_time() - began)
    assert min(used_s) < 0.05
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == ("…", "More changed than is shown.")


@pytest.mark.parametrize("change", [{"z": 1}, {"text": "y"}])
def test_what_is_too_long_is_not_called_the_same(change: dict[str, Any]) -> None:
    before = {"text": "x" * 200_000}
    assert [mark for mark, _ in changes(before, {**before, **change})] == ["…"]
    assert changes(before, dict(before)) == ()
