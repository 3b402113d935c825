"""The tags of an event follow from its data, its type's declarations and the tenant's salt."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit.address import address
from gateway.admit.append import Append, Fault, compose
from gateway.admit.line import judge_line
from gateway.admit.preconditions import NOTHING_ASKED
from gateway.appends import Header, tag_key, unpack_header
from gateway.json_values import decode_data
from spec.errors import Report
from spec.tags import TAG_BYTES_MAX, TAGS_MAX, TagFault, TagRule, hashed_value, read_tags, tags_of, text_of
from tests.core.appends import ACTOR, TENANT, UUID, admitted, declared, event, minting, refused

SALT = bytes(range(32))
SPEC = declared(
    {
        "aggregate_types": {
            "course": {
                "events": {
                    "was_made": {
                        "schema": {},
                        "tags": ["student:$.data.student", "course:$.data.courses[*]"],
                    },
                    "was_noted": {"schema": {}},
                }
            }
        },
        "agent_types": ["user"],
    }
)


def rules(*texts: Any) -> tuple[TagRule, ...]:
    report = Report()
    found = read_tags(list(texts), "/tags", True, report)
    assert not len(report)
    return found


def tags(data: Any, *texts: Any) -> tuple[str, ...]:
    found = tags_of(rules(*texts), data, SALT)
    assert not isinstance(found, TagFault), found
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [("s1", "s1"), ("é:1, x", "é:1, x"), (5, "5"), (-0.5, "-0.5"), (2.5, "2.5"), (True, "true"),
     (False, "false"), (10**30, "1" + 30 * "0"), (Decimal("1e400"), "1E+400")],
)  # fmt: skip
def test_a_value_is_a_tag_as_text_or_as_json_writes_it(value: Any, text: str) -> None:
    assert tags({"id": value}, "student:$.data.id") == (f"student:{text}",)


@pytest.mark.parametrize(
    ("spellings", "text"),
    [("1000 1000.0 1e3 1E+3 100e1", "1000"), ("-7 -7.0 -70e-1", "-7"), ("0 -0 0.0 -0.0 0e9", "0"),
     ("100000000000000000000 1e20", "1" + 20 * "0"),
     ("12345678901234567000 12345678901234567000.0 1.2345678901234567e19", "12345678901234567000"),
     ("0.5 0.50 5e-1", "0.5"), ("1e21 1000e18", "1e21")],
)  # fmt: skip
def test_a_number_is_one_tag_however_it_is_spelled(spellings: str, text: str) -> None:
    declared = ("number:$.data", {"hash": "hidden:$.data"})
    found = {tags(decode_data(each.encode()), *declared) for each in spellings.split()}
    assert found == {(f"number:{text}", f"hidden:{hashed_value(SALT, 'hidden', text)}")}


@pytest.mark.parametrize(
    "data", [{}, {"a": None}, {"a": {}}, {"a": {"id": None}}, {"a": {"id": ""}}, {"a": 5}, [], None, "x"]
)
def test_what_is_absent_null_or_empty_gives_no_tag(data: Any) -> None:
    assert tags(data, "student:$.data.a.id") == ()


def test_each_item_of_a_list_gives_a_tag_once() -> None:
    data = {"courses": ["c1", None, "c2", "c1"], "lines": [{"sku": 1}, {}, {"sku": 2}], "rows": [[1], [2, 3]]}
    declared = ("course:$.data.courses[*]", "sku:$.data.lines[*].sku", "cell:$.data.rows[*][*]")
    assert tags(data, *declared) == (
        "course:c1", "course:c2", "sku:1", "sku:2", "cell:1", "cell:2", "cell:3",
    )  # fmt: skip
    assert tags(7, "number:$.data") == ("number:7",)


@pytest.mark.parametrize(
    ("data", "path"),
    [({"a": {}}, ".a"), ({"a": ["x"]}, ".a"), ({"a": "x" * 129}, ".a"), ({"a": "é" * 65}, ".a"),
     ({"b": "x"}, ".b"), ({"b": [1, [2]]}, ".b[1]"), ({"b": [1, {"a": 1}]}, ".b[1]"),
     ({"b": list(range(17))}, ".b[16]"), ({"a": 1, "b": list(range(16))}, ".b[15]")],
)  # fmt: skip
def test_what_can_be_no_tag_is_at_fault_with_its_path(data: Any, path: str) -> None:
    found = tags_of(rules("x:$.data.a", "y:$.data.b[*]"), data, SALT)
    assert isinstance(found, TagFault)
    assert found.path == path
    assert found.error.endswith(".")


def test_a_hashed_tag_tells_its_value_to_who_knows_salt_and_value() -> None:
    (found,) = tags({"email": "a@b.c" * 99}, {"hash": "email:$.data.email"})
    assert found == "email:" + hashed_value(SALT, "email", "a@b.c" * 99)
    assert len(found) == len("email:") + 43
    assert hashed_value(SALT, "mail", "a@b.c") != hashed_value(SALT, "email", "a@b.c")
    assert hashed_value(bytes(32), "email", "a@b.c") != hashed_value(SALT, "email", "a@b.c")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=140),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=12,
)


@given(JSON)
def test_any_data_have_at_most_so_many_tags_within_bounds_or_a_place_at_fault(data: Any) -> None:
    found = tags_of(rules("x:$.data.a", "y:$.data.b[*]", "z:$.data[*].a", {"hash": "h:$.data"}), data, SALT)
    if isinstance(found, TagFault):
        assert found.path == "" or found.path[0] in ".["
        return
    assert len(set(found)) == len(found) <= TAGS_MAX
    for tag in found:
        prefix, value = tag.split(":", 1)
        assert prefix in "xyzh" and 1 <= len(value.encode()) <= TAG_BYTES_MAX


@given(st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_and_booleans_are_written_as_json(value: Any) -> None:
    text = text_of(value)
    assert text is not None
    assert type(value)(json.loads(text)) == value


def test_the_key_of_a_tag_is_its_tenants_own() -> None:
    assert len(tag_key(TENANT, "a:1")) == 16
    assert len({tag_key(TENANT, "a:1"), tag_key(TENANT, "a:2"), tag_key(bytes(16), "a:1")}) == 3


# ---- at the edge ----


def sent(data: Any, name: str = "was_made") -> Append | Fault:
    place = address(SPEC, "course", UUID, name)
    body = json.dumps({"data": data, "metadata": {"actor": ACTOR}}).encode()
    return compose(SPEC, place, NOTHING_ASKED, body, minting())  # type: ignore[arg-type]


def test_an_append_carries_the_tags_of_each_event_into_the_journal() -> None:
    append = admitted(sent({"student": "s1", "courses": ["c1"]}))
    assert append.tags == (("student:s1", "course:c1"),)
    header: Header = unpack_header(append.header)
    assert header.tags == append.tags
    assert admitted(sent({})).tags == admitted(sent({"student": "s1"}, "was_noted")).tags == ()


def test_what_is_no_list_where_a_tag_asks_for_items_is_told_to_be_one() -> None:
    for data in ({"a": "x"}, {"a": {}}, {"a": 5}):
        found = tags_of(rules("a:$.data.a[*]"), data, SALT)
        assert found == TagFault(".a", "A value of the tag `a` must be a list.")
    found = tags_of(rules("a:$.data.a[*]"), {"a": [{}]}, SALT)
    assert found == TagFault(".a[0]", "A value of the tag `a` must be a string, a number or a boolean.")


def test_a_batch_has_the_tags_of_its_events_in_their_order() -> None:
    place = address(SPEC, "course", UUID, None)
    events = [event("was_noted", {"student": "s1"}), event("was_made", {"student": "s2"})]
    body = json.dumps({"events": events, "metadata": {"actor": ACTOR}}).encode()
    assert admitted(compose(SPEC, place, NOTHING_ASKED, body, minting())).tags == ((), ("student:s2",))  # type: ignore[arg-type]
    body = body.replace(b'"s2"', b"[]")
    fault = compose(SPEC, place, NOTHING_ASKED, body, minting())  # type: ignore[arg-type]
    assert refused(fault) == ("invalid_tag", "events[1].data.student", 422)


def test_a_value_that_is_no_tag_is_refused_at_its_place_one_by_one_and_in_bulk() -> None:
    assert refused(sent({"courses": ["c1", {}]})) == ("invalid_tag", "data.courses[1]", 422)
    line = {"aggregate_type": "course", "key": UUID, "type": "was_made", "data": {"student": {}}}
    judged = judge_line(SPEC, json.dumps({**line, "metadata": {"actor": ACTOR}}).encode(), minting(), {})
    assert refused(judged) == ("invalid_tag", "data.student", 422)
