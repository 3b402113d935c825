"""A gzip stream of parts that many connections share: what a strict decoder makes of it."""

from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.gzipped import AT_ONCE_BYTES, HEAD, NOTHING, Mark, Run, Sent, deflated, gone_on

BYTES = st.binary(max_size=60) | st.integers(0, 3000).map(bytes)
CRCS = st.integers(0, 2**32 - 1)
SIZES = st.integers(0, 2**45)
# What one round brings: from which of two runs, and which of three connections are sent it, or only one.
ROUNDS = st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 2)), BYTES, st.none() | BYTES))


@given(BYTES, BYTES, BYTES)
def test_what_bytes_make_of_one_crc_they_make_of_any(one: bytes, another: bytes, more: bytes) -> None:
    before, after = NOTHING.over(another), NOTHING.over(another + more)
    assert gone_on(NOTHING.over(one), before, after) == NOTHING.over(one + more)


@given(CRCS, CRCS, CRCS, CRCS, SIZES, SIZES, SIZES)
def test_so_do_more_bytes_than_there_is_time_to_send(
    one: int, first: int, second: int, third: int, size: int, more: int, most: int
) -> None:
    marks = Mark(first, size), Mark(second, size + more), Mark(third, size + more + most)
    stepwise = gone_on(gone_on(Mark(one, 0), marks[0], marks[1]), marks[1], marks[2])
    assert stepwise == gone_on(Mark(one, 0), marks[0], marks[2])


@given(ROUNDS)
def test_each_connection_is_a_whole_stream_whatever_it_was_sent(
    rounds: list[tuple[int, set[int], bytes, bytes | None]],
) -> None:
    runs = Run(), Run()
    sent = [Sent() for _ in range(3)]
    wire, meant = [HEAD] * 3, [b""] * 3
    for run, connections, plain, alone in rounds:
        part = runs[run].part(plain)
        for each in connections:
            sent[each].follow(part)
            wire[each] += part.sent
            meant[each] += plain
        if alone is not None:
            sent[0].for_one(alone)
            wire[0] += deflated(alone)
            meant[0] += alone
    for each in range(3):
        assert zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(wire[each]) == meant[each]
        assert gzip.decompress(wire[each] + sent[each].end()) == meant[each]


def test_a_part_is_much_smaller_unless_it_would_keep_the_others_waiting() -> None:
    event, run = b'{"note":"Leave it with the neighbour."}\n', Run()
    ordinary, large = event * 1000, event * (AT_ONCE_BYTES // len(event) + 1)
    assert len(run.part(ordinary).sent) < len(ordinary) / 20
    part = run.part(large)
    assert len(large) < len(part.sent) < len(large) * 1.001
    assert zlib.decompress(part.sent + b"\x03\x00", -zlib.MAX_WBITS) == large
