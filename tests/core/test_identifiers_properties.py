"""What holds of every text and every byte, whatever it is."""

from __future__ import annotations

import re
import uuid
from urllib.parse import quote_from_bytes

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spec.identifiers import (
    HUMANE_ALPHABET,
    HUMANE_RANDOM_BYTES,
    Identifier,
    Kind,
    Refused,
    canonicalize,
    decode_segment,
    identify,
    is_name,
    mint_humane,
    singleton_fault,
)

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault

GRAMMAR = {
    Kind.UUID: "[0-9a-f]{8}-[0-9a-f]{4}-[45][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    Kind.HUMANE_CODE: f"[{HUMANE_ALPHABET}]{{9}}",
    Kind.SINGLETON: "[a-z][a-z0-9_]{0,63}",
    Kind.TAGGED_UUID: "[0-9a-f]{8}-[0-9a-f]{4}-[45][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[a-z0-9]{1,10}",
}

names = st.from_regex(GRAMMAR[Kind.SINGLETON], fullmatch=True).filter(
    lambda name: singleton_fault(name) is None
)
declared = st.frozensets(names, max_size=5)
confusable = st.sampled_from("ſıﬁß\u212aＡ１٠०éⅼ‐\x00\n\r\x1c \u2028\ufeff")
nearly = st.builds(
    lambda text, at, odd: text[: at % (len(text) + 1)] + odd + text[at % (len(text) + 1) :],
    st.one_of(*(st.from_regex(grammar, fullmatch=True) for grammar in GRAMMAR.values())),
    st.integers(0, 50),
    st.one_of(st.just(""), confusable, st.characters()),
)
texts = st.one_of(st.text(), nearly, nearly.map(str.upper), nearly.map(str.swapcase))


@calm
@given(texts, declared)
@example("global\n", frozenset())
@example("ſ" * 9, frozenset())
def test_any_text_is_an_identifier_or_a_clean_refusal(text: str, singletons: frozenset[str]) -> None:
    found = identify(text, singletons)
    assert canonicalize(text, singletons) == (found.canonical if isinstance(found, Identifier) else None)
    if isinstance(found, Identifier):
        assert text.isascii()
        assert re.fullmatch(GRAMMAR[found.kind], found.canonical)
    else:
        assert found.reason.endswith(".")
        assert found.reason.isprintable()
        assert len(found.reason) < 300


@calm
@given(texts, declared)
def test_the_canonical_spelling_is_its_own(text: str, singletons: frozenset[str]) -> None:
    canonical = canonicalize(text, singletons)
    if canonical is not None:
        assert identify(canonical, singletons) == identify(text, singletons)


@calm
@given(texts, declared)
def test_the_kinds_share_no_canonical_identifier(text: str, singletons: frozenset[str]) -> None:
    found = identify(text, singletons)
    if isinstance(found, Identifier):
        others = [kind for kind in Kind if kind not in (found.kind, Kind.SINGLETON)]
        assert not any(re.fullmatch(GRAMMAR[kind], found.canonical) for kind in others)
        assert (found.kind is Kind.SINGLETON) == (found.canonical in singletons | {"global"})


@calm
@given(st.uuids(), st.sampled_from([4, 5]), st.data())
def test_every_case_of_a_uuid_is_one_uuid(value: uuid.UUID, version: int, data: st.DataObject) -> None:
    canonical = str(uuid.UUID(int=value.int, version=version))
    cased = data.draw(st.lists(st.booleans(), min_size=36, max_size=36))
    text = "".join(c.upper() if up else c for c, up in zip(canonical, cased, strict=True))
    assert identify(text, ()) == Identifier(canonical, Kind.UUID)
    assert identify(f"{text}:2026", ()) == Identifier(f"{canonical}:2026", Kind.TAGGED_UUID)


@calm
@given(st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=9, max_size=9), st.data())
def test_every_spelling_of_a_code_is_one_code(text: str, data: st.DataObject) -> None:
    canonical = canonicalize(text, ())
    alike = {"0": "0oO", "1": "1iIlL", "V": "vVuU"}
    assert canonical is not None
    other = "".join(data.draw(st.sampled_from(alike.get(c, c + c.lower()))) for c in canonical)
    assert canonicalize(other, ()) == canonical


@calm
@given(st.binary(min_size=HUMANE_RANDOM_BYTES, max_size=HUMANE_RANDOM_BYTES))
def test_what_is_minted_is_a_canonical_code(random_bytes: bytes) -> None:
    code = mint_humane(random_bytes)
    assert identify(code, ()) == Identifier(code, Kind.HUMANE_CODE)


@calm
@given(st.binary())
def test_any_bytes_are_a_segment_or_none(raw: bytes) -> None:
    text = decode_segment(raw)
    if text is not None:
        assert isinstance(identify(text, ()), Identifier | Refused)


@calm
@given(st.binary(), st.binary())
def test_only_equal_bytes_make_equal_segments(one: bytes, other: bytes) -> None:
    # Whatever is escaped or not: the bytes after decoding are what counts, and none are replaced or lost.
    decoded = decode_segment(quote_from_bytes(one, safe="").encode())
    if decoded is not None:
        assert decoded.encode() == one
        assert (decode_segment(quote_from_bytes(other, safe="").encode()) == decoded) == (one == other)


@calm
@given(st.text())
def test_a_decoded_segment_is_not_decoded_again(text: str) -> None:
    escaped = quote_from_bytes(text.encode("utf-8", "surrogatepass")).encode()
    twice = decode_segment(escaped.replace(b"%", b"%25"))
    assert twice == (escaped.decode() if escaped not in (b".", b"..") else None)


@calm
@given(st.one_of(st.text(), nearly, st.from_regex("[a-z]{9}", fullmatch=True)))
def test_a_refused_singleton_name_comes_with_one_that_works(name: str) -> None:
    fault = singleton_fault(name)
    if fault is None:
        assert is_name(name)
        assert identify(name, {name}) == Identifier(name, Kind.SINGLETON)
        assert canonicalize(name, ()) is None
    else:
        proposed = re.findall('"([a-z0-9_]+)"', fault)[-1]
        assert singleton_fault(proposed) is None
