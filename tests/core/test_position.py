"""Positions as text: what is encoded is decoded, and no other text is a position."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.position import BEGINNING, SEQ_MAX, START, Place, Position, decode, encode, encode_one
from spec.errors import Report
from spec.subscriptions import check_subscriptions

PLACES = st.builds(Place, st.integers(1, SEQ_MAX), st.binary(min_size=4, max_size=4))
POSITIONS = st.dictionaries(st.integers(0, 1023), PLACES, max_size=20).map(
    lambda places: Position(tuple(sorted(places.items(), key=lambda each: each[0])))
)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(POSITIONS)
def test_what_is_encoded_is_decoded(position: Position) -> None:
    text = encode(position)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert decode(text) == position
    report = Report()
    declared = {"a": {"start": text, "target": {"type": "pull"}}}
    assert check_subscriptions(declared, "", {}, None, report)["a"].start == text
    assert not len(report)


@given(st.integers(0, 1023), PLACES)
def test_a_position_in_one_partition_has_a_short_way_to_its_text(p: int, place: Place) -> None:
    assert encode_one(p, place) == encode(START.moved(p, place))


@given(
    st.text(max_size=45) | st.text(ALPHABET, max_size=45) | st.text(ALPHABET, max_size=20).map("AQ".__add__)
)
def test_any_other_text_is_no_position(text: str) -> None:
    position = decode(text)
    assert position is None or encode(position) == text


@given(POSITIONS, st.data())
def test_another_spelling_is_no_position(position: Position, data: st.DataObject) -> None:
    text = encode(position)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(ALPHABET)) + text[at + 1 :]
    assert changed == text or decode(changed) != position
    for other in (text + "=", text + "A", text[:-1], " " + text, text + "\n"):
        assert decode(other) != position


@pytest.mark.parametrize("text", ["", "0", "-1", "now", "AQ==", "AA", "AQAAAAAAAAAAAAAAAAAA", "é" * 4, "\0"])
def test_a_text_that_was_never_given_is_no_position(text: str) -> None:
    assert decode(text) is None


def test_partitions_stand_in_order_and_once() -> None:
    first, second = Place(7, b"abcd"), Place(9, b"efgh")
    for places in (((2, first), (1, second)), ((1, first), (1, second))):
        assert decode(encode(Position(places))) is None


@given(POSITIONS, st.integers(0, 1023), PLACES)
def test_a_position_moves_in_only_one_partition(position: Position, p: int, place: Place) -> None:
    moved = position.moved(p, place)
    assert moved.at(p) == place
    for number in range(1024):
        assert number == p or moved.at(number) == position.at(number)
    assert decode(encode(moved)) == moved


def test_where_nothing_was_read_a_reader_stands_at_the_beginning() -> None:
    assert START.at(3) == BEGINNING
    assert START.moved(3, BEGINNING) == START
    assert decode(encode(START)) == START
