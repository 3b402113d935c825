"""Paths and queries: decoded once, strictly, and each parameter read as the one thing it can mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit import query
from gateway.admit.path import SEGMENTS_MAX, split
from gateway.errors import Refusal
from spec.identifiers import decode_segment

# ---- paths ----


@pytest.mark.parametrize(
    ("raw", "segments"),
    [
        (b"/", ()),
        (b"/order", ("order",)),
        (b"/order/ABC123XYZ/was_placed", ("order", "ABC123XYZ", "was_placed")),
        (b"/_/health/live", ("_", "health", "live")),
        (
            b"/order/a0000000-0000-4000-a000-000000000001%3A2026",
            ("order", "a0000000-0000-4000-a000-000000000001:2026"),
        ),
        (b"/order/a%2Fb", ("order", "a/b")),
        (b"/order/a%2fb/events", ("order", "a/b", "events")),
        (b"/order/%2541", ("order", "%41")),
        (b"/order/@VNO-42", ("order", "@VNO-42")),
        (b"/order/%C3%A9", ("order", "é")),
        ("/order/é".encode(), ("order", "é")),
        (b"/order/a b;c=d+e", ("order", "a b;c=d+e")),
        (b"/order/.x", ("order", ".x")),
        (b"/%6Frder", ("order",)),
        (b"/%2F", ("/",)),
    ],
)
def test_a_path_is_split_before_it_is_decoded_once(raw: bytes, segments: tuple[str, ...]) -> None:
    assert split(raw) == segments


@pytest.mark.parametrize(
    "segment",
    [
        *[
            b"%",
            b"%4",
            b"%4g",
            b"%ff",
            b"%fe",
            b"%C3",
            b"%C0%AF",
            b"%ED%A0%80",
            b"%00",
            b"%0d%0a",
            b"%7f",
            b"a%1Fb",
        ],
        *[b"\xff", b"\x00", b"a\x7f", b"\r\n", b".", b"..", b"%2e", b"%2E%2e", b"%c2%85", "\x85".encode()],
    ],
)
def test_a_segment_that_cannot_be_read_is_none_in_its_place(segment: bytes) -> None:
    assert split(b"/order/" + segment) == ("order", None)
    assert split(b"/" + segment + b"/x%20") == (None, "x ")


@pytest.mark.parametrize(
    "raw", [b"", b"order", b"*", b"//", b"/order/", b"//order", b"/order//x", b"order/x", b"///"]
)
def test_what_is_no_path_of_ours_is_none(raw: bytes) -> None:
    assert split(raw) is None


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b".", b"a", b"%41", b"A-1"]), max_size=4))
def test_any_bytes_split_into_what_each_segment_decodes_to(segments: list[bytes]) -> None:
    raw = b"".join(b"/" + segment for segment in segments)
    parts = raw.split(b"/")[1:]
    expected = None if b"" in parts or not parts else tuple(map(decode_segment, parts))
    assert split(raw) == (() if raw == b"/" else expected)


@given(st.text(min_size=1))
def test_a_segment_survives_being_encoded(text: str) -> None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    encoded = b"".join(b"%%%02X" % byte for byte in raw)
    assert split(b"/order/" + encoded) == ("order", decode_segment(raw.replace(b"%", b"%25")))


# ---- queries ----

KNOWN = ("at", "from", "limit", "order", "synchronous")


def refused(answer: object) -> str | None:
    assert isinstance(answer, Refusal), answer
    assert answer.code == "invalid_field"
    assert answer.error.startswith(f"The query parameter `{answer.path}` ")
    return answer.path


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", {}),
        (b"limit=5", {"limit": "5"}),
        (b"limit=5&from=2", {"limit": "5", "from": "2"}),
        (b"%6Cimit=%35", {"limit": "5"}),
        (b"limit=", {"limit": ""}),
        (b"limit", {"limit": ""}),
        (b"&&limit=5&", {"limit": "5"}),
        (b"order=a=b", {"order": "a=b"}),
        (b"at=1+2%2B3", {"at": "1+2+3"}),
        (b"order=%C3%A9", {"order": "é"}),
        (b"Limit=5&utm_source=%ff&utm_source=%&%ff=1", {}),
        (b"limit=5;from=2", {"limit": "5;from=2"}),
    ],
)
def test_known_parameters_are_decoded_and_unknown_ones_ignored(raw: bytes, found: dict[str, str]) -> None:
    assert query.parse(raw, KNOWN) == found


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"limit=5&limit=5", "limit"),
        (b"limit=5&%6Cimit=6", "limit"),
        (b"from=1&limit=%ff", "limit"),
        (b"limit=%4", "limit"),
        (b"at=%00", "at"),
        (b"at=1%0a", "at"),
        ("order=\x85".encode(), "order"),
    ],
)
def test_a_known_parameter_that_cannot_be_read_or_comes_twice_is_refused(raw: bytes, path: str) -> None:
    assert refused(query.parse(raw, KNOWN)) == path


@pytest.mark.parametrize("raw", [b"at=%00", b"at=%ff"])
def test_what_can_not_be_read_is_told_what_may_stand_there(raw: bytes) -> None:
    answer = query.parse(raw, KNOWN)
    assert isinstance(answer, Refusal)
    assert answer.error == (
        "The query parameter `at` must be percent-encoded UTF-8 without control characters."
    )


def test_dots_are_no_path_in_a_query() -> None:
    assert query.parse(b"at=..&order=%2e", KNOWN) == {"at": "..", "order": "."}


def test_an_integer_is_plain_ascii_digits_within_its_range() -> None:
    for text, value in (("1", 1), ("1000", 1000), ("007", 7)):
        assert query.integer({"limit": text}, "limit", least=1, most=1000) == value
    assert query.integer({}, "limit", least=1, most=1000) is None
    assert query.integer({"at_length": str(2**63 - 1)}, "at_length", least=0, most=2**63 - 1) == 2**63 - 1
    wrong = [
        "",
        "0",
        "1001",
        "+42",
        "-1",
        "-0",
        "1_000",
        " 42",
        "42 ",
        "4 2",
        "４２",
        "٤٢",
        "1.0",
        "1e2",
        "0x1",
        "9" * 5000,
    ]
    for text in wrong:
        assert refused(query.integer({"limit": text}, "limit", least=1, most=1000)) == "limit"


def test_a_boolean_is_true_or_false() -> None:
    assert query.boolean({"synchronous": "true"}, "synchronous") is True
    assert query.boolean({"synchronous": "false"}, "synchronous") is False
    assert query.boolean({}, "synchronous") is None
    for text in ("", "1", "0", "True", "yes", "true "):
        assert refused(query.boolean({"synchronous": text}, "synchronous")) == "synchronous"


def test_a_choice_is_one_of_the_given_words() -> None:
    assert query.choice({"order": "asc"}, "order", ("asc", "desc")) == "asc"
    assert query.choice({}, "order", ("asc", "desc")) is None
    answer = query.choice({"order": "ASC"}, "order", ("asc", "desc"))
    assert refused(answer) == "order"
    assert isinstance(answer, Refusal)
    assert answer.error == "The query parameter `order` must be asc or desc."


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1705312900", 1_705_312_900_000),
        ("1705312900.1", 1_705_312_900_100),
        ("1705312900.1239", 1_705_312_900_123),
        ("253402300799", 253_402_300_799_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2024-01-15T10:01:40Z", 1_705_312_900_000),
        ("2024-01-15t10:01:40.5z", 1_705_312_900_500),
        ("2024-01-15T10:01:40.123999999999Z", 1_705_312_900_123),
        ("2024-01-15T11:01:40+01:00", 1_705_312_900_000),
        ("2024-01-15T04:31:40-05:30", 1_705_312_900_000),
        ("2024-01-15T10:01:40-00:00", 1_705_312_900_000),
        ("1969-12-31T23:59:59.5Z", -500),
        ("-0", 0),
        ("-0.5", -500),
        ("-1.25", -1_250),
        ("-62135596800", -62_135_596_800_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_an_instant_is_unix_seconds_or_rfc_3339(text: str, milliseconds: int) -> None:
    assert query.instant({"at": text}, "at") == milliseconds
    assert query.instant(query.parse(b"at=" + text.encode(), KNOWN), "at") == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "-",
            "--1",
            "- 1",
            "-62135596801",
            "+1",
            "1705312900.",
            ".5",
            "1e9",
            "1705312900123",
            "253402300800",
            "１",
            "1 ",
            "now",
        ],
        *[
            "2024-01-15",
            "2024-01-15T10:01:40",
            "2024-01-15 10:01:40Z",
            "2024-01-15T10:01Z",
            "2024-01-15T10:01:40 01:00",
        ],
        *["2024-02-30T10:01:40Z", "2024-13-01T10:01:40Z", "2024-01-15T24:00:00Z", "2024-01-15T10:60:00Z"],
        *[
            "2024-01-15T10:01:61Z",
            "2024-01-15T10:01:60Z",
            "2024-01-15T10:01:40+24:00",
            "2024-01-15T10:01:40+01:60",
        ],
        *["0000-01-01T00:00:00Z", "20240115T100140Z", "2024-01-15T10:01:40+0100", "2024-01-15T10:01:40.Z"],
        *["2024-01-15T10:01:40Z\n", "２024-01-15T10:01:40Z", "12024-01-15T10:01:40Z", "2024-W03-1T10:01:40Z"],
    ],
)
def test_any_other_spelling_of_an_instant_is_refused(text: str) -> None:
    assert refused(query.instant({"at": text}, "at")) == "at"


def test_an_absent_instant_is_none() -> None:
    assert query.instant({}, "at") is None


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_every_time_with_an_offset_is_read_as_the_same_instant(moment: datetime, offset_minutes: int) -> None:
    text = moment.astimezone(timezone(timedelta(minutes=offset_minutes))).isoformat()
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert query.instant({"at": text}, "at") == expected


@given(st.binary(max_size=30), st.text(max_size=20))
def test_any_query_gives_values_or_a_refusal(raw: bytes, text: str) -> None:
    assert isinstance(query.parse(raw, KNOWN), dict | Refusal)
    assert isinstance(query.parse(b"at=" + raw, KNOWN), dict | Refusal)
    found = {"at": text}
    for answer in (
        query.instant(found, "at"),
        query.integer(found, "at", least=0, most=9),
        query.boolean(found, "at"),
    ):
        assert isinstance(answer, int | Refusal)


# ---- lists of names ----


@pytest.mark.parametrize("text", ["order", "order,user", "was_placed,_was_erased", "a,a", "a" * 64])
def test_names_are_read_with_commas_between_them(text: str) -> None:
    assert query.names({"types": text}, "types") == frozenset(text.split(","))
    assert query.names({}, "types") is None


@pytest.mark.parametrize("text", ["", ",", "order,", ",order", "Order", "a b", "__a", "a\n", "é", "a" * 65])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    refusal = query.names({"types": text}, "types")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.path) == ("invalid_field", "types")


@pytest.mark.parametrize("raw", [b"", b"&&", b"limit=5&from=1", b"%6Cimit=1", b"filter%5Bdata.x%5D=1", b"=5"])
def test_declared_parameters_and_families_of_them_are_accepted(raw: bytes) -> None:
    assert query.undeclared(raw, ("limit", "from", "filter[field]")) is None


@pytest.mark.parametrize(
    ("raw", "names", "path", "error"),
    [
        (b"limit=5&limt=7", ("limit",), "limt", "(did you mean `limit`?). It has `limit`."),
        (b"x=1", ("limit", "from"), "x", "It has `limit`, `from`."),
        (b"x=1", (), "x", "It has none."),
        (b"filter[a]=1", ("limit",), "filter[a]", "It has `limit`."),
        (b"%FF=1", ("limit",), "%FF", "It has `limit`."),
    ],
)
def test_the_first_undeclared_parameter_is_refused_by_its_name(
    raw: bytes, names: tuple[str, ...], path: str, error: str
) -> None:
    refusal = query.undeclared(raw, names)
    assert refusal is not None
    assert (refusal.code, refusal.path) == ("unknown_parameter", path)
    assert refusal.error.startswith("This path has no query parameter ")
    assert refusal.error.endswith(error)


def test_of_a_path_few_segments_are_decoded() -> None:
    assert split(b"/%41" * SEGMENTS_MAX) == ("A",) * SEGMENTS_MAX
    assert split(b"/%41" * (SEGMENTS_MAX + 1)) is None
