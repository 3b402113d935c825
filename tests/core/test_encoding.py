from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.encoding import encode

parts = st.lists(st.none() | st.binary(max_size=8) | st.sampled_from([b"1:", b",", b"0:,", b"-,", b"1:a,"]))


def decode(data: bytes) -> list[bytes | None]:
    """Reads an encoding back, as proof that it can be read in one way only."""
    found: list[bytes | None] = []
    while data:
        if data.startswith(b"-,"):
            found.append(None)
            data = data[2:]
            continue
        length, _, rest = data.partition(b":")
        end = int(length)
        assert rest[end : end + 1] == b","
        found.append(rest[:end])
        data = rest[end + 1 :]
    return found


@given(st.text(max_size=8), parts)
def test_an_encoding_can_be_read_back(domain: str, given_parts: list[bytes | None]) -> None:
    domain_bytes = domain.encode("utf-8", "surrogatepass")
    assert decode(encode(domain, *given_parts)) == [domain_bytes, *given_parts]


@given(parts, parts)
def test_distinct_tuples_have_distinct_encodings(one: list[bytes | None], other: list[bytes | None]) -> None:
    assert (encode("d", *one) == encode("d", *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("T", "D"), ("TD", "")),
        (("a|b", "c"), ("a", "b|c")),
        (("a\0b", "c"), ("a", "b\0c")),
        (("k", "v\0k2\0v2"), ("k", "v", "k2", "v2")),
        ((None,), ("",)),
        ((), (None,)),
        (("A\ndescription:B",), ("A", "B")),
        (("2:ab",), ("ab",)),
    ],
)
def test_what_plain_joining_confuses_is_told_apart(
    one: tuple[str | None, ...], other: tuple[str | None, ...]
) -> None:
    assert encode("d", *one) != encode("d", *other)


def test_the_format_is_pinned() -> None:
    assert encode("sluice/test/1", "é", b"", None) == b"13:sluice/test/1,2:\xc3\xa9,0:,-,"


def test_half_a_surrogate_pair_is_encoded_too() -> None:
    assert encode("d", "\ud800") != encode("d", "?")
