"""Marks of committed events: found where they were kept, and nowhere else."""

from __future__ import annotations

from gateway.log.epoch.marks import BLOCKS_MAX, EVENTS_A_BLOCK, Marks

DIGESTS = [bytes([n]) * 32 for n in range(1, 4)]


def test_a_mark_is_found_at_its_event_only() -> None:
    marks = Marks()
    marks.keep(EVENTS_A_BLOCK - 1, b"".join(DIGESTS))  # into two blocks
    for n, digest in enumerate(DIGESTS):
        assert marks.has(EVENTS_A_BLOCK - 1 + n, digest[:4])
        assert not marks.has(EVENTS_A_BLOCK + n, digest[:4])
    marks.keep_one(7, b"abcd")
    assert marks.has(7, b"abcd")
    marks.forget()
    assert not marks.has(7, b"abcd")


def test_where_nothing_was_kept_no_mark_is_found() -> None:
    marks = Marks()
    assert not marks.has(1, bytes(4))
    marks.keep_one(2, b"abcd")
    for mark in (bytes(4), b""):
        assert not marks.has(1, mark)
    marks.keep_one(3, bytes(4))
    assert not marks.has(3, bytes(4))


def test_the_oldest_block_goes_first() -> None:
    marks = Marks()
    for n in range(BLOCKS_MAX + 1):
        marks.keep_one(n * EVENTS_A_BLOCK, b"abcd")
    assert not marks.has(0, b"abcd")
    assert all(marks.has(n * EVENTS_A_BLOCK, b"abcd") for n in range(1, BLOCKS_MAX + 1))
