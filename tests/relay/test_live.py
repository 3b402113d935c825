"""What a follower takes from its channel, and what that costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from gateway.events import Event, Recorded, Stream
from gateway.log.entries import SequencedAppend
from gateway.relay.channel import Batch, Channel, Following, Known
from gateway.relay.live import _Tail
from gateway.relay.outbox import Entry, Filter, Outbox, Stretch
from gateway.relay.position import Place
from gateway.tasks import ended

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


def form(each: Entry) -> bytes:
    return b"%d," % each.place.seq


def new_channel() -> Channel[bytes]:
    """Behind seq 10."""
    return Channel(Filter(TENANT), form, place(10))


def channel_of(rounds: int) -> Channel[bytes]:
    """Two events a round; all of them are kept."""
    channel = new_channel()
    for first in range(11, 11 + 2 * rounds, 2):
        channel.add(Batch([entry(first), entry(first + 1)]), place(first + 1))
        channel.close(2**40)
    return channel


def seqs(channel: Channel[bytes], after: int) -> list[int] | None:
    taken = channel.take(place(after))
    if taken is None:
        return None
    chunks, end = taken
    assert end.seq == max(after, channel.end.seq)
    found = [seq for chunk in chunks for seq in chunk.seqs]
    assert b"".join([chunk.whole() for chunk in chunks]) == b"".join([b"%d," % seq for seq in found])
    return found


def test_a_follower_takes_all_that_lies_behind_it_in_order() -> None:
    channel = channel_of(5)
    assert [seqs(channel, after) for after in range(9, 22)] == [
        None,
        *(list(range(after + 1, 21)) for after in range(10, 21)),
        [],
    ]


def test_what_was_added_is_there_once_its_chunk_is_closed() -> None:
    channel = new_channel()
    for first in (11, 13, 15):
        channel.add(Batch([entry(first), entry(first + 1)]), place(first + 2))
        assert seqs(channel, 10) == []
    (chunk,) = channel.close(2**40)
    assert chunk.whole() == b"11,12,13,14,15,16,"
    assert (channel.end, chunk.end) == (place(17), place(17))
    assert seqs(channel, 12) == [13, 14, 15, 16]
    assert channel.close(2**40) == []


def test_a_channel_that_starts_again_forgets_what_was_added() -> None:
    channel = new_channel()
    channel.add(Batch([entry(11)]), place(11))
    channel.begin(place(20))
    assert channel.close(2**40) == []
    channel.add(Batch([entry(21)]), place(21))
    channel.close(2**40)
    assert (seqs(channel, 10), seqs(channel, 20)) == (None, [21])


def test_who_was_slow_as_history_was_lost_is_sent_to_postgres() -> None:
    channel = channel_of(5)
    with Following(channel) as slow:
        # It was sent up to 20. Postgres comes back as of 12, and 13 and 14 are committed again.
        for start in (place(0), place(12)):
            channel.begin(start)
        slow.doubt()
        channel.add(Batch([entry(13), entry(14)]), place(14))
        channel.close(2**40)
        assert slow.take(place(20)) is None
        assert slow.take(place(20)) == ([], place(20))  # where Postgres knows the place after all


def test_what_is_more_than_may_be_kept_goes_from_its_old_end() -> None:
    channel = new_channel()
    for seq in range(11, 41):
        channel.add(Batch([entry(seq)]), place(seq))
        channel.close(1000)
    assert seqs(channel, 10) is None
    assert seqs(channel, channel.start_seq) == list(range(channel.start_seq + 1, 41))
    assert 11 < channel.start_seq < 40


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


def big(seq: int, size: int) -> Entry:
    plain = entry(seq)
    event = replace(plain.recorded.event, payload=b"1" * size)
    return Entry(plain.place, replace(plain.recorded, event=event))


def its_payload(each: Entry) -> bytes:
    return each.recorded.event.payload or b""


def test_what_was_added_is_handed_out_in_chunks_of_so_many_bytes() -> None:
    channel = Channel(Filter(TENANT), its_payload, place(10))
    sizes = [100_000, 100_000, 100_000, 400_000, 10, 10, 250_000, 20_000]
    channel.add(Batch([big(11 + n, size) for n, size in enumerate(sizes)]), place(30))
    chunks = channel.close(2**40)
    assert [chunk.seqs for chunk in chunks] == [[11, 12], [13], [14], [15, 16, 17], [18]]
    assert [chunk.after_seq for chunk in chunks] == [10, 12, 13, 14, 17]
    assert [chunk.end for chunk in chunks] == [place(12), place(13), place(14), place(17), place(30)]
    assert seqs_from(channel, 12) == [13, 14, 15, 16, 17, 18]
    assert seqs_from(channel, 15) == [16, 17, 18]


def seqs_from(channel: Channel[bytes], after: int) -> list[int]:
    taken = channel.take(place(after))
    assert taken is not None
    return [seq for chunk in taken[0] for seq in chunk.seqs]


def test_channels_share_what_is_made_of_an_event() -> None:
    made = []

    def making(each: Entry) -> bytes:
        made.append(each.place.seq)
        return form(each)

    batch = Batch([entry(seq) for seq in range(11, 21)])
    filters = [Filter(TENANT, frozenset({"order", f"zz{n}"})) for n in range(50)]
    filters += [Filter(TENANT), Filter(TENANT, event_types=frozenset({"was_noted"}))]
    channels = [Channel(each, making, place(10)) for each in filters]
    for channel in channels:
        channel.add(batch, place(20))
    chunks = [channel.close(2**40) for channel in channels]
    assert made == list(range(11, 21))
    assert {chunk.items[0] for (chunk,) in chunks} == {b"11,"}
    assert len({id(chunk.items[0]) for (chunk,) in chunks}) == 1


def test_a_filter_takes_its_kinds_in_the_order_of_their_commits() -> None:
    entries = [kind_of(11 + n, name) for n, name in enumerate("abcabccba")]
    batch = Batch(entries)
    for wanted in ("a", "ab", "bc", "abc", "d"):
        channel = Channel(Filter(TENANT, frozenset(wanted)), form, place(10))
        channel.add(batch, place(19))
        expected = [11 + n for n, name in enumerate("abcabccba") if name in wanted]
        assert [seq for chunk in channel.close(2**40) for seq in chunk.seqs] == expected


def kind_of(seq: int, aggregate_type: str) -> Entry:
    stream = Stream(TENANT, aggregate_type, "a")
    return Entry(place(seq), Recorded(stream, seq, entry(seq).recorded.event))


class NoOutbox:
    """Not asked."""


async def test_a_tail_holds_so_many_bytes_of_what_is_committed_until_it_looks() -> None:
    tail = _Tail(0, cast("Outbox", NoOutbox()), lambda: 2**20, lambda: None)
    for n in range(50):
        events = (replace(entry(n).recorded.event, payload=b"1" * 200_000),)
        tail._committed_here([SequencedAppend(STREAM, b"", events, bytes(32), (), b"", n, n)])
        assert sum(len(each.events[0].payload or b"") for each in tail._pending) < 4 * 1024 * 1024
    tail.stop()


class Stumbles:
    """An outbox whose first look ends in a bug."""

    looks = 0

    async def end_of(self, p: int) -> Place:
        self.looks += 1
        if self.looks == 1:
            raise RuntimeError("unable to perform operation on a closed transport")
        return place(10)

    async def stretch_of(self, *_: object) -> Stretch:
        return Stretch((), place(10), 10, 0, within=False)

    async def tagged(self, entries: Sequence[Entry], _: object) -> Sequence[Entry]:
        return entries


@pytest.mark.bug
async def test_a_tail_continues_after_a_bug() -> None:
    """As uvloop's RuntimeError of a connection that is closed in this very moment."""
    tail = _Tail(0, cast("Outbox", Stumbles()), lambda: 2**20, lambda: None)
    running = asyncio.create_task(tail._run())
    with tail.following(Filter(TENANT), lambda _, each: form(each), None) as following:
        while following._channel.end != place(10):
            await asyncio.wait([running], timeout=0.01)
            assert not running.done()
        tail._committed_here(
            [SequencedAppend(STREAM, b"", (entry(11).recorded.event,), bytes(32), (), b"", 11, 11)]
        )
        await following.wait(20)
        taken = following.take(place(10))
    tail.stop()
    await ended([running])
    assert taken is None or [each.whole() for each in taken[0]] == [b"11,"]


KNOWN = Known(1, frozenset("abc"), frozenset({"was_noted"}))


def wanting(types: str, *event_types: str) -> Filter:
    return Filter(TENANT, frozenset(types.split()), frozenset(event_types))


def test_names_that_no_spec_declares_make_no_difference_to_a_filter() -> None:
    assert KNOWN.canonical(wanting("a zz1")) == KNOWN.canonical(wanting("zz2 a")) == wanting("a")
    assert KNOWN.canonical(wanting("zz1")) == KNOWN.canonical(wanting("zz2")) != KNOWN.canonical(wanting(""))
    assert KNOWN.canonical(wanting("")) == wanting("")
    assert KNOWN.canonical(wanting("a _delivery")) == wanting("a _delivery")
    assert KNOWN.canonical(wanting("", "was_noted", "was_never")) == wanting("", "was_noted")
    assert KNOWN.canonical(wanting("a _x", "was_given")) == wanting("a _x", "was_given")
    none = KNOWN.canonical(wanting("", "was_never"))
    assert not any(none.takes(Stream(TENANT, name, "a"), "was_noted") for name in "abc")


def test_where_something_else_is_committed_followers_of_a_canonical_filter_ask_postgres() -> None:
    channel = Channel(KNOWN.canonical(wanting("a d")), form, place(10), KNOWN)
    with Following(channel) as following:
        channel.add(Batch([kind_of(11, "a"), kind_of(12, "b")]), place(12))
        assert [chunk.seqs for chunk in channel.close(2**40)] == [[11]]
        channel.add(Batch([kind_of(13, "a"), kind_of(14, "d")]), place(14))
        assert channel.close(2**40) == []
        assert following.take(place(12)) is None
        assert following.take(place(14)) == ([], place(14))
        channel.add(Batch([kind_of(15, "a"), kind_of(16, "_system")]), place(16))
        assert [chunk.seqs for chunk in channel.close(2**40)] == [[15]]
