"""What stands beside an event's data: whatever a client sends comes back, with a record and without."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.stored_extra import RecordSaid, SourceRef, guarded, identity_json, split, with_record

EXTRAS = st.one_of(
    st.none(),
    st.sampled_from(
        [b"{}", b'{"$identity":{"content":"x"}}', b'{"$identity":0,"$extra":1}', b'{ "a":\n1.0}']
    ),
    st.builds(lambda inner: b'{"$identity":%d}' % inner, st.integers()),
)
RECORDS = st.one_of(
    st.none(),
    st.builds(
        RecordSaid,
        st.just("a" * 64),
        st.sampled_from([None, "b" * 64]),
        st.just("new"),
        st.one_of(st.none(), st.builds(SourceRef, st.text(), st.text(), st.text())),
    ),
)


@given(EXTRAS, RECORDS)
def test_what_is_stored_is_split_again(extra: bytes | None, record: RecordSaid | None) -> None:
    assert split(guarded(extra)) == (extra, None, False)
    assert split(with_record(extra, record)) == (extra, record, True)
    assert split(with_record(split(guarded(extra))[0], record)) == (extra, record, True)


@given(EXTRAS)
def test_content_and_context_are_where_the_indexes_look(extra: bytes | None) -> None:
    begins = b'{"$identity":{"content":"'
    for context in (None, "b" * 64):
        stored = with_record(extra, RecordSaid("a" * 64, context, "new", SourceRef("x", "y", "z")))
        assert (stored[:25], stored[25:89]) == (begins, b"a" * 64)
        assert (stored[101:102] == b'"', stored[102:166] == b"b" * 64) == (context is not None,) * 2
        assert re.search(rb'"context":(null|"b{64}"),"grade":"new","source":', stored)
    assert identity_json(None) == b"null"
