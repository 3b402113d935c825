"""Counts of what is under way, against a list of it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.under_way import Bound, UnderWay

HOLDERS = st.sampled_from(["a", "b", "c"])
BOUNDS = st.one_of(st.none(), st.integers(0, 12))
STEPS = st.lists(st.tuples(st.booleans(), HOLDERS, st.integers(1, 5)), max_size=60)


@given(BOUNDS, BOUNDS, STEPS)
def test_what_is_under_way_is_what_began_and_has_not_ended(
    each_max: int | None, total_max: int | None, steps: list[tuple[bool, str, int]]
) -> None:
    counts, model = UnderWay(each_max, total_max), Counter[str]()
    for begins, holder, amount in steps:
        if begins:
            expected = None
            if each_max is not None and model[holder] + amount > each_max:
                expected = Bound.HOLDERS
            elif total_max is not None and model.total() + amount > total_max:
                expected = Bound.TOTAL
            assert counts.begin(holder, amount) is expected
            model[holder] += 0 if expected else amount
        elif model[holder] >= amount:
            counts.end(holder, amount)
            model[holder] -= amount
        assert counts.total == model.total()
        assert all(counts.of(each) == model[each] for each in "abc")
        assert len(counts) == len(+model)


def test_one_holder_leaves_room_for_the_others() -> None:
    counts = UnderWay(2, 3)
    assert [counts.begin("a") for _ in range(4)] == [None, None, Bound.HOLDERS, Bound.HOLDERS]
    assert [counts.begin("b") for _ in range(2)] == [None, Bound.TOTAL]
    counts.end("a")
    assert counts.begin("b") is None


def test_what_is_refused_is_not_counted() -> None:
    counts = UnderWay(10, None)
    assert counts.begin("a", 8) is None
    assert counts.begin("a", 3) is Bound.HOLDERS
    assert counts.begin("a", 2) is None
    counts.end("a", 6)
    counts.end("a", 4)
    assert (counts.total, len(counts)) == (0, 0)


def test_without_bounds_all_is_counted_and_nothing_refused() -> None:
    counts = UnderWay(None, None)
    assert {counts.begin("a", 1_000) for _ in range(1_000)} == {None}
    assert counts.total == counts.of("a") == 1_000_000
