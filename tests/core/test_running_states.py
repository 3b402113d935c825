"""States that follow the commits of their gateway are those that a fold of the stream makes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.aggregates.running import AGE_S, DATA_BYTES_MAX, RunningStates
from gateway.events import Event, Recorded, Stream
from gateway.log.entries import SequencedAppend
from gateway.state import EMPTY, Folded, fold
from spec.handlers import (
    DEFAULT_HANDLER,
    AppendUnique,
    Constant,
    Handler,
    Increment,
    Path,
    Root,
    Set,
)


class Running(RunningStates):
    """With a clock and a history to be set."""

    def __init__(self, bytes_max: int = 10**6) -> None:
        self.now, self.history = 0.0, (0, 0)
        super().__init__(lambda stream: self.history, lambda: self.now, 4_000_000, bytes_max)

    def versions(self, first: int, count: int) -> list[int]:
        return [each.version for each in self.take(A, first, count, self.history)]


A, B = (Stream(bytes(16), "counter", name) for name in "ab")
EVENT = Event(bytes(16), "was_counted", "", "", None, None, bytes(16), None, 1, 0, None, b"{}")


def test_events_are_taken_once_and_those_behind_them_stay() -> None:
    running = Running()
    assert running.begin(A, 501)
    assert not running.begin(A, 600)
    running.add(A, 501, [EVENT] * 300)
    running.add(B, 1, [EVENT])
    assert running.versions(400, 200) == []
    assert running.versions(501, 301) == []
    assert running.versions(601, 100) == list(range(601, 701))
    assert running.versions(501, 100) == []
    running.add(A, 801, [EVENT])
    assert running.versions(701, 101) == list(range(701, 802))
    assert running.size_bytes == 0


@pytest.mark.parametrize("lost", ["a gap", "another history", "a minute", "room"])
def test_events_that_do_not_follow_each_other_in_one_history_are_dropped(lost: str) -> None:
    running = Running(100_000)
    running.begin(A, 1)
    running.add(A, 1, [EVENT] * 10)
    if lost == "a gap":
        running.add(A, 12, [EVENT])
    elif lost == "another history":
        running.history = (1, 0)
    elif lost == "a minute":
        running.now = AGE_S + 1
    else:
        running.add(A, 11, [EVENT] * 1_000)
    assert running.versions(1, 10) == []
    assert running.size_bytes == 0
    assert running.begin(A, 1)


def test_streams_whose_time_is_up_make_room() -> None:
    running = Running(5_000)
    running.begin(A, 1)
    running.add(A, 1, [EVENT] * 8)
    running.now = AGE_S + 1
    assert running.begin(B, 1)
    assert running.size_bytes == 0


MERGES: dict[str, Handler] = {"was_counted": DEFAULT_HANDLER}
COUNTS: dict[str, Handler] = {
    "was_counted": (Increment(("n",), Constant(1)),),
    "was_set": DEFAULT_HANDLER,
    "was_grown": (Set(("all",), Path(Root.STATE)),),
    "was_noted": (AppendUnique(("lines",), Path(Root.DATA), None),),
}


def event(kind: str, data: bytes, at_ms: int = 0) -> Event:
    return Event(bytes(16), kind, "", "", None, None, bytes(16), None, 1, at_ms, None, data)


OTHER_TEXTS = [
    b"[1]", b'"text"', b"null", b'{"note":"%b"}' % (b"x" * 5_000), b'{"note":"%b"}' % (b"x" * 20_000),
    b'{"n":', b'{"\\ud800":1}', b'{"n":"\xff"}', b"{}{}",
]  # fmt: skip


def placed(first: int, events: Sequence[Event]) -> SequencedAppend:
    last = first + len(events) - 1
    return SequencedAppend(A, bytes(16), tuple(events), b"", (), bytes(32), first, last)


def follow(running: RunningStates, first: int, events: Sequence[Event]) -> list[Folded]:
    """As what commits does: what is published."""
    published = []
    for part in running.merge([placed(first, events)]):
        running.add(*part)
    while running.behind:
        published.append(running.fold_on(A))
    for each in published:
        assert each is None or each[:2] == ((A, 1, 0), 0)
    return [each[2] for each in published if each is not None]


@st.composite
def committed(draw: st.DrawFn) -> list[list[Event]]:
    """Of one stream, by appends."""
    small = st.dictionaries(st.sampled_from("abcn"), st.integers(-9, 9) | st.text(max_size=3), max_size=4)
    texts = small.map(lambda value: json.dumps(value).encode())
    others = st.sampled_from(OTHER_TEXTS)
    kinds = st.sampled_from(["was_counted", "was_set"])
    usual = st.builds(event, kinds, texts)
    unusual = st.builds(
        event, kinds | st.sampled_from(["was_noted", "was_grown", "was_lost"]), texts | others
    )
    rarely = draw(st.sampled_from([1, 10, 100]))
    each = st.integers(0, rarely).flatmap(lambda n: usual if n else unusual)
    singles, batches = st.lists(each, min_size=1, max_size=1), st.lists(each, min_size=1, max_size=30)
    return draw(st.lists(st.one_of(singles, singles, singles, batches), min_size=10, max_size=40))


@given(
    committed(),
    st.sampled_from([MERGES, COUNTS]),
    st.sampled_from([50_000, 200_000, 4_000_000]),
    st.sampled_from([4, 20]),
)
def test_states_that_run_are_those_of_a_fold(
    appends: list[list[Event]], handlers: dict[str, Handler], bytes_max: int, every: int
) -> None:
    def handler_of(kind: str) -> Handler:
        return handlers.get(kind, DEFAULT_HANDLER)

    running = RunningStates(lambda _: (0, 0), lambda: 0.0, bytes_max, 400_000)
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, handler_of)
    all_of: list[Recorded] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.aggregates.running.PUBLISH_EVERY", every)
        for events in appends:
            first = len(all_of) + 1
            all_of += [Recorded(A, first + n, each) for n, each in enumerate(events)]
            for folded in follow(running, first, events):
                assert folded == fold(EMPTY, all_of[: folded.length], handler_of, bytes_max=bytes_max)
            assert running.size_bytes <= 400_000


def test_a_state_is_published_at_each_250th_event_and_holds_in_one_history_only() -> None:
    running = Running()
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, MERGES.__getitem__)
    states: list[Folded] = []
    for version in range(1, 1_001):
        states += follow(running, version, [event("was_counted", b'{"n": %d}' % version, version)])
    assert [each.length for each in states] == [250, 500, 750, 1_000]
    assert (states[1].data_json, states[1].updated_at_ms) == (b'{"n":500}', 500)
    running.history = (1, 0)
    for version in range(1_001, 1_251):
        assert not follow(running, version, [EVENT])
    assert A not in running
    assert running.size_bytes == 0


@pytest.mark.parametrize("count", [1, 7, 60, 700])
def test_a_state_is_published_at_its_multiples_however_many_events_a_commit_has(count: int) -> None:
    running = Running()
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, MERGES.__getitem__)
    states: list[Folded] = []
    for first in range(1, 1_401, count):
        states += follow(running, first, [EVENT] * count)
    assert [each.length for each in states] == [250, 500, 750, 1_000, 1_250]


def test_what_comes_after_a_state_that_is_to_be_published_does_not_merge_yet() -> None:
    running = Running()
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, MERGES.__getitem__)
    follow(running, 1, [EVENT])
    ((_, first, events),) = running.merge([placed(2, [EVENT] * 300)])
    assert (first, len(events)) == (251, 51)


def test_of_one_commit_only_so_much_merges_at_once_and_the_rest_is_folded_later() -> None:
    running = Running(10**8)
    small = event("was_counted", json.dumps({f"f{n}": n for n in range(300)}).encode())
    others = [Stream(bytes(16), "counter", str(n)) for n in range(200)]
    for each in others:
        running.begin(each, 1)
        running.start((each, 1, 0), 0, EMPTY, MERGES.__getitem__)
        running.add(each, 1, [EVENT])
        assert running.fold_on(each) is None
    commit = [
        SequencedAppend(each, bytes(16), (small,), b"", (), bytes(32), 2, n)
        for n, each in enumerate(others, 1)
    ]
    rest = running.merge(commit)
    assert 50 < len(rest) < 150
    for part in rest:
        assert running.add(*part)
    assert list(running.behind) == [stream for stream, _, _ in rest]


@pytest.mark.parametrize("other", ["was_noted", "was_large"])
def test_what_takes_long_ends_that_a_state_runs_and_waits_with_what_follows(other: str) -> None:
    running = Running()
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, lambda kind: COUNTS.get(kind, DEFAULT_HANDLER))
    running.add(A, 1, [EVENT] * 3)
    assert running.fold_on(A) is None
    data = b'{"note": "%b"}' % (b"x" * (DATA_BYTES_MAX if other == "was_large" else 10))
    running.add(A, 4, [event(other, data), EVENT])
    published = running.fold_on(A)
    assert published is not None
    assert published[2].length == 3
    assert not follow(running, 6, [EVENT])
    assert running.versions(4, 3) == [4, 5, 6]


def test_events_that_are_taken_end_that_the_state_runs_until_it_begins_again() -> None:
    """As where the state was due once more when it began to run."""
    running = Running()
    running.begin(A, 1)
    running.add(A, 1, [EVENT] * 300)
    running.start((A, 1, 0), 0, EMPTY, MERGES.__getitem__)
    assert running.versions(1, 100) == list(range(1, 101))
    assert not follow(running, 301, [EVENT])
    folded = fold(EMPTY, [Recorded(A, n, EVENT) for n in range(1, 101)], MERGES.__getitem__)
    running.start((A, 1, 0), 0, folded, MERGES.__getitem__)
    assert [each.length for each in follow(running, 302, [EVENT])] == [250]


def test_a_bug_in_a_fold_ends_that_the_state_runs() -> None:
    def handler_of(kind: str) -> Handler:
        if kind == "was_lost":
            raise LookupError(kind)
        return COUNTS[kind]

    running = Running()
    running.begin(A, 1)
    running.start((A, 1, 0), 0, EMPTY, handler_of)
    running.add(A, 1, [EVENT] * 3 + [event("was_lost", b"{}")])
    with pytest.raises(LookupError):
        running.fold_on(A)
    assert A not in running
    assert running.size_bytes == 0
