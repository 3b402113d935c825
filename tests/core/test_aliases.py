"""What may stand after the `@` of a path, by the rule of aliases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.aliases import NUMBER_MAX, Alias, Kind, Malformed, parse_alias

PUBLIC = re.compile("[A-Z][A-Z0-9]{1,9}-[1-9][0-9]{0,18}")
HASH = re.compile(r"(?:[a-z][a-z0-9]{1,9}-)?[0-9a-hjkmnp-tv-z]{4,16}(?:\.[1-9][0-9]{0,18}){0,3}")

prefixes = st.from_regex("[A-Z][A-Z0-9]{1,9}", fullmatch=True)
numbers = st.integers(1, NUMBER_MAX)
bodies = st.from_regex("[0-9a-hjkmnp-tv-z]{4,16}", fullmatch=True).filter(lambda text: not text.isdigit())
paths = st.lists(numbers, max_size=3).map(lambda found: "".join(f".{number}" for number in found))


@given(prefixes, numbers, st.booleans())
def test_a_public_id_is_read_in_any_case(prefix: str, number: int, lower: bool) -> None:
    text = f"{prefix}-{number}"
    assert parse_alias(text.lower() if lower else text) == Alias(Kind.PUBLIC, prefix, str(number))


@given(prefixes, bodies, paths, st.booleans())
def test_a_hash_id_is_read_in_any_case_with_its_prefix_or_without(
    prefix: str, body: str, path: str, upper: bool
) -> None:
    for text, expected in ((f"{prefix}-{body}{path}", prefix.lower()), (f"{body}{path}", None)):
        typed = text.upper() if upper else text.lower()
        assert parse_alias(typed) == Alias(Kind.HASH, expected, body, path)


@given(st.text() | st.text("vnoVNO0123456789-.@ \n"))
def test_any_text_is_an_alias_in_one_spelling_or_malformed(text: str) -> None:
    parsed = parse_alias(text)
    if isinstance(parsed, Malformed):
        assert parsed.reason.endswith(".")
        assert len(parsed.reason) < 400
        return
    assert text.isascii()
    assert parsed.text.lower() == text.lower()
    assert parse_alias(parsed.text) == parsed
    assert (PUBLIC if parsed.kind is Kind.PUBLIC else HASH).fullmatch(parsed.text)


@given(st.binary())
def test_any_bytes_that_are_text_have_an_answer(raw: bytes) -> None:
    parse_alias(raw.decode("latin-1"))
    parse_alias(raw.decode("utf-8", "surrogateescape"))


@given(prefixes, numbers, bodies)
def test_public_and_hash_ids_can_not_collide(prefix: str, number: int, body: str) -> None:
    public, hashed = parse_alias(f"{prefix}-{number}"), parse_alias(f"{prefix}-{body}")
    assert isinstance(public, Alias)
    assert isinstance(hashed, Alias)
    assert (public.kind, hashed.kind) == (Kind.PUBLIC, Kind.HASH)
    assert public.body.isdigit()
    assert not hashed.body.isdigit()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "missing"),
        ("VNO-0", "starts from 1"),
        ("VNO-042", "leading zeros"),
        ("VNO-9223372036854775808", "above 9223372036854775807"),
        ("VNO-99999999999999999999999999", "starts from 1"),
        ("VNO-４２", "U+FF14"),
        ("VNO-٤٢", "U+0664"),
        ("ﬁX-1", "U+FB01"),
        ("\u212a86gaq", "U+212A"),
        ("ſs-1", "U+017F"),
        ("VNO-42\n", "not an alias"),
        ("VNO-42 ", "not an alias"),
        ("VNO-1_000", "not an alias"),
        ("VNO-+42", "not an alias"),
        ("VNO--42", "not an alias"),
        ("VNO42", "not an alias"),
        ("V-42", "not an alias"),
        ("ABCDEFGHIJK-42", "not an alias"),
        ("1NO-42", "not an alias"),
        ("VNO-42.1", "starts from 1"),
        ("bd-k86", "not an alias"),
        ("bd-hello", "not an alias"),
        ("bd-k86gaq.0", "not an alias"),
        ("bd-k86gaq.01", "not an alias"),
        ("bd-k86gaq.1x", "not an alias"),
        ("bd-k86gaq.+1", "not an alias"),
        ("bd-k86gaq.", "not an alias"),
        ("bd-k86gaq.1.2.3.4", "deeper than 3"),
        ("@VNO-42", "not an alias"),
        ("VNO-" + "1" * 200, "longer than any"),
    ],
)
def test_what_is_no_alias_says_why(text: str, told: str) -> None:
    parsed = parse_alias(text)
    assert isinstance(parsed, Malformed)
    assert told in parsed.reason


def test_examples_of_what_a_text_names() -> None:
    assert parse_alias("vno-42") == Alias(Kind.PUBLIC, "VNO", "42")
    assert parse_alias("BD-k86gaq.1.2") == Alias(Kind.HASH, "bd", "k86gaq", ".1.2")
    too_great = parse_alias(f"VNO-{2**63}")
    assert isinstance(too_great, Malformed)
    assert "number above" in too_great.reason
