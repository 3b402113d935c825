"""The checker tells of what is broken, however broken it is."""

from __future__ import annotations

import pytest

from gateway.events import Stream
from tests.faults.checker import check
from tests.faults.evidence import Evidence, Row, Standing
from tests.faults.history import (
    Fault,
    History,
    Observation,
    Operation,
    Receipt,
    Recovery,
    Sample,
    SetBack,
    StreamName,
    Try,
    now,
)

STREAM = StreamName(0, "order", "a")


def test_a_batch_without_its_first_event_is_lost_and_no_riddle() -> None:
    payloads = tuple(b'{"op": "w1.1#%d", "n": 1}' % n for n in range(2))
    told = Receipt("a", ("1", "2"), 1, 2)
    batch = Operation("w1.1", "batch", 0, "order", "a", payloads, tries=[Try(0, 1.0, 2.0, 201, receipt=told)])
    row = Row(0, 1, 1, STREAM, "2", b"", b"", payloads[1], Stream(b"", "order", "a"), b"")
    found = check(History([batch]), Evidence([row], {0: Standing(1, 1, "")}), digests=False)
    assert ("lost", "of w1.1 only 1 of 2 events are stored") in found


@pytest.mark.parametrize(("asked", "stale"), [(1.9, False), (2.0, False), (2.001, True)])
def test_a_read_shows_what_was_told_before_it_was_asked_for(asked: float, stale: bool) -> None:
    payload = b'{"op": "w1.1#0", "n": 1}'
    told = Receipt("a", ("1",), 1, 1)
    one = Operation("w1.1", "plain", 0, "order", "a", (payload,), tries=[Try(0, 1.0, 2.0, 201, receipt=told)])
    row = Row(0, 1, 1, STREAM, "1", b"", b"", payload, Stream(b"", "order", "a"), b"")
    read = Observation("length", 0, asked, 3.0, STREAM, 0)
    found = check(History([one], [read]), Evidence([row], {0: Standing(1, 1, "")}), digests=False)
    assert ("stale" in {kind for kind, _ in found}) == stale


@pytest.mark.parametrize(
    ("direct_at", "asked", "strong", "stale"),
    [(2.4, 2.1, False, False), (2.4, 2.1, True, True), (2.4, 3.5, False, True), (None, 2.1, False, True)],
)
def test_a_read_may_be_behind_for_a_second_where_a_gateway_bypasses_redis(
    direct_at: float | None, asked: float, strong: bool, stale: bool
) -> None:
    payload = b'{"op": "w1.1#0", "n": 1}'
    told = Receipt("a", ("1",), 1, 1)
    one = Operation("w1.1", "plain", 0, "order", "a", (payload,), tries=[Try(0, 1.0, 2.0, 201, receipt=told)])
    row = Row(0, 1, 1, STREAM, "1", b"", b"", payload, Stream(b"", "order", "a"), b"")
    read = Observation("length", 1, asked, asked + 0.2, STREAM, 0, strong=strong)
    samples = [Sample(1.9, 0, 2, 0, ""), Sample(direct_at or 2.4, 0, 3, 1, "", direct_at is not None)]
    history = History([one], [read], samples)
    found = check(history, Evidence([row], {0: Standing(1, 1, "")}), digests=False, partitions=(0,))
    assert ("stale" in {kind for kind, _ in found}) == stale


def test_times_of_a_history_tell_apart_what_happens_within_a_millisecond() -> None:
    begun = now()
    assert len({now() for _ in range(1000)} - {begun}) > 100


@pytest.mark.parametrize(("starved_s", "stuck"), [(0.0, True), (0.9, True), (1.1, False)])
def test_a_recovery_is_too_slow_by_the_time_in_which_the_rig_had_a_cpu(starved_s: float, stuck: bool) -> None:
    recovery = Recovery(1.0, ("redis-kill",), 6.0, (), starved_s)
    found = check(History(recoveries=[recovery]), Evidence([], {}), digests=False)
    assert ("stuck" in {kind for kind, _ in found}) == stuck


def test_what_a_stopped_gateway_appends_by_a_key_that_had_ended_is_outdated() -> None:
    payload = b'{"op": "stopped-1#0", "n": 1}'
    told = Receipt("a", ("1",), 1, 1)
    one = Operation(
        "stopped-1", "by-key", 0, "order", "a", (payload,), tries=[Try(0, 1.0, 2.0, 201, receipt=told)],
        outdated="its key had ended",
    )  # fmt: skip
    row = Row(0, 1, 1, STREAM, "1", b"", b"", payload, Stream(b"", "order", "a"), b"")
    found = check(History([one]), Evidence([row], {0: Standing(1, 1, "")}), digests=False)
    assert "outdated" in {kind for kind, _ in found}


@pytest.mark.parametrize(
    ("name", "at", "back"),
    [("crash-in-wait", 2.0, False), ("crash-in-wait", 4.0, True), ("redis-kill", 2.0, True)],
)
def test_a_partition_goes_back_only_from_what_became_visible_without_its_standby(
    name: str, at: float, back: bool
) -> None:
    samples = [Sample(0.5, 0, 2, 1, "a"), Sample(at, 0, 2, 2, "b"), Sample(5.0, 0, 2, 1, "a")]
    history = History(samples=samples, faults=[Fault(name, 1.0, 3.0)])
    found = check(history, Evidence([], {}), digests=False)
    assert ("epoch" in {kind for kind, _ in found}) == back


@pytest.mark.parametrize(
    ("at", "rewound", "broken"), [(3.0, True, set()), (9.0, True, {"alarm"}), (3.0, False, {"lost"})]
)
def test_the_alarm_of_an_overtaken_partition_comes_in_time_and_its_loss_counts_until_a_rewind(
    at: float, rewound: bool, broken: set[str]
) -> None:
    told = Receipt("a", ("1",), 1, 1)
    one = Operation("w1.1", "plain", 0, "order", "a", (b"{}",), tries=[Try(0, 1.0, 2.0, 201, receipt=told)])
    later = Operation("w1.2", "plain", 0, "order", "b", (b"{}",), tries=[Try(1, 4.0, 4.5, 503)])
    back = SetBack(2.5, 10.0, 11.0, overtaken={0: at}, given_up=frozenset({0}) if rewound else frozenset())
    history = History([one, later], set_backs=[back])
    found = check(history, Evidence([], {}), digests=False, partitions=(0,))
    assert {kind for kind, _ in found} == broken
