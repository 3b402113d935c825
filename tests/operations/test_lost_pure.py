"""The rules behind repair and rewind that need no server."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils import uuid7

from gateway.admit.append import EventContext
from gateway.admit.line import judge_line
from gateway.appends import Append, next_chain
from gateway.dev.prepare import bundled_spec
from gateway.log.epoch.chain import ChainWalk, roll
from gateway.log.epoch.commit_evidence import CommitEvidence
from gateway.log.postgres import PartitionRow
from gateway.operations.lineage import Segment, joined
from gateway.operations.lost_events import Here, bulk_line, spans, told_spans
from spec.parse import parse
from tests.support.drive import event, new_stream

# -- which part of each epoch's journal is history


def test_an_epochs_journal_ends_where_the_next_one_begins() -> None:
    first, second, third = Segment(1, 1, 12), Segment(2, 9, 20), Segment(3, 15, 18)
    assert joined([third, first, second]) == [Segment(1, 1, 8), Segment(2, 9, 14), third]


def test_an_epoch_whose_journal_was_never_committed_is_left_out() -> None:
    assert joined([Segment(1, 1, 5), Segment(2, 6, 9), Segment(3, 6, 7)]) == [
        Segment(1, 1, 5),
        Segment(3, 6, 7),
    ]


def test_an_epoch_without_entries_ends_the_ones_before_at_its_watermark() -> None:
    assert joined([Segment(1, 1, 12), Segment(2, 11, 10)]) == [Segment(1, 1, 10), Segment(2, 11, 10)]


segments = st.builds(lambda first, length: (first, first + length), st.integers(1, 40), st.integers(0, 20))


@given(st.lists(segments, max_size=6))
def test_segments_never_overlap_and_the_last_epoch_is_whole(found: list[tuple[int, int]]) -> None:
    parts = [Segment(epoch, *bounds) for epoch, bounds in enumerate(found, 1)]
    history = joined(parts)
    assert all(before.last < after.first for before, after in pairwise(history))
    assert history[-1:] == parts[-1:]


# -- positions for people


@given(st.lists(st.integers(1, 60)))
def test_spans_hold_exactly_the_positions(seqs: list[int]) -> None:
    found = spans(seqs)
    assert [seq for first, last in found for seq in range(first, last + 1)] == sorted(set(seqs))
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


def test_spans_are_told_shortly() -> None:
    assert told_spans(spans([3, 1, 2, 7])) == "1…3, 7"
    assert told_spans([]) == ""
    many = told_spans(spans(range(1, 100, 2)))
    assert many.startswith("1, 3, 5, ")
    assert many.endswith("39, and 30 spans more up to 99")


# -- a lost event as a line for /_/bulk


def test_a_lost_event_can_be_appended_again_as_it_was() -> None:
    tenant, event_id, caused = uuid7().bytes, uuid7().bytes, uuid7().bytes
    lost = event(
        event_id,
        b'{ "total": 1e3,\n\t"items": [] }',
        target_type="order",
        target_id="ABC123XYZ",
        causation_id=caused,
        extra=b'{"note":\r\n"x"}',
    )
    line = msgspec.json.encode(bulk_line(Here(new_stream(tenant), 7, 3, lost)))
    assert b"\n" not in line
    assert b"\r" not in line
    minting = EventContext(tenant, 9, 0, uuid7().bytes, lambda: uuid7().bytes, 262144)
    judged = judge_line(parse(bundled_spec()), line, minting, {})  # type: ignore[arg-type]
    assert isinstance(judged, Append), judged
    (again,) = judged.events
    assert again.payload == b'{ "total": 1e3, \t"items": [] }'
    assert again.extra == b'{"note":  "x"}'
    kept = ("id", "type", "actor_type", "actor_id", "target_type", "target_id", "causation_id")
    assert all(getattr(again, name) == getattr(lost, name) for name in kept)


# -- who saw more than Postgres has


def row(epoch: int, seq: int, rewound: int = 0) -> PartitionRow:
    return PartitionRow(epoch, seq, "chain", "redis", "", rewound)


def test_a_witness_is_ahead_by_its_seq_or_its_epoch_unless_a_rewind_gave_it_up() -> None:
    saw = CommitEvidence("Redis", 3, 10, "x")
    assert saw.ahead_of(row(3, 9))
    assert saw.ahead_of(row(2, 10))
    assert not saw.ahead_of(row(3, 10))
    assert not saw.ahead_of(row(4, 30))
    assert not saw.ahead_of(row(4, 5, rewound=4))
    assert "is at epoch 3, seq 9, but Redis saw epoch 3, seq 10 committed" in saw.against(1, row(3, 9))
    assert "does not continue what Redis saw committed at seq 10" in saw.against(1, row(4, 30))


# -- the chain


appends = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=8)


@given(appends)
def test_a_walk_over_rows_gives_the_chain_of_their_appends(sizes: list[tuple[int, int]]) -> None:
    chain, rows = "", []
    walk = ChainWalk("")
    for n, (count, version) in enumerate(sizes):
        digests = [bytes([n, each]) * 16 for each in range(count)]
        for each, digest in enumerate(digests):
            assert walk.add(b"%d" % n, version + each, digest) is (each == 0)
            rows.append(_row(len(rows) + 1, version + each, b"%d" % n, digest))
        chain = next_chain(chain, version, b"".join(digests))
        assert walk.chain == chain
    assert roll("", rows, len(rows)) == chain


def _row(seq: int, version: int, append_id: bytes, digest: bytes) -> dict[str, Any]:
    return {"seq": seq, "version": version, "append_id": append_id, "digest": digest}
