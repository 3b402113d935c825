"""The four kinds: each trap that the rule was written for, one test."""

from __future__ import annotations

import pytest

from spec.identifiers import (
    HUMANE_ALPHABET,
    HUMANE_RANDOM_BYTES,
    RESERVED_ACTOR_PREFIX,
    SYSTEM_ACTOR_IDS,
    Identifier,
    Kind,
    Refused,
    canonicalize,
    decode_segment,
    identify,
    mint_humane,
    singleton_fault,
)

SINGLETONS = frozenset({"twilio_webhook", "stripe_webhook"})
UUID4 = "a0000000-0000-4000-a000-000000000001"
UUID5 = "cfbff0d1-9375-5685-968c-48ce8b15ae17"


def refusal(text: str) -> str:
    found = identify(text, SINGLETONS)
    assert isinstance(found, Refused), found
    assert canonicalize(text, SINGLETONS) is None
    return found.reason


@pytest.mark.parametrize(
    ("text", "canonical", "kind"),
    [
        (UUID4, UUID4, Kind.UUID),
        (UUID4.upper(), UUID4, Kind.UUID),
        (UUID5, UUID5, Kind.UUID),
        ("A0000000-0000-4000-B000-00000000000f", "a0000000-0000-4000-b000-00000000000f", Kind.UUID),
        ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000000", Kind.UUID),
        ("ABC123XYZ", "ABC123XYZ", Kind.HUMANE_CODE),
        ("abc123xyz", "ABC123XYZ", Kind.HUMANE_CODE),
        ("iIlLoOuU0", "111100VV0", Kind.HUMANE_CODE),
        ("000000000", "000000000", Kind.HUMANE_CODE),
        ("broadcast", "BR0ADCAST", Kind.HUMANE_CODE),
        ("global", "global", Kind.SINGLETON),
        ("twilio_webhook", "twilio_webhook", Kind.SINGLETON),
        (f"{UUID4}:2026", f"{UUID4}:2026", Kind.TAGGED_UUID),
        (f"{UUID4.upper()}:v2", f"{UUID4}:v2", Kind.TAGGED_UUID),
        (f"{UUID4}:{'z' * 10}", f"{UUID4}:{'z' * 10}", Kind.TAGGED_UUID),
    ],
)
def test_each_kind_has_one_canonical_spelling(text: str, canonical: str, kind: Kind) -> None:
    assert identify(text, SINGLETONS) == Identifier(canonical, kind)
    assert canonicalize(text, SINGLETONS) == canonical
    assert canonicalize(canonical, SINGLETONS) == canonical


@pytest.mark.parametrize("version", "01236789abcdef")
def test_uuids_of_other_versions_are_refused_by_name(version: str) -> None:
    assert f"version {version}" in refusal(f"a0000000-0000-{version}000-a000-000000000001")
    assert f"version {version}" in refusal(f"a0000000-0000-{version}000-a000-000000000001:2026")


@pytest.mark.parametrize("variant", "01234567cdef")
def test_uuids_of_other_variants_are_refused(variant: str) -> None:
    assert f"{variant} stands where" in refusal(f"a0000000-0000-4000-{variant}000-000000000001")


@pytest.mark.parametrize(
    "text",
    [
        UUID4.replace("-", ""),
        "{" + UUID4 + "}",
        "urn:uuid:" + UUID4,
        "URN:UUID:" + UUID4.upper(),
        "a0000000000-0-4000-a000-000000000001",
    ],
)
def test_what_a_uuid_library_would_accept_is_refused_with_the_plain_form(text: str) -> None:
    assert f"write {UUID4}" in refusal(text)


@pytest.mark.parametrize(
    "tag", ["", "ABC", "20-26", "a" * 11, "2026\n", "2026 ", "٢٠٢٦", "a:b", "_", "K"], ids=ascii
)
def test_a_tag_is_1_to_10_lower_case_ascii_letters_and_digits(tag: str) -> None:
    refusal(f"{UUID4}:{tag}")


def test_a_wrong_tag_is_named() -> None:
    assert 'The tag "ABC"' in refusal(f"{UUID4}:ABC")
    assert 'The tag ""' in refusal(f"{UUID4}:")


@pytest.mark.parametrize(
    "text",
    [
        "ſcheduler"[:9],  # LATIN SMALL LETTER LONG S: upper() makes it S
        "ABC123X\u212aZ"[:9],  # KELVIN SIGN: lower() makes it k
        "ıııııııı0",  # DOTLESS I: upper() makes it I
        "ABC12ﬁXYZ"[:9],  # LIGATURE FI: upper() makes it FI
        "ABC12ﬁXY",  # ... and 9 characters out of 8
        "straße123",  # upper() makes it STRASSE123
        "ＡＢＣ１２３ＸＹＺ",  # full width
        "٠١٢٣٤٥٦٧٨",  # Arabic-Indic digits: int() reads them
        "ABC12३XYZ",  # a Devanagari digit: \\d matches it
        "é" * 9,
        UUID4.replace("a", "ａ"),
        UUID4.replace("0", "٠"),
        UUID4.replace("-", "‐"),  # HYPHEN
        UUID4.replace("-", "−"),  # MINUS SIGN
        "twilio_webhooK".replace("K", "\u212a"),
        "globaⅼ",  # SMALL ROMAN NUMERAL FIFTY
        "global\u0301",
        "\ufeffglobal",
    ],
    ids=ascii,
)
def test_only_ascii_counts_whatever_changes_into_it(text: str) -> None:
    assert "not ASCII" in refusal(text)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", " ", "\t", "\x00", "\x1c", "\x85", "\u2028"], ids=ascii)
@pytest.mark.parametrize(
    "text", [UUID4, f"{UUID4}:2026", "ABC123XYZ", "ABC123XY", "global", "twilio_webhook"]
)
def test_nothing_may_stand_before_or_after_an_identifier(text: str, end: str) -> None:
    refusal(text + end)
    refusal(end + text)


@pytest.mark.parametrize(
    "text", ["ABC12XYZ", "ABC123XYZZ", "ABC-23XYZ", "ABC_23XYZ", "+12345678", "1_000_000", "ABC 23XYZ"]
)
def test_a_humane_code_is_nine_letters_and_digits(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize("text", ["Global", "GLOBAL", "Twilio_webhook", "twilio-webhook", "twilio_webhoo"])
def test_singletons_are_exact(text: str) -> None:
    refusal(text)


def test_a_singleton_is_looked_up_before_anything_is_rewritten() -> None:
    # No checked spec declares these; the rule must hold all the same.
    assert identify("dashboard", {"dashboard"}) == Identifier("dashboard", Kind.SINGLETON)
    assert identify(UUID4.upper(), [UUID4.upper()]) == Identifier(UUID4.upper(), Kind.SINGLETON)


def test_an_undeclared_singleton_is_told_what_to_do() -> None:
    assert "not a declared singleton" in refusal("github_webhook")
    assert "not a declared singleton" in refusal("a_webhook")  # nine characters, and still no code


def test_aliases_are_no_fifth_kind() -> None:
    for text in ("@VNO-42", "@bd-k86gaq", "@"):
        assert "is an alias" in refusal(text)
    refusal("VNO-42")


def test_an_empty_identifier_is_called_missing() -> None:
    assert "missing" in refusal("")


def test_a_reason_never_repeats_a_huge_text() -> None:
    assert len(refusal("x" * 100_000)) < 300
    assert len(refusal(f"{UUID4}:{'x' * 100_000}")) < 300


def test_system_actors_have_their_own_ids() -> None:
    assert RESERVED_ACTOR_PREFIX == "system_"
    assert len(SYSTEM_ACTOR_IDS) == 4
    for text in SYSTEM_ACTOR_IDS:
        assert canonicalize(text, SINGLETONS) is None


# Path segments


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (UUID4.encode(), UUID4),
        (f"{UUID4}%3A2026".encode(), f"{UUID4}:2026"),
        (f"{UUID4}:2026".encode(), f"{UUID4}:2026"),
        (b"a%2Fb", "a/b"),
        (b"a%2fb", "a/b"),
        (b"%2541", "%41"),
        (b"%252F", "%2F"),
        (b"caf%C3%A9", "café"),
        ("café".encode(), "café"),
        (b"%EF%BC%A1", "Ａ"),
        (b"a+b", "a+b"),
        (b"...", "..."),
        (b"", ""),
    ],
)
def test_a_segment_is_decoded_once_and_never_split(raw: bytes, text: str) -> None:
    assert decode_segment(raw) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"%ff",
        b"%fe",
        b"\xff",
        b"%C3",
        b"%C3(",
        b"%C0%AF",  # an overlong slash
        b"%ED%A0%80",  # a surrogate
        b"%F5%80%80%80",  # beyond Unicode
        b"%",
        b"%4",
        b"%zz",
        b"%u0041",
        b"a%2",
        b"%+1",
        b"%00",
        b"a%0D%0Ab",
        b"a%0a",
        b"a\nb",
        b"%7F",
        b"%C2%85",
        b".",
        b"..",
        b"%2e",
        b"%2E%2e",
        b".%2e",
    ],
)
def test_a_segment_that_is_malformed_or_dangerous_is_refused(raw: bytes) -> None:
    assert decode_segment(raw) is None


def test_two_segments_that_differ_never_become_one() -> None:
    assert canonicalize(decode_segment(b"%61" + UUID4[1:].encode()) or "", SINGLETONS) == UUID4
    assert decode_segment(b"caf%C3%A9") != decode_segment(b"cafe%CC%81")  # NFC and NFD


# Minting


def test_a_minted_code_is_canonical() -> None:
    assert mint_humane(bytes(HUMANE_RANDOM_BYTES)) == "000000000"
    assert mint_humane(b"\xff" * HUMANE_RANDOM_BYTES) == "ZZZZZZZZZ"


@pytest.mark.parametrize("count", [0, 5, 7, 9])
def test_minting_takes_exactly_the_bytes_it_needs(count: int) -> None:
    with pytest.raises(ValueError, match="needs 6 bytes"):
        mint_humane(bytes(count))


def test_every_symbol_of_a_minted_code_is_equally_likely() -> None:
    # Each symbol is 5 bits of its own: over all values of two bytes each comes 65,536 / 32 times.
    seen = [mint_humane(n.to_bytes(2, "big") * 3) for n in range(65_536)]
    for position in range(9):
        counts = dict.fromkeys(HUMANE_ALPHABET, 0)
        for code in seen:
            counts[code[position]] += 1
        assert set(counts.values()) == {2_048}


# Names of singletons


@pytest.mark.parametrize(
    "name", ["all", "twilio_webhook", "schedulers", "main_clock", "a", "a" * 64, "the_board"]
)
def test_a_singleton_name_that_is_nothing_else_is_fine(name: str) -> None:
    assert singleton_fault(name) is None


@pytest.mark.parametrize("name", ["broadcast", "dashboard", "scheduler", "abcdefghi", "a00000000"])
def test_nine_letters_are_a_humane_code_and_the_fault_proposes_a_name(name: str) -> None:
    fault = singleton_fault(name)
    assert fault is not None
    assert "humane code" in fault
    assert f'"main_{name}" works' in fault
    assert singleton_fault(f"main_{name}") is None


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("global", "main_global"),
        ("Global", "main_global"),
        ("Twilio Webhook", "twilio_webhook"),
        ("twilio-webhook", "twilio_webhook"),
        ("Dashboard", "main_dashboard"),
        ("2nd_floor", "main_2nd_floor"),
        ("_all", "all"),
        ("", "main"),
        ("99", "main_99"),
        ("日本", "main"),
        (UUID4, "a0000000_0000_4000_a000_000000000001"),
        ("x" * 65, "x" * 58),
    ],
)
def test_a_name_that_can_not_be_declared_comes_with_one_that_can(name: str, proposed: str) -> None:
    fault = singleton_fault(name)
    assert fault is not None
    assert f'"{proposed}"' in fault
    assert singleton_fault(proposed) is None
