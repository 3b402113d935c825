"""The events of a tenant's stream of names: their form is durable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.aliases import NUMBER_MAX, Alias, Kind
from gateway.names.changes import (
    NAMES_AN_EVENT_MAX,
    Change,
    Give,
    Given,
    Named,
    Retire,
    named,
    to_events,
)
from gateway.names.public_ids import numbered

KEY = "a0000000-0000-4000-a000-000000000001"
ONE = Given(Kind.PUBLIC, "VNO", "42", "", "character", KEY)

GOLDEN: list[tuple[Change, str, bytes]] = [
    (
        Give((ONE, Given(Kind.HASH, "bd", "k86gaq", ".1", "issue", "ABC123XYZ"))),
        "_names_given",
        b'{"names":[["public","VNO","42","","character","' + KEY.encode() + b'"],'
        b'["hash","bd","k86gaq",".1","issue","ABC123XYZ"]]}',
    ),
    (
        Give((ONE,), imported=True),
        "_names_imported",
        b'{"names":[["public","VNO","42","","character","' + KEY.encode() + b'"]]}',
    ),
    (
        Retire((Named(Kind.PUBLIC, "VNO", "42", ""),)),
        "_names_retired",
        b'{"names":[["public","VNO","42",""]]}',
    ),
    (
        Retire((Named(Kind.HASH, "bd", "k86gaq", ".1"),), restore=True),
        "_names_restored",
        b'{"names":[["hash","bd","k86gaq",".1"]]}',
    ),
]


@pytest.mark.parametrize(("change", "event_type", "payload"), GOLDEN)
def test_a_change_has_one_form(change: Change, event_type: str, payload: bytes) -> None:
    assert list(to_events([change])) == [(event_type, payload)]


def test_a_large_change_is_spread_over_events_in_order() -> None:
    names = numbered("VNO", 0, [("order", f"{n:09}") for n in range(2 * NAMES_AN_EVENT_MAX + 1)])
    told = [json.loads(payload)["names"] for _, payload in to_events([Give(names), Give(())])]
    assert [len(each) for each in told] == [NAMES_AN_EVENT_MAX, NAMES_AN_EVENT_MAX, 1]
    assert tuple(Given(Kind(name[0]), *name[1:]) for each in told for name in each) == names


def test_a_name_is_its_alias_and_back() -> None:
    assert ONE.alias == Alias(Kind.PUBLIC, "VNO", "42")
    assert ONE.alias.text == "VNO-42"
    assert named(ONE.alias) == Named(Kind.PUBLIC, "VNO", "42", "")


@given(st.integers(0, 10**6), st.lists(st.sampled_from("abcdefgh"), max_size=30))
def test_numbers_follow_the_greatest_without_a_gap(greatest: int, keys: list[str]) -> None:
    names = numbered("VNO", greatest, [("order", key) for key in keys])
    assert [int(name.body) for name in names] == list(range(greatest + 1, greatest + 1 + len(keys)))
    assert [name.key for name in names] == keys


def test_numbers_end_where_they_can_not_be_stored() -> None:
    names = numbered("VNO", NUMBER_MAX - 1, [("order", "a"), ("order", "b")])
    assert [(name.body, name.key) for name in names] == [(str(NUMBER_MAX), "a")]
