"""What is kept of what was read."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.aggregates.prefix_cache import PrefixCache


@dataclass(frozen=True)
class Part:
    length: int
    size_bytes: int = 10


EMPTY = Part(0, 0)


def test_a_longer_prefix_is_never_replaced_by_a_shorter_one() -> None:
    kept = PrefixCache(EMPTY, 1000)
    assert kept.get("a") == EMPTY
    for length in (3, 5, 4):
        kept.put("a", Part(length))
    assert kept.get("a") == Part(5)


def test_the_least_recently_used_are_given_up() -> None:
    kept = PrefixCache(EMPTY, 160)
    for n in range(16):
        kept.put(n, Part(n + 1))
    kept.get(0)
    kept.put(16, Part(17))
    assert [n for n in range(17) if kept.get(n) is EMPTY] == [1]


def test_what_is_too_large_drives_no_other_out_and_takes_the_place_of_its_own_past() -> None:
    kept = PrefixCache(EMPTY, 160)
    for n in range(16):
        kept.put(n, Part(1))
    kept.put(3, Part(2, 11))
    assert [n for n in range(16) if kept.get(n) is EMPTY] == [3]
    kept.put(3, Part(3))
    assert kept.get(3) == Part(3)
