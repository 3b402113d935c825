"""Places that only the rarest of states and handlers lead to."""

from __future__ import annotations

import json

import pytest

from gateway.state.budget import TooLarge
from gateway.state.draft import FIELDS_MAX, Draft
from gateway.state.fold import is_light
from gateway.state.predicates import COMPARED_BYTES_MAX, spelling_at
from gateway.state.values import read
from spec.handlers import (
    Append,
    AppendUnique,
    Compare,
    Comparison,
    Constant,
    Filter,
    Handler,
    Map,
    ObjectTemplate,
    Path,
    Remove,
    RemoveAt,
    Root,
    Set,
    UpdateWhere,
    Upsert,
)
from tests.core.state_samples import folded, recorded

DATA = Path(Root.DATA)
ITEM = Path(Root.ITEM)
LIST = ("list",)


def put(state: object, by: Handler, payload: object = None) -> tuple[object, list[str]]:
    """The state after an event with this handler, and what did not fit."""
    before = folded(json.dumps(state).encode(), by=(Set((), DATA),))
    assert before.errors == ()
    after = folded(json.dumps(payload).encode(), by=by, on=before)
    return json.loads(after.data_json), [each.error for each in after.errors]


def test_a_draft_is_measured_when_in_doubt() -> None:
    fields = read(b'{"a":1}')
    assert isinstance(fields, dict)
    doubtful = Draft(fields, 100, 10, 8)
    doubtful.grow(1)
    assert doubtful.size_at_most == 8
    with pytest.raises(TooLarge):
        Draft(fields, 0, 10, 8).grow(21)


@pytest.mark.parametrize(
    "by",
    [
        Remove(LIST, Compare(Comparison.EQUALS, ITEM, DATA)),
        AppendUnique(LIST, DATA),
        Upsert(LIST, "k", DATA),
        Filter(LIST, Compare(Comparison.EQUALS, ITEM, DATA)),
    ],
)
def test_what_looks_at_each_item_of_a_long_list_is_heavy(by: Remove | AppendUnique | Upsert | Filter) -> None:
    short, long = (folded(json.dumps({"list": [1] * n}).encode(), by=(Set((), DATA),)) for n in (3, 30_000))
    event = recorded(2, b"{}")
    assert is_light(short, [event], lambda _: (by,))
    assert not is_light(long, [event], lambda _: (by,))
    assert is_light(long, [event], lambda _: (Remove(LIST, None),))


def test_an_item_that_was_replaced_is_found_by_what_it_has_now() -> None:
    unique = AppendUnique(LIST, Path(Root.DATA, ("first",)), "b")
    merge = Upsert(LIST, "k", Path(Root.DATA, ("second",)))
    again = AppendUnique(LIST, Path(Root.DATA, ("third",)), "b")
    sent = {"first": {"b": 7}, "second": {"k": 1, "b": 9}, "third": {"b": 5}}
    after, errors = put({"list": [{"k": 1, "b": 5}]}, (unique, merge, again), sent)
    assert (after, errors) == ({"list": [{"k": 1, "b": 9}, {"b": 7}, {"b": 5}]}, [])


def test_a_list_with_an_item_too_long_to_be_compared_is_looked_up_no_more() -> None:
    unique = AppendUnique(LIST, Path(Root.DATA, ("one",)), "b")
    sent = {"one": {"b": 1}, "long": {"b": "x" * (COMPARED_BYTES_MAX + 1)}}
    after, errors = put(
        {"list": [{"b": 2}]}, (unique, Append(LIST, Path(Root.DATA, ("long",))), unique), sent
    )
    assert isinstance(after, dict)
    assert [each["b"] for each in after["list"]][:2] == [2, 1]
    assert len(after["list"]) == 3
    assert len(errors) == 1


def test_an_item_takes_no_more_fields_than_an_object_has() -> None:
    full = {f"f{n}": 1 for n in range(FIELDS_MAX - 1)} | {"k": 1}
    after, errors = put({"list": [full]}, (Upsert(LIST, "k", DATA),), {"k": 1, "more": 1})
    assert after == {"list": [full]}
    assert len(errors) == 1


@pytest.mark.parametrize("value", [DATA, ObjectTemplate(tuple((f"f{n}", DATA) for n in range(40)))])
def test_items_that_would_be_longer_than_a_state_make_it_too_large(value: Path | ObjectTemplate) -> None:
    before = folded(json.dumps({"list": [1] * 40}).encode(), by=(Set((), DATA),))
    after = folded(json.dumps("x" * 250_000).encode(), by=(Map(LIST, value),), on=before)
    assert after.too_large_at == 2


def test_an_item_takes_the_fields_of_an_object_only() -> None:
    where = Compare(Comparison.EQUALS, Path(Root.ITEM, ("k",)), Constant(1))
    after, errors = put({"list": [{"k": 1}, {"k": 2}]}, (UpdateWhere(LIST, where, Constant(3)),))
    assert after == {"list": [{"k": 1}, {"k": 2}]}
    assert errors == ["item 0: The value is a number, not an object."]


def test_a_field_whose_name_is_absent_is_not_removed() -> None:
    absent = Path(Root.DATA, ("name",), optional=True)
    assert put({"a": {"b": 1}}, (RemoveAt(("a",), absent),), {}) == ({"a": {"b": 1}}, [])


def test_items_are_compared_with_an_object_that_is_made() -> None:
    made = ObjectTemplate((("n", Path(Root.DATA, ("n",))),))
    where = Compare(Comparison.EQUALS, Path(Root.ITEM, ("of",)), made)
    after = put({"list": [{"of": {"n": 1}}, {"of": {"n": 2}}]}, (Remove(LIST, where),), {"n": 2})
    assert after == ({"list": [{"of": {"n": 1}}]}, [])


def test_a_spelling_is_found_by_names_and_numbers() -> None:
    item = read(b'{"a":[1, "x"]}')
    assert item is not None
    assert spelling_at(item, ("a", 1)) == spelling_at(item, ("a", -1)) != spelling_at(item, ("a", 0))
    assert spelling_at(item, ("a", 2)) is None
    assert spelling_at(item, ("b", 0)) is None


def test_a_path_leads_through_a_large_object() -> None:
    large = {"a": {"b": 1, "pad": "x" * 200_000}}
    assert put({}, (Set(("n",), Path(Root.DATA, ("a", "b"))),), large) == ({"n": 1}, [])
