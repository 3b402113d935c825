"""What a follower takes from its channel, and what that costs."""

from __future__ import annotations

import time

from gateway.events import Event, Recorded, Stream
from gateway.relay.live import Batch, Channel
from gateway.relay.outbox import Entry, Filter
from gateway.relay.position import Place

TENANT = bytes(16)
STREAM = Stream(TENANT, "order", "a")
ROUNDS = 20_000


def entry(seq: int) -> Entry:
    event = Event(
        seq.to_bytes(16), "was_noted", "user", "global", None, None, bytes(16), None, 1, seq, None, b"{}"
    )
    return Entry(place(seq), Recorded(STREAM, seq, event))


def place(seq: int) -> Place:
    return Place(seq, seq.to_bytes(4))


def channel_of(rounds: int) -> Channel:
    """Two events a round, behind seq 10; all of them are kept."""
    channel = Channel(Filter(TENANT), place(10))
    for first in range(11, 11 + 2 * rounds, 2):
        channel.add(Batch([entry(first), entry(first + 1)]), place(first + 1), 2**40)
    return channel


def seqs(channel: Channel, after: int) -> list[int] | None:
    taken = channel.take(place(after))
    if taken is None:
        return None
    chunks, end = taken
    assert end.seq == max(after, channel.end.seq)
    return [each.place.seq for chunk in chunks for each in chunk.entries]


def test_a_follower_takes_all_that_lies_behind_it_in_order() -> None:
    channel = channel_of(5)
    assert [seqs(channel, after) for after in range(9, 22)] == [
        None,
        *(list(range(after + 1, 21)) for after in range(10, 21)),
        [],
    ]


def test_what_a_round_takes_is_found_at_once_however_much_is_kept() -> None:
    short, long = channel_of(10), channel_of(ROUNDS)
    assert seqs(long, long.end.seq - 2) == [long.end.seq - 1, long.end.seq]
    assert took_s(long) < 30 * took_s(short)


def took_s(channel: Channel) -> float:
    """The shortest of many: the machine is shared."""
    after, shortest = place(channel.end.seq - 2), 1.0
    for _ in range(200):
        begun = time.perf_counter()
        channel.take(after)
        shortest = min(shortest, time.perf_counter() - begun)
    return shortest
