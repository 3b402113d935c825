from __future__ import annotations

import hashlib
import random
import re
import secrets
from collections import Counter
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names import tokens

HANDLE = "aB3dE6gH"
base62_texts = st.text(tokens.ALPHABET, min_size=8, max_size=8)


def stream(data: bytes) -> tokens.Entropy:
    return BytesIO(data).read


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (61, "z"),
        (62, "10"),
        (3843, "zz"),
        (2**32 - 1, "4gfFC3"),
        (62**8 - 1, "zzzzzzzz"),
        (2**64 - 1, "LygHa16AHYF"),
        (2**128 - 1, "7n42DGM5Tflk9n8mt7Fhc7"),
    ],
)
def test_base62_is_the_published_one(number: int, text: str) -> None:
    assert tokens.base62(number) == text


def test_a_negative_number_has_no_base62() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        tokens.base62(-1)


@given(st.integers(min_value=0, max_value=62**6 - 1), st.integers(min_value=0, max_value=62**6 - 1))
def test_the_order_of_fixed_width_base62_is_the_order_of_the_numbers(one: int, other: int) -> None:
    texts = [tokens.base62(number).rjust(6, "0") for number in (one, other)]
    assert (one < other) == (texts[0] < texts[1])


def test_bytes_that_would_favour_a_symbol_are_rejected() -> None:
    assert tokens.draw(8, stream(bytes.fromhex("003d3e7b7cf7f8ff010a"))) == "0z0z0z1A"


def test_each_byte_value_that_is_kept_gives_each_symbol_equally_often() -> None:
    kept = [tokens.draw(1, stream(bytes([byte]))) for byte in range(248)]
    assert set(Counter(kept).values()) == {4}
    for byte in range(248, 256):
        assert tokens.draw(1, stream(bytes([byte, 1]))) == "1"


def test_drawn_symbols_are_uniform_by_chi_square() -> None:
    draws = 620_000
    counts = Counter(tokens.draw(draws, random.Random(62).randbytes))
    expected = draws / 62
    chi_square = sum((counts[symbol] - expected) ** 2 / expected for symbol in tokens.ALPHABET)
    assert chi_square < 100.9  # 61 degrees of freedom, p = 0.001; the biased remainder gives over 5,000


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (lambda n: b"", "gave 0 bytes, asked for 8"),
        (lambda n: b"a" * (n + 1), "gave 9 bytes, asked for 8"),
        (lambda n: b"\xff" * n, "is broken"),
    ],
)
def test_a_broken_source_of_randomness_is_an_error_not_a_weak_key(
    source: tokens.Entropy, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        tokens.new_handle(source)


def test_a_minted_key_is_the_golden_one() -> None:
    key = tokens.mint(HANDLE, stream(bytes(range(22))))
    assert key == "sl_aB3dE6gH_0123456789ABCDEFGHIJKL_1b3nut"
    assert tokens.digest(key) == hashlib.sha256(key.encode()).digest()


@given(base62_texts, st.binary(min_size=200, max_size=200))
def test_a_minted_key_parses_and_names_its_tenant(handle: str, noise: bytes) -> None:
    key = tokens.mint(handle, stream(noise + bytes(22)))
    assert tokens.parse(key) == tokens.Token(handle, key)
    assert re.fullmatch(tokens.KEY_PATTERN, key)


def test_a_key_with_another_checksum_is_no_key() -> None:
    key = tokens.mint(HANDLE, stream(bytes(range(200))))
    assert tokens.parse(key) == tokens.Token(HANDLE, key)
    assert tokens.parse(key[:-1] + ("0" if key[-1] != "0" else "1")) is None


@given(st.integers(min_value=0, max_value=40), st.sampled_from(tokens.ALPHABET + "_- \n"))
def test_one_changed_character_is_noticed_offline(place: int, other: str) -> None:
    key = tokens.mint(HANDLE, random.Random(1).randbytes)
    typo = key[:place] + other + key[place + 1 :]
    assert (tokens.parse(typo) is None) == (typo != key)


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_other_text_is_no_key(text: str) -> None:
    assert tokens.parse(text) is None


@pytest.mark.parametrize("change", [str.upper, str.swapcase, lambda key: key + "\n", lambda key: " " + key])
def test_another_spelling_of_a_key_is_no_key(change: object) -> None:
    assert callable(change)
    assert tokens.parse(change(tokens.mint(HANDLE, random.Random(1).randbytes))) is None


@pytest.mark.parametrize("handle", ["", "short", "aB3dE6gH9", "aB3dE6g_", "aB3dE6gÀ", "aB3dE6g٣"])
def test_a_key_is_minted_only_for_a_real_handle(handle: str) -> None:
    with pytest.raises(ValueError, match="not a handle"):
        tokens.mint(handle, secrets.token_bytes)


def test_the_secret_is_not_in_the_repr() -> None:
    key = tokens.mint(HANDLE, secrets.token_bytes)
    token = tokens.parse(key)
    assert token is not None
    assert repr(token) == "Token(handle='aB3dE6gH')"


def test_ten_thousand_handles_are_distinct() -> None:
    assert len({tokens.new_handle(secrets.token_bytes) for _ in range(10_000)}) == 10_000
