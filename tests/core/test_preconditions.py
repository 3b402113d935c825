"""Headers of an append and of a conditional read: every form they may have, and every form they may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit.preconditions import (
    NOTHING_ASKED,
    Asked,
    agreed_length,
    collect,
    etag,
    not_modified,
    read_asked,
    read_asked_once,
    read_correlation_id,
)
from gateway.appends import ANY_LENGTH, AT_LEAST_ONE
from gateway.errors import Refusal

UUID = "a0000000-0000-1000-8000-00000000000f"


def asked(*headers: tuple[bytes, bytes]) -> Asked:
    answer = read_asked(headers)
    assert isinstance(answer, Asked), answer
    return answer


def refused(answer: object) -> str | None:
    assert isinstance(answer, Refusal), answer
    assert answer.code == "invalid_field"
    assert answer.error.endswith(".")
    return answer.path


def test_without_headers_of_ours_nothing_is_asked() -> None:
    assert asked() is NOTHING_ASKED
    assert asked((b"host", b"x"), (b"content-length", b"5")) is NOTHING_ASKED
    assert Asked(ANY_LENGTH, "", None, None, False, False) == NOTHING_ASKED


@pytest.mark.parametrize(
    "headers",
    [
        {b"host": b"h", b"idempotency-key": b"k-1"},
        {b"idempotency-key": b"two words"},
        {b"idempotency-key": b"k" * 256},
        {b"idempotency-key": b"k", b"x-idempotency-key": b"l"},
        {b"idempotency-key": b"k", b"if-match": b'"5"'},
        {b"x-idempotency-key": b"k", b"prefer": b"return=minimal"},
        {b"host": b"h"},
    ],
)
def test_headers_that_were_sent_once_ask_the_same_by_their_names(headers: dict[bytes, bytes]) -> None:
    assert read_asked_once(headers) == read_asked(headers.items())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'"5"', 5),
        (b'"0"', 0),
        (b' "5"\t', 5),
        (b'"5.r3"', 5),
        (b'"12.r0"', 12),
        (b'"9223372036854775807"', 2**63 - 1),
        (b"*", AT_LEAST_ONE),
        (b" * ", AT_LEAST_ONE),
    ],
)
def test_if_match_asks_for_a_length(value: bytes, expected: int) -> None:
    answer = asked((b"if-match", value))
    assert (answer.expected, answer.expected_by) == (expected, "If-Match")


@pytest.mark.parametrize(
    "value",
    [
        *[
            b"",
            b"5",
            b'"5',
            b"''",
            b'W/"5"',
            b'w/"5"',
            b'"5", "6"',
            b'"5","5"',
            b'"5",',
            b"*, *",
            b'*, "5"',
            b'""',
        ],
        *[
            b'"-1"',
            b'"+5"',
            b'"05"',
            b'"5.0"',
            b'"5.r"',
            b'"5.R3"',
            b'"5r3"',
            b'" 5"',
            b'"5 "',
            b'"five"',
            b'"1_0"',
        ],
        *[
            '"５"'.encode(),
            b'"\xff"',
            b'"5"\n',
            b'"9223372036854775808"',
            b'"' + b"9" * 5000 + b'"',
            b'"5.r"3"',
        ],
    ],
)
def test_any_other_form_of_if_match_is_refused(value: bytes) -> None:
    assert refused(read_asked([(b"if-match", value)])) == "If-Match"


def test_a_repeated_if_match_is_a_list_and_refused() -> None:
    assert refused(read_asked([(b"if-match", b'"5"'), (b"if-match", b'"5"')])) == "If-Match"


def test_if_none_match_asks_for_an_empty_stream() -> None:
    answer = asked((b"if-none-match", b"*"))
    assert (answer.expected, answer.expected_by) == (0, "If-None-Match")
    for value in (b'"5"', b"", b"W/*", b'*, "5"'):
        assert refused(read_asked([(b"if-none-match", value)])) == "If-None-Match"


def test_if_match_and_if_none_match_agree_only_on_an_empty_stream() -> None:
    assert asked((b"if-match", b'"0"'), (b"if-none-match", b"*")).expected == 0
    for value in (b'"1"', b"*"):
        assert refused(read_asked([(b"if-none-match", b"*"), (b"if-match", value)])) == "If-Match"


@pytest.mark.parametrize(
    ("header", "length", "expected"),
    [
        (b'"5"', None, 5),
        (b'"5"', 5, 5),
        (b'"0"', 0, 0),
        (b'"5"', 4, None),
        (b'"0"', 1, None),
        (b"*", None, AT_LEAST_ONE),
        (b"*", 1, 1),
        (b"*", 0, None),
        (None, None, ANY_LENGTH),
        (None, 5, 5),
        (None, 0, 0),
    ],
)
def test_header_and_body_must_ask_for_the_same(
    header: bytes | None, length: int | None, expected: int | None
) -> None:
    answer = agreed_length(asked(*[(b"if-match", header)] if header else []), length, skip_occ=False)
    if expected is None:
        assert refused(answer) == "If-Match"
    else:
        assert answer == expected


def test_a_header_contradicts_a_body_that_turns_the_check_off() -> None:
    assert refused(agreed_length(asked((b"if-match", b"*")), None, skip_occ=True)) == "If-Match"
    assert refused(agreed_length(asked((b"if-none-match", b"*")), None, skip_occ=True)) == "If-None-Match"
    assert refused(agreed_length(asked((b"if-none-match", b"*")), 3, skip_occ=False)) == "If-None-Match"
    assert agreed_length(NOTHING_ASKED, None, skip_occ=True) == ANY_LENGTH


def test_an_idempotency_key_comes_by_either_name() -> None:
    every_visible = bytes(range(0x21, 0x7F))
    for name in (b"idempotency-key", b"x-idempotency-key"):
        assert asked((name, every_visible)).idempotency_key == every_visible.decode()
        assert asked((name, b" k ")).idempotency_key == "k"
        assert asked((name, b"k" * 255)).idempotency_key == "k" * 255
    assert asked((b"idempotency-key", b"k"), (b"x-idempotency-key", b"k")).idempotency_key == "k"


@pytest.mark.parametrize(
    "value", [b"", b"  ", b"a b", b"a\tb", b"a\x00", b"a\x7f", "é".encode(), b"\xff", b"k" * 256, b"k\n"]
)
def test_an_idempotency_key_of_other_characters_is_refused_under_the_name_it_came_by(value: bytes) -> None:
    assert refused(read_asked([(b"idempotency-key", value)])) == "Idempotency-Key"
    assert refused(read_asked([(b"x-idempotency-key", value)])) == "X-Idempotency-Key"
    assert (
        refused(read_asked([(b"idempotency-key", b"k"), (b"x-idempotency-key", value)]))
        == "X-Idempotency-Key"
    )


def test_two_idempotency_keys_are_refused() -> None:
    assert (
        refused(read_asked([(b"idempotency-key", b"a"), (b"x-idempotency-key", b"b")])) == "Idempotency-Key"
    )
    assert refused(read_asked([(b"idempotency-key", b"a"), (b"idempotency-key", b"a")])) == "Idempotency-Key"
    assert refused(read_asked([(b"x-idempotency-key", b"a")] * 2)) == "X-Idempotency-Key"


def test_lengths_are_looked_at_before_keys() -> None:
    headers = [(b"idempotency-key", b""), (b"if-none-match", b"x"), (b"if-match", b"x")]
    assert refused(read_asked(headers)) == "If-None-Match"
    assert refused(read_asked(headers[::2])) == "If-Match"


def test_a_correlation_id_is_a_canonical_uuid_or_ignored() -> None:
    assert asked((b"x-correlation-id", UUID.encode())).correlation_id == UUID
    assert read_correlation_id(None) is None
    for value in (
        b"",
        UUID.upper().encode(),
        b"{" + UUID.encode() + b"}",
        UUID.replace("-", "").encode(),
        b"\xff" * 36,
    ):
        assert asked((b"x-correlation-id", value)).correlation_id is None
        assert read_correlation_id(value) is None
    assert read_correlation_id(UUID.encode() + b"\n") is None
    assert asked(*[(b"x-correlation-id", UUID.encode())] * 2).correlation_id is None


@pytest.mark.parametrize(
    ("value", "minimal", "wait"),
    [
        (b"return=minimal", True, False),
        (b'RETURN = "Minimal" ; x=y, wait=10', True, True),
        (b"respond-async, return=minimal", True, False),
        (b"return=representation", False, False),
        (b"return=representation, return=minimal", False, False),
        (b"wait", False, True),
        (b"minimal", False, False),
        (b"", False, False),
        (b"return", False, False),
        (b",;=\xff,", False, False),
    ],
)
def test_preferences_are_read_and_never_refused(value: bytes, minimal: bool, wait: bool) -> None:
    answer = asked((b"prefer", value))
    assert (answer.minimal, answer.wait) == (minimal, wait)
    assert asked((b"prefer", b"x"), (b"prefer", value)).minimal is minimal


@pytest.mark.parametrize(
    ("value", "matches"),
    [
        (b'"5.r3"', True),
        (b' "5.r3" ', True),
        (b'W/"5.r3"', True),
        (b"*", True),
        (b" *\t", True),
        (b'"4.r3", "5.r3"', True),
        (b'"4.r3" ,W/"5.r3",', True),
        (b', ,"",\t"5.r3"', True),
        (b'"a,b","5.r3"', True),
        (b"", False),
        (b'"5.r4"', False),
        (b'"5"', False),
        (b"5.r3", False),
        (b'w/"5.r3"', False),
        (b'W/ "5.r3"', False),
        (b'"5.r3" "5.r3"', False),
        (b'"5.r3', False),
        (b'"5.r3", x', False),
        (b'"a,"5.r3"', False),
        (b'*, "4.r3"', False),
        (b'"5.r3"\n', False),
        (b'"' * 60_000, False),
        (b'"",' * 20_000 + b"x", False),
        (None, False),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_if_none_match_of_a_read_is_compared_weakly_and_may_be_a_list(
    value: bytes | None, matches: bool
) -> None:
    assert not_modified(value, '"5.r3"') is matches


def test_collecting_headers_joins_repeats_and_strips_blanks() -> None:
    headers = [(b"a", b" 1 "), (b"b", b"2"), (b"A", b"3"), (b"a", b"\t4")]
    assert collect(headers, {b"a", b"A"}) == {b"a": b"1, 4", b"A": b"3"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [b"if-match", b"if-none-match", b"idempotency-key", b"x-correlation-id", b"prefer"]
            ),
            st.binary(max_size=12) | st.sampled_from([b"*", b'"1"', b"k"]),
        ),
        max_size=4,
    )
)
def test_any_headers_are_read_or_refused(headers: list[tuple[bytes, bytes]]) -> None:
    answer = read_asked(headers)
    if isinstance(answer, Refusal):
        assert answer.path in ("If-Match", "If-None-Match", "Idempotency-Key")
    else:
        assert answer.expected >= AT_LEAST_ONE
    for _, value in headers:
        assert isinstance(not_modified(value, '"1"'), bool)


def test_only_skip_can_be_asked_for_where_a_record_is_unchanged() -> None:
    assert asked((b"sluice-if-unchanged", b"skip")).skip_unchanged
    assert not asked((b"prefer", b"wait")).skip_unchanged
    for value in (b"", b"Skip", b"skip, skip"):
        assert refused(read_asked([(b"sluice-if-unchanged", value)])) == "Sluice-If-Unchanged"


def test_an_etag_names_the_length_the_spec_and_the_history() -> None:
    assert etag(5, 0) == '"5"'
    assert etag(5, 0, 3) == '"5.r3"'
    assert etag(5, 2) == '"5.e2"'
    assert etag(0, 2, 3) == '"0.r3.e2"'
    found = asked((b"if-match", etag(5, 2, 3).encode()))
    assert (found.expected, found.mark) == (5, 2)
