"""Token buckets against a model that counts tokens, and what they promise a refused client."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.buckets import Buckets

PAUSES = st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8, 13, 64, 500, 4_000])
"""In 1/64 s: sums of them are exact in binary, so that the model and the floats mean the same moment."""

WHO = st.sampled_from(["a", "b", "c"])
RATES = st.sampled_from([1, 2, 4, 32])
BURSTS = st.integers(1, 6)


class Model:
    """Counts tokens with exact fractions."""

    def __init__(self, per_s: int, burst: int) -> None:
        self.per_s, self.burst = per_s, burst
        self.tokens: dict[str, Fraction] = defaultdict(lambda: Fraction(burst))
        self.at: dict[str, Fraction] = {}

    def take(self, who: str, now: Fraction) -> Fraction:
        gained = (now - self.at.get(who, now)) * self.per_s
        self.tokens[who] = min(Fraction(self.burst), self.tokens[who] + gained)
        self.at[who] = now
        if self.tokens[who] >= 1:
            self.tokens[who] -= 1
            return Fraction(0)
        return (1 - self.tokens[who]) / self.per_s


@given(RATES, BURSTS, st.lists(st.tuples(PAUSES, WHO), max_size=60))
def test_a_bucket_gives_what_a_count_of_its_tokens_gives(
    per_s: int, burst: int, asked: list[tuple[int, str]]
) -> None:
    buckets, model, now = Buckets(per_s, burst), Model(per_s, burst), Fraction(10**6)
    for pause, who in asked:
        now += Fraction(pause, 64)
        expected = model.take(who, now)
        wait_s = buckets.take(who, float(now))
        assert (wait_s == 0) == (expected == 0)
        assert abs(wait_s - float(expected)) < 1e-6


@given(st.floats(0.01, 1e4), st.integers(1, 1000), st.lists(st.floats(0, 100), max_size=60))
def test_no_window_lets_more_through_than_its_length_and_the_burst_allow(
    per_s: float, burst: int, pauses: list[float]
) -> None:
    buckets, now = Buckets(per_s, burst), 5.0
    passed: list[float] = []
    for pause in pauses:
        now += pause / per_s
        passed += [now] * (buckets.take("a", now) == 0)
    for first, start in enumerate(passed):
        for count, end in enumerate(passed[first:], 1):
            assert count <= burst + (end - start) * per_s + 1e-6


@given(st.floats(0.01, 1e4), st.integers(1, 50), st.lists(st.floats(0, 3), max_size=60))
def test_a_client_that_waits_as_told_passes_and_a_moment_earlier_does_not(
    per_s: float, burst: int, pauses: list[float]
) -> None:
    buckets, now = Buckets(per_s, burst), 5.0
    for pause in pauses:
        now += pause / per_s
        wait_s = buckets.take("a", now)
        if wait_s:
            too_early = wait_s * 0.99
            if wait_s - too_early > 1e-6:
                assert buckets.take("a", now + too_early) > 0
            now += wait_s
            assert buckets.take("a", now) == 0


@given(st.lists(PAUSES, max_size=30))
def test_to_be_refused_costs_nothing(pauses: list[int]) -> None:
    patient, impatient, now = Buckets(1, 1), Buckets(1, 1), 5.0
    for pause in pauses:
        now += pause / 64
        passes = patient.take("a", now) == 0
        assert (impatient.take("a", now) == 0) == passes
        for _ in range(3):
            assert impatient.take("a", now) > 0


def test_a_token_that_is_given_back_can_be_taken_again() -> None:
    buckets = Buckets(1, 2)
    assert (buckets.take("a", 0.0), buckets.take("a", 0.0)) == (0, 0)
    buckets.give_back("a")
    buckets.give_back("never seen")
    assert buckets.take("a", 0.0) == 0
    assert buckets.take("a", 0.0) == 1.0


@given(st.integers(1, 5), st.lists(st.text(max_size=2), max_size=60))
def test_memory_is_bounded_and_forgetting_refuses_no_holder(count_max: int, names: list[str]) -> None:
    bounded, unbounded = Buckets(1, 2, count_max), Buckets(1, 2)
    for name in names:
        refused_by_all = unbounded.take(name, 5.0) > 0
        assert bounded.take(name, 5.0) == 0 or refused_by_all
        assert len(bounded) <= count_max


def test_the_bucket_that_was_used_longest_ago_is_forgotten_first() -> None:
    buckets = Buckets(1, 1, count_max=2)
    for name in ("a", "b", "a", "c"):
        buckets.take(name, 5.0)
    assert buckets.take("a", 5.0) > 0
    assert buckets.take("b", 5.0) == 0
