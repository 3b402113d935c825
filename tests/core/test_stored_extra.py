"""What stands beside an event's data: whatever a client sends comes back, with a record and without."""

from __future__ import annotations

import re

import pytest
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
    stored = None if extra is None else guarded(extra)
    assert split(stored) == (extra, None, False)
    assert split(with_record(extra, record)) == (extra, record, True)
    assert split(with_record(split(stored)[0], record)) == (extra, record, True)


@given(EXTRAS)
def test_content_and_context_are_where_the_indexes_look(extra: bytes | None) -> None:
    begins = b'{"$identity":{"content":"'
    for context in (None, "b" * 64):
        stored = with_record(extra, RecordSaid("a" * 64, context, "new", SourceRef("x", "y", "z")))
        assert (stored[:25], stored[25:89]) == (begins, b"a" * 64)
        assert (stored[101:102] == b'"', stored[102:166] == b"b" * 64) == (context is not None,) * 2
        assert re.search(rb'"context":(null|"b{64}"),"grade":"new","source":', stored)
    assert identity_json(None) == b"null"


RECORD = RecordSaid("a" * 64, "b" * 64, "new", SourceRef("jira", "eu", "T-1"))
BARE = RecordSaid("a" * 64, None, "edited")
A, B = b"a" * 64, b"b" * 64


@pytest.mark.parametrize(
    ("extra", "stored"),
    [
        (b'{"x":1}', b'{"x":1}'),
        (b'{"$identity":7}', b'{"$identity":0,"$extra":{"$identity":7}}'),
    ],
)
def test_an_extra_that_looks_like_a_record_is_wrapped(extra: bytes, stored: bytes) -> None:
    assert guarded(extra) == stored
    assert split(stored) == (extra, None, False)


@pytest.mark.parametrize(
    ("extra", "record", "stored"),
    [
        (None, None, b'{"$identity":null}'),
        (b'{"x":1}', None, b'{"$identity":null,"$extra":{"x":1}}'),
        (None, BARE, b'{"$identity":{"content":"%b","context":null,"grade":"edited"}}' % A),
        (
            b'{"x":1}',
            RECORD,
            b'{"$identity":{"content":"%b","context":"%b","grade":"new","source":["jira","eu","T-1"]},'
            b'"$extra":{"x":1}}' % (A, B),
        ),
    ],
)
def test_a_record_is_stored_in_front_of_the_extra(
    extra: bytes | None, record: RecordSaid | None, stored: bytes
) -> None:
    assert with_record(extra, record) == stored
    assert split(stored) == (extra, record, True)


def test_an_event_shows_its_record_without_the_source() -> None:
    assert identity_json(RECORD) == b'{"content":"%b","context":"%b","grade":"new"}' % (A, B)
    assert identity_json(BARE) == b'{"content":"%b","context":null,"grade":"edited"}' % A
    assert identity_json(None) == b"null"


def test_an_id_of_another_scope_is_told_from_another_id() -> None:
    ref = SourceRef("xliff", "a.xlf", "tu1")
    assert ref.elsewhere(SourceRef("xliff", "b.xlf", "tu1"))
    for other in (ref, SourceRef("xliff", "b.xlf", "tu2"), SourceRef("jira", "b.xlf", "tu1")):
        assert not ref.elsewhere(other)
