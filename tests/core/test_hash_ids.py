from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names import hash_ids
from gateway.names.hash_ids import (
    Ambiguous,
    HashName,
    bodies,
    bodies_of_text,
    child_of,
    choose,
    lengths_of,
    parse,
)

TENANT = bytes.fromhex("01900000000070008000000000000001")
OTHER = bytes.fromhex("01900000000070008000000000000002")
KEY = "a0000000-0000-4000-a000-000000000001"
CROCKFORD = set("0123456789abcdefghjkmnpqrstvwxyz")
NOON = datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)

digests = st.binary(min_size=32, max_size=32)
digits_first = st.integers(0, 12).flatmap(
    lambda count: st.binary(min_size=32, max_size=32).map(lambda noise: digit_digest(count, noise))
)
names = st.builds(
    HashName,
    st.sampled_from(["bd", "tk"]),
    st.text("ab1", min_size=6, max_size=7),
    st.lists(st.integers(1, 12), max_size=3).map(tuple),
)
typed = st.builds(
    HashName,
    st.sampled_from([None, "bd", "tk"]),
    st.text("ab1", min_size=4, max_size=7),
    st.lists(st.integers(1, 12), max_size=3).map(tuple),
)


def digit_digest(digits: int, noise: bytes) -> bytes:
    """A digest whose first symbols are digits, that many at least."""
    bits = bin(int.from_bytes(noise, "big"))[2:].zfill(256)
    symbols = [bits[at : at + 5] for at in range(0, 255, 5)]
    symbols[:digits] = [f"{int(symbol, 2) % 10:05b}" for symbol in symbols[:digits]]
    return int("".join(symbols) + "0", 2).to_bytes(32, "big")


# --- bodies


@pytest.mark.parametrize("tenant", ["main", str(UUID(int=1)), b"main", b""])
def test_a_tenants_name_is_not_taken_for_its_id(tenant: Any) -> None:
    with pytest.raises(TypeError, match="16 bytes of its id"):
        bodies(tenant, "issue", KEY)


def test_the_bodies_are_the_golden_ones() -> None:
    assert hash_ids.ALGORITHM == 1
    assert bodies(TENANT, "issue", KEY)[-1] == "55c6x4h3sqvghwwv"
    assert bodies(TENANT, "issue", KEY)[0] == "55c6x4"
    assert bodies(OTHER, "issue", KEY)[0] == "0aeen0"
    assert bodies(TENANT, "task", KEY)[0] == "kg3hcs"
    assert bodies_of_text("Fix login", "Details", NOON, "jira-import")[0] == "1vexhy"


@given(digests)
def test_a_body_is_the_beginning_of_the_digest_in_base_32(digest: bytes) -> None:
    crockford = "0123456789abcdefghjkmnpqrstvwxyz"
    bits = int.from_bytes(digest, "big")
    whole = "".join(crockford[bits >> shift & 31] for shift in range(251, 0, -5))
    assert all(whole.startswith(body) for body in lengths_of(digest) if not whole[:16].isdigit())


@given(digests | digits_first)
def test_a_longer_body_begins_with_each_shorter_one(digest: bytes) -> None:
    found = lengths_of(digest)
    assert found
    for shorter, longer in pairwise(found):
        assert longer.startswith(shorter)
        assert len(longer) == len(shorter) + 1
    assert len(found[-1]) == 16
    assert 6 <= len(found[0]) <= 16
    assert all(set(body) <= CROCKFORD and not body.isdigit() for body in found)
    assert lengths_of(digest) == found


def test_every_symbol_is_equally_likely_at_every_place() -> None:
    draws = 6_400
    found = [bodies(TENANT, "issue", str(n))[-1] for n in range(draws)]
    for place in range(16):
        counts = Counter(body[place] for body in found)
        chi_square = sum((counts[symbol] - draws / 32) ** 2 / (draws / 32) for symbol in CROCKFORD)
        assert chi_square < 70, place  # 31 degrees of freedom, p = 0.0001; a symbol that is missing gives 200


def test_a_body_without_a_letter_is_extended_up_to_its_first_one() -> None:
    assert lengths_of(digit_digest(6, b"\xff" * 32))[0] == "111111z"
    assert lengths_of(digit_digest(15, b"\xff" * 32)) == ("1" * 15 + "z",)


def test_a_digest_of_only_digits_gets_a_letter_at_the_end() -> None:
    assert lengths_of(bytes(32)) == ("000000000000000a",)
    assert lengths_of(digit_digest(51, b"\xff" * 32)) == ("111111111111111b",)


short = st.text(max_size=3)


@given(
    st.tuples(st.sampled_from([TENANT, OTHER]), short, short),
    st.tuples(st.sampled_from([TENANT, OTHER]), short, short),
)
def test_distinct_aggregates_have_distinct_bodies_in_the_end(
    one: tuple[bytes, str, str], other: tuple[bytes, str, str]
) -> None:
    assert (bodies(*one)[-1] == bodies(*other)[-1]) == (one == other)


@given(st.tuples(short, short, short), st.tuples(short, short, short))
def test_what_plain_joining_confuses_has_other_bodies(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    found = [bodies_of_text(title, text, NOON, workspace) for title, text, workspace in (one, other)]
    assert (found[0] == found[1]) == (one == other)


def test_the_text_of_the_seed_collides_no_more() -> None:
    assert bodies_of_text("T", "D", NOON, "w") != bodies_of_text("TD", "", NOON, "w")
    assert sha256(b"T" + b"D").digest() == sha256(b"TD" + b"").digest()


def test_one_instant_in_two_zones_is_one_name() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert bodies_of_text("T", "D", elsewhere, "w") == bodies_of_text("T", "D", NOON, "w")
    later = NOON + timedelta(microseconds=1)
    assert bodies_of_text("T", "D", later, "w") != bodies_of_text("T", "D", NOON, "w")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        bodies_of_text("T", "D", NOON.replace(tzinfo=None), "w")


def test_a_time_before_1970_has_a_body_too() -> None:
    assert bodies_of_text("T", "D", datetime(1900, 1, 1, tzinfo=UTC), "w")


# --- what people type


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bd-k86gaq", HashName("bd", "k86gaq")),
        ("BD-K86GAQ", HashName("bd", "k86gaq")),
        ("k86gaq", HashName(None, "k86gaq")),
        ("k86g", HashName(None, "k86g")),
        ("bd-1234", HashName("bd", "1234")),
        ("bd-k86gaq.1", HashName("bd", "k86gaq", (1,))),
        ("bd-k86gaq.1.22.333", HashName("bd", "k86gaq", (1, 22, 333))),
        ("k86gaq.9223372036854775807", HashName(None, "k86gaq", (2**63 - 1,))),
    ],
)
def test_a_name_is_read_in_its_parts(text: str, name: HashName) -> None:
    assert parse(text) == name
    assert parse(name.text) == name


@pytest.mark.parametrize(
    "text",
    [
        "", "bd-", "-k86gaq", "b-k86gaq", "bd-k86gaq-2", "bd--k86gaq", "bd_k86gaq", "2d-k86gaq", "bd-k86gaq.",
        "bd-k86gaq.0", "bd-k86gaq.01", "bd-k86gaq.+1", "bd-k86gaq.1x", "bd-k86gaq.1_0", "bd-k86gaq..1",
        "bd-k86gaq.1.2.3.4", "bd-k86gaq.9223372036854775808", "bd-k86gaq.٣", "bd-k86gaq\n", " bd-k86gaq",
        "bd-k86gai", "bd-k86gal", "bd-k86gao", "bd-k86gau", "bd-" + "k" * 17, "ｂｄ-k86gaq", "bd-\u212a86gaq",
        "bd-k86gaq.1\n", "@bd-k86gaq", "bd-k86ga%71", "abcdefghijk-k86gaq",
    ],
)  # fmt: skip
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse(text) is None


@given(st.text() | st.text("bdk-.1٣\n@ſ\u212a"))
def test_reading_a_name_is_total_and_folds_once(text: str) -> None:
    found = parse(text)
    if found is not None:
        assert parse(found.text) == found
        assert found.text == text.lower()


def test_a_name_is_whole_from_six_characters_with_a_letter() -> None:
    whole = [hash_ids.is_name(HashName(None, body)) for body in ("k86gaq", "k86ga", "123456", "12345a")]
    assert whole == [True, False, False, True]
    long_enough = [hash_ids.is_abbreviation(HashName(None, body)) for body in ("k86", "k86g", "1234")]
    assert long_enough == [False, True, True]


# --- children


def test_names_go_three_levels_down() -> None:
    name: HashName | None = HashName("bd", "k86gaq")
    for number in (1, 22, 347):
        assert name is not None
        name = child_of(name, number)
    assert name is not None
    assert name.text == "bd-k86gaq.1.22.347"
    assert child_of(name, 1) is None


# --- abbreviations


def test_an_abbreviation_that_one_matches_is_that_one() -> None:
    one, other = HashName("bd", "k86gaq"), HashName("bd", "k96gaq")
    assert choose(HashName(None, "k86g"), [one, other]) == one
    assert choose(HashName("bd", "k86g"), [one, other]) == one
    assert choose(HashName("tk", "k86g"), [one, other]) is None


def test_an_abbreviation_that_two_match_is_ambiguous() -> None:
    listed = [HashName("bd", "k86gbz"), HashName("bd", "k86gaq")]
    assert choose(HashName(None, "k86g"), listed) == Ambiguous(("bd-k86gaq", "bd-k86gbz"), 2)


def test_an_exact_name_comes_before_a_longer_one_that_it_begins() -> None:
    short_name, long_name = HashName("bd", "k86gaq"), HashName("bd", "k86gaqz")
    assert choose(HashName("bd", "k86gaq"), [long_name, short_name]) == short_name
    assert choose(HashName("bd", "k86gaqz"), [long_name, short_name]) == long_name


def test_a_parent_is_not_made_ambiguous_by_its_children_nor_by_any_segment_that_begins_alike() -> None:
    root = HashName("bd", "k86gaq")
    family = [
        root,
        *(HashName("bd", "k86gaq", (number,)) for number in (1, 2, 11)),
        HashName("bd", "k86gaq", (1, 1)),
    ]
    assert choose(HashName(None, "k86g"), family) == root
    assert choose(HashName(None, "k86g", (1,)), family) == family[1]
    assert choose(HashName(None, "k86g"), family[1:]) is None
    assert choose(HashName(None, "k86g", (1,)), [family[3], family[4]]) is None


def test_no_more_than_ten_candidates_are_named() -> None:
    listed = [HashName("bd", f"k86g{number:02}a") for number in range(30, 10, -1)]
    found = choose(HashName(None, "k86g"), listed)
    assert found == Ambiguous(tuple(f"bd-k86g{number}a" for number in range(11, 21)), 20)


@given(typed, st.lists(names, max_size=6, unique=True))
def test_what_is_chosen_is_what_is_meant(wanted: HashName, listed: list[HashName]) -> None:
    found = choose(wanted, listed)
    meant = [
        name
        for name in listed
        if name.body.startswith(wanted.body)
        and name.children == wanted.children
        and wanted.prefix in (None, name.prefix)
    ]
    exact = [name for name in meant if name.body == wanted.body]
    if isinstance(found, Ambiguous):
        assert found.total == len(exact or meant) > 1
        assert list(found.candidates) == sorted(name.text for name in exact or meant)[:10]
    elif found is None:
        assert not meant
    else:
        assert [found] == (exact or meant)
    assert found == choose(wanted, listed[::-1])


# --- instants and bodies from elsewhere


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01.5z", 1_500_000_000),
        ("1970-01-01 00:00:00.000000001+00:00", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("2024-01-02T03:04:05.006Z", 1_704_164_645_006_000_000),
        ("2024-02-30T00:00:00Z", None),
        ("2024-01-02T03:04:05", None),
        ("2024-01-02T03:04:05.1234567890Z", None),
        ("2024-01-02T03:04:05Z\n", None),
        ("yesterday", None),
    ],
)
def test_an_instant_is_read_to_the_nanosecond(text: str, found: int | None) -> None:
    assert hash_ids.nanoseconds(text) == found


def test_the_body_of_an_instant_is_that_of_its_time() -> None:
    created_ns = hash_ids.nanoseconds("2024-01-02T03:04:05.006Z")
    assert created_ns is not None
    found = hash_ids.bodies_of_instant("Fix login", "Details", created_ns, "jira-import")
    assert found == bodies_of_text("Fix login", "Details", NOON, "jira-import")
    assert found[0] == "1vexhy"


def test_a_body_from_elsewhere_has_4_to_16_characters_of_the_alphabet() -> None:
    good = ["1234", "k86g", "k" * 16]
    bad = ["123", "k" * 17, "k86i", "K86G", "k-86", ""]
    assert [hash_ids.may_be_body(text) for text in good] == [True] * 3
    assert [hash_ids.may_be_body(text) for text in bad] == [False] * 6
