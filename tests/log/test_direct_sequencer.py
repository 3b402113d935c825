"""Direct mode's judgement against a model in the plainest words."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, Append
from gateway.log.append.direct_sequencer import DirectSequencer
from gateway.log.append.identities import Claim, Claims
from gateway.log.entries import SequencedAppend
from tests.log.protocol_model import Entry, PostgresModel, Swap
from tests.support.drive import append, event, new_stream, new_tenant

P = 3


@dataclass(frozen=True, slots=True)
class Asked:
    stream: int
    count: int
    expected: int
    key: int | None
    event_id: int | None
    body: int
    again: int | None
    """The number of an earlier request that it repeats, as a gateway tries one again."""


ASKED = st.builds(
    Asked,
    stream=st.integers(0, 2),
    count=st.integers(1, 3),
    expected=st.sampled_from([ANY_LENGTH, ANY_LENGTH, AT_LEAST_ONE, 0, 1, 2, 3]),
    key=st.sampled_from([None, None, 0, 1]),
    event_id=st.sampled_from([None, None, None, 0, 1]),
    body=st.sampled_from([0, 0, 0, 1]),
    again=st.sampled_from([None, None, None, 0, 1, 2]),
)


def known(pg: PostgresModel) -> Claims:
    """What a look at all identities and ids would find."""
    identities = {
        (row[0].tenant, each): Claim(P, *pg.claims[each])
        for row in pg.rows
        for each in row[3].chosen
        if each in pg.claims
    }
    events = {(row[0].tenant, row[2]): (P, seq) for seq, row in enumerate(pg.rows, 1)}
    return Claims(pg.epoch, len(pg.rows), identities, events)


@settings(max_examples=300, deadline=None)
@given(batches=st.lists(st.lists(ASKED, max_size=6), max_size=5))
def test_appends_are_placed_as_the_model_does(batches: list[list[Asked]]) -> None:
    pg, tenant = PostgresModel(P), new_tenant()
    streams = [new_stream(tenant) for _ in range(3)]
    ids = [event().id for _ in range(2)]
    made: list[Append] = []
    for asked in batches:
        batch = []
        for each in asked:
            if each.again is not None and each.again < len(made):
                batch.append(made[each.again])
                continue
            chosen = () if each.event_id is None else (ids[each.event_id],)
            batch.append(
                append(streams[each.stream], 1 if chosen else each.count, expected=each.expected,
                       event_ids=chosen, key=None if each.key is None else b"%d" % each.key,
                       body=b"%d" % each.body)
            )  # fmt: skip
            made.append(batch[-1])
        heads = {stream: pg.length(stream) for stream in streams}
        placing = DirectSequencer(P, known(pg), heads, pg.chain)
        for each, expected in zip(batch, pg.directly(batch), strict=True):
            verdict = placing.judge(each)
            if isinstance(expected, Entry):
                assert isinstance(verdict, SequencedAppend)
                assert (verdict.first_version, verdict.last_seq) == (
                    expected.first_version,
                    expected.last_seq,
                )
                assert verdict.events == each.events
                assert placing.chain == expected.chain
                assert pg.swap(pg.epoch, pg.place, [expected], pg.mode) is Swap.HELD
            else:
                assert verdict == expected
        assert (placing.seq, placing.chain) == pg.place
