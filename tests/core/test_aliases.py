"""What may stand after the `@` of a path, by the rule of aliases."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.aliases import NUMBER_MAX, Alias, Kind, Malformed, alias_in, numbered_hash, parse_alias
from tests.core.appends import declared

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


PLAIN: dict[str, Any] = {"aggregate_types": {"order": {"events": {}}}, "agent_types": []}
ISSUES: dict[str, Any] = {
    "aggregate_types": {
        name: {"events": {"was_made": {"schema": True}}} for name in ("order", "issue", "till")
    },
    "agent_types": [],
    "public_ids": {"key": "VNO", "types": ["order"]},
    "hash_ids": {"prefix": "bd", "types": ["issue"]},
}
PROJECTS: dict[str, Any] = {
    "aggregate_types": {
        name: {"events": {"was_made": {"schema": True}}} for name in ("project", "character", "till")
    },
    "agent_types": [],
    "public_ids": {
        "projects": {"type": "project", "key": "$.data.key"},
        "member": {"character": "$.data.project_id"},
    },
}
VNO_42, ISSUE = Alias(Kind.PUBLIC, "VNO", "42"), Alias(Kind.HASH, "bd", "k86gaq")


@pytest.mark.parametrize(
    ("document", "text", "aggregate_type", "alias"),
    [
        (ISSUES, "vno-42", "order", VNO_42),
        (ISSUES, "VNO-42", "issue", None),
        (ISSUES, "VNO-42", "till", None),
        (ISSUES, "OTHER-42", "order", None),
        (ISSUES, "BD-K86GAQ", "issue", ISSUE),
        (ISSUES, "bd-k86gaq", "order", None),
        (ISSUES, "xy-k86gaq", "issue", None),
        (ISSUES, "k86gaq", "issue", None),
        (ISSUES, "no alias", "issue", None),
        (ISSUES, "@xy-k86gaq", "till", Alias(Kind.HASH, "xy", "k86gaq")),
        (ISSUES, "@k86gaq", "issue", Alias(Kind.HASH, None, "k86gaq")),
        (PROJECTS, "any-7", "character", Alias(Kind.PUBLIC, "ANY", "7")),
        (PROJECTS, "any-7", "till", None),
        (PLAIN, "VNO-42", "order", None),
    ],
)
def test_a_key_in_a_body_is_an_alias_by_its_sigil_or_by_a_prefix_of_its_type(
    document: dict[str, Any], text: str, aggregate_type: str, alias: Alias | None
) -> None:
    assert alias_in(text, declared(document), aggregate_type) == alias


def test_a_malformed_alias_with_its_sigil_is_reported() -> None:
    found = alias_in("@VNO-0", declared(ISSUES), "order")
    assert isinstance(found, Malformed)
    assert found.reason == '"VNO-0" is not a public id: its number starts from 1, without leading zeros.'


@pytest.mark.parametrize(
    ("alias", "hashed"),
    [
        (Alias(Kind.PUBLIC, "BD", "1234"), Alias(Kind.HASH, "bd", "1234")),
        (Alias(Kind.PUBLIC, "BD", "1" * 16), Alias(Kind.HASH, "bd", "1" * 16)),
        (Alias(Kind.PUBLIC, "BD", "123"), None),
        (Alias(Kind.PUBLIC, "BD", "1" * 17), None),
        (ISSUE, None),
    ],
)
def test_a_number_of_4_to_16_digits_may_be_a_hash_id(alias: Alias, hashed: Alias | None) -> None:
    assert numbered_hash(alias) == hashed


def test_an_alias_is_shown_in_one_spelling() -> None:
    assert [VNO_42.text, ISSUE.text] == ["VNO-42", "bd-k86gaq"]
    assert Alias(Kind.HASH, None, "k86gaq", ".1.2").text == "k86gaq.1.2"
