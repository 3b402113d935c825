"""The keys of rows that live clients have: a set, as long as they fit into what they may take."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.api.known_rows import CLIENT_BYTES_MAX, KnownRows, RowMemory

ROOM = 10**6
KEYS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(st.sampled_from(["has", "has_no_more", "begin", "reset", "end"]), KEYS))


@given(STEPS)
def test_where_there_is_room_it_is_a_set_and_what_was_told_last(steps: list[tuple[str, str]]) -> None:
    known, now, before = KnownRows(ROOM), set[str](), set[str]()
    for step, key in steps:
        if step == "has":
            known.has(key)
            now.add(key)
            before.discard(key)
        elif step == "has_no_more":
            known.has_no_more(key)
            now.discard(key)
            before.discard(key)
        elif step == "end":
            assert known.end() == sorted(before)
            before = set()
        else:
            known.begin(reset=step == "reset")
            before = set() if step == "reset" else before | now
            now = set()
        assert known.sure
        assert {each for each in "abcd" if known.may_have(each)} == now | before


def test_a_client_that_has_too_many_may_have_any() -> None:
    known = KnownRows(CLIENT_BYTES_MAX)
    count = 0
    while known.sure:
        known.has(f"{count:036}")
        count += 1
    assert 20_000 < count < 30_000
    assert known.may_have("another")
    known.begin(reset=True)
    known.has("a")
    assert (known.may_have("a"), known.may_have("b"), known.end()) == (True, False, [])


def test_what_was_told_again_is_not_deleted_though_there_is_no_room_for_it() -> None:
    known = KnownRows(ROOM)
    for each in "abc":
        known.has(each)
    known.begin(reset=False)
    known.lose()
    known.has("a")
    assert known.end() == ["b", "c"]


def _fill(known: KnownRows) -> int:
    """How many keys it has room for."""
    count = 0
    while known.sure and count < 10_000:
        known.has(f"{count:036}")
        count += 1
    return count


def test_tenants_share_the_memory_and_the_clients_of_one_share_its_part() -> None:
    memory = RowMemory(ROOM)
    with ExitStack() as ends:
        first = ends.enter_context(memory.client(b"one"))
        assert _fill(first) > 4_000
        first.begin(reset=True)
        for n in range(600):
            first.has(f"{n:036}")
        others = [ends.enter_context(memory.client(b"two")) for _ in range(200)]
        assert first.sure
        rooms = [_fill(each) for each in others]
        assert sum(rooms) < 2_700
        ends.enter_context(memory.client(b"one"))
        assert first.sure
        for _ in range(30):
            ends.enter_context(memory.client(b"one"))
        assert not first.sure
    with memory.client(b"two") as alone:
        assert _fill(alone) > 4_000


def test_what_a_key_takes_is_counted() -> None:
    for count in (100, 5_000, 20_000):
        keys = {f"{n:036}" for n in range(count)}
        taken = sys.getsizeof(keys) + sum(sys.getsizeof(each) for each in keys)
        known = KnownRows(10**9)
        for each in keys:
            known.has(each)
        assert taken <= known._bytes
