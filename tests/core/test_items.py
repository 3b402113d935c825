"""A query's items, as they are read and as they match."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admit.items import read_items, read_query, with_tags
from gateway.errors import Refusal
from gateway.items import Item, Items, matches, tags_of
from spec.tags import hashed_value
from tests.core.appends import declared

SALT = b"s" * 32
SPEC = declared(
    {
        "aggregate_types": {
            "course": {"events": {"was_defined": {"schema": {}}, "was_closed": {"schema": {}}}},
            "subscription": {
                "events": {
                    "was_made": {
                        "schema": {},
                        "tags": ["student:$.data.student", {"hash": "email:$.data.email"}],
                    }
                }
            },
        },
        "agent_types": [],
    }
)


def read(*items: Any) -> Items:
    found = read_query({"items": list(items)}, SPEC, SALT)
    assert not isinstance(found, Refusal), found
    return found


def matched(items: Items, stream: tuple[str, str], event_type: str, *tags: str) -> bool:
    return matches(items, *stream, event_type, tags)


def test_an_item_matches_one_of_its_types_with_all_of_its_tags() -> None:
    items = read({"types": ["course.was_defined", "course.was_closed"], "tags": ["course:c1", "student:s1"]})
    assert matched(items, ("course", "c1"), "was_closed", "student:s1")
    assert not matched(items, ("course", "c1"), "was_closed")
    assert not matched(items, ("course", "c2"), "was_closed", "student:s1")
    assert not matched(items, ("subscription", "c1"), "was_closed", "course:c1", "student:s1")


def test_items_are_joined_by_or_and_leave_out_the_systems_own() -> None:
    items = read({"tags": ["student:s1"]}, {"types": ["course.was_defined"]})
    assert matched(items, ("course", "x"), "was_defined")
    assert matched(items, ("subscription", "x"), "was_made", "student:s1")
    assert not matched(items, ("subscription", "x"), "was_made", "student:s2")
    assert not matched(items, ("_names", "x"), "was_made", "student:s1")


def test_a_hashed_tag_is_asked_for_by_its_plain_value() -> None:
    (item,) = read({"tags": [{"hash": "email:a@b.c"}]})
    assert item == Item(frozenset(), frozenset({f"email:{hashed_value(SALT, 'email', 'a@b.c')}"}))
    assert read({"tags": ["email:a@b.c"]}) != (item,)


def item(**fields: Any) -> dict[str, Any]:
    return {"items": [fields]}


@pytest.mark.parametrize(
    ("query", "code", "path"),
    [
        (5, "invalid_field", None),
        ({}, "missing_field", "items"),
        ({"items": [], "after": "A"}, "unknown_field", "after"),
        ({"items": []}, "invalid_field", "items"),
        ({"items": {}}, "invalid_field", "items"),
        ({"items": [{"tags": ["course:c1"]}] * 101}, "invalid_field", "items"),
        ({"items": [5]}, "invalid_field", "items[0]"),
        ({"items": [{"tags": ["course:c1"]}, {}]}, "invalid_field", "items[1]"),
        (item(types=[], tags=[]), "invalid_field", "items[0]"),
        (item(tag=["course:c1"]), "unknown_field", "items[0].tag"),
        (item(tags="course:c1"), "invalid_field", "items[0].tags"),
        (item(tags=["course:c1", "c1"]), "invalid_field", "items[0].tags[1]"),
        (item(tags=["course:"]), "invalid_field", "items[0].tags[0]"),
        (item(tags=[{"hash": 5}]), "invalid_field", "items[0].tags[0]"),
        (item(tags=["studnt:s1"]), "unknown_tag", "items[0].tags[0]"),
        (item(tags=[{"hash": "emial:s1"}]), "unknown_tag", "items[0].tags[0]"),
        (item(tags=[f"course:{n}" for n in range(18)]), "invalid_field", "items[0].tags"),
        ({"items": [{"tags": [f"course:{n}.{m}" for m in range(17)]} for n in range(12)]},
         "invalid_field", "items"),
        (item(types=["was_defined"]), "invalid_field", "items[0].types[0]"),
        (item(types=["curse.was_defined"]), "unknown_aggregate_type", "items[0].types[0]"),
        (item(types=["course.was_made"]), "unknown_event_type", "items[0].types[0]"),
    ],
)  # fmt: skip
def test_what_is_no_query_is_refused_at_its_place(query: Any, code: str, path: str | None) -> None:
    refusal = read_query(query, SPEC, SALT)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.path, refusal.http_status) == (code, path, 422)
    assert refusal.error.endswith((".", "?"))


def test_names_that_no_spec_declares_are_read_without_one() -> None:
    found = read_query({"items": [{"types": ["a.b"], "tags": ["c:d"]}]}, None, SALT)
    assert found == (Item(frozenset({("a", "b")}), frozenset({"c:d"})),)


def test_a_query_is_narrowed_by_tags() -> None:
    items = read({"types": ["course.was_defined"]}, {"tags": ["student:s1"]})
    narrowed = with_tags(items, ["course:c1"], "tags")
    assert narrowed == read(
        {"types": ["course.was_defined"], "tags": ["course:c1"]}, {"tags": ["student:s1", "course:c1"]}
    )
    assert with_tags((), ["course:c1"], "tags") == read({"tags": ["course:c1"]})


def test_the_key_of_an_aggregate_is_its_own_tag() -> None:
    items = read({"types": ["course.was_defined"], "tags": ["course:c1", "student:s1"]})
    assert matched(items, ("course", "c1"), "was_defined", "student:s1")
    assert not matched(items, ("course", "c2"), "was_defined", "student:s1")
    assert not matched((), ("course", "c1"), "was_defined")


def test_tags_are_those_of_all_items_in_order() -> None:
    items = read(
        {"tags": ["student:s1", "course:c1"]}, {"types": ["course.was_defined"]}, {"tags": ["course:c1"]}
    )
    assert tags_of(items) == ("course:c1", "student:s1", "course:c1")


@pytest.mark.parametrize(
    ("items", "more"),
    [(0, 18), (1, 17), (100, 2)],
    ids=["more than an event has", "with those of an item", "of all items together"],
)
def test_tags_that_each_item_has_to_have_count_as_its_own(items: int, more: int) -> None:
    query = read(*[{"tags": [f"student:{n}"]} for n in range(items)]) if items else ()
    fit = with_tags(query, [f"course:{n}" for n in range(more - 1)], "tags")
    assert not isinstance(fit, Refusal)
    refusal = with_tags(query, [f"course:{n}" for n in range(more)], "tags")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.path) == ("invalid_field", "tags")


def test_a_stored_filter_may_have_more_tags_than_a_query() -> None:
    listed = [{"tags": [f"order:{n}-{k}" for k in range(18)]} for n in range(12)]
    read = read_items(listed, None, b"", "items", bounded=False)
    assert not isinstance(read, Refusal)
    assert len(tags_of(read)) == 216
