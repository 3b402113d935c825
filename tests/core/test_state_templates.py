"""Values and tests of the handler language: where paths lead, what is left out, what compares how."""

from __future__ import annotations

import json

import pytest

from gateway.events import Recorded
from gateway.state import EMPTY, fold
from spec.handlers import (
    EACH,
    All,
    Any,
    Append,
    Compare,
    Comparison,
    Constant,
    Exists,
    ListTemplate,
    Merge,
    MergeTemplate,
    Not,
    ObjectTemplate,
    Path,
    Predicate,
    Remove,
    Root,
    Set,
    Step,
    Template,
)
from tests.core.state_samples import folded, recorded

EVENT = recorded(7, rb'{"a":{"b":{"c":1.10}},"list":[{"a":1}],"text":"\u0061","none":null}', with_all=True)
BARE = recorded(7, b"{}")


def value(template: Template, event: Recorded = EVENT) -> object:
    """What `set` puts into an empty state."""
    folded_one = fold(EMPTY, [event], lambda _: (Set(("v",), template),))
    assert folded_one.errors == ()
    state = json.loads(folded_one.data_json)
    return state["v"] if state else "left out"


def at(path: str, *, optional: bool = False) -> Path:
    roots = {"$.data": Root.DATA, "$.metadata": Root.METADATA, "$.key": Root.KEY, "$.type": Root.TYPE}
    written = next((each for each in roots if path.startswith(each)), "@")
    fields = path.removeprefix(written).split(".")[1:]
    return Path(roots.get(written, Root.ITEM), tuple(fields), optional)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.data.a.b.c", 1.10),
        ("$.data.a.b", {"c": 1.10}),
        ("$.data.text", "a"),
        ("$.data.list", [{"a": 1}]),
        ("$.key", "ABC123XYZ"),
        ("$.type", "was_placed"),
        ("$.metadata.timestamp", 1700000007.123),
        ("$.metadata.actor", {"type": "user", "id": "global"}),
        ("$.metadata.actor.id", "global"),
        ("$.metadata.target.type", "order"),
        ("$.metadata.correlation_id", "c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c0c0"),
        ("$.metadata.causation_id", "cacacaca-caca-caca-caca-cacacacacaca"),
        ("$.metadata.extra", {"a": [1.10]}),
        ("$.metadata.extra.a", [1.10]),
    ],
)
def test_a_path_leads_to_what_is_there(path: str, found: object) -> None:
    assert value(at(path)) == found
    assert value(at(path, optional=True)) == found


@pytest.mark.parametrize(
    "path",
    [
        "$.data.x", "$.data.a.x.y", "$.data.list.0", "$.data.list.a", "$.data.text.a", "$.data.none.a",
        "$.key.a", "$.type.a", "$.metadata.x", "$.metadata.timestamp.a", "$.metadata.actor.x", "@", "@.a",
    ],
)  # fmt: skip
def test_what_is_absent_is_null_or_left_out(path: str) -> None:
    assert value(at(path)) is None
    assert value(at(path, optional=True)) == "left out"


LISTS = recorded(7, b'{"l":[{"a":[1,{"b":2}]},{"a":7},8,{"a":[{"b":null},[3]]}],"o":{}}')


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (("l", 0, "a", 0), 1),
        (("l", -1, "a", -1, 0), 3),
        (("l", 4), "left out"),
        (("l", -5), "left out"),
        (("o", 0), "left out"),
        (("l", EACH), [{"a": [1, {"b": 2}]}, {"a": 7}, 8, {"a": [{"b": None}, [3]]}]),
        (("l", EACH, "a"), [[1, {"b": 2}], 7, [{"b": None}, [3]]]),
        (("l", EACH, "a", EACH), [1, {"b": 2}, {"b": None}, [3]]),
        (("l", EACH, "a", EACH, "b"), [2, None]),
        (("l", EACH, "a", 0), [1, {"b": None}]),
        (("l", EACH, "none"), []),
        (("o", EACH), "left out"),
        (("none", EACH, "a"), "left out"),
    ],
)
def test_a_path_leads_to_one_item_or_to_all(steps: tuple[Step, ...], found: object) -> None:
    assert value(Path(Root.DATA, steps, optional=True), LISTS) == found


def test_null_is_there() -> None:
    assert value(at("$.data.none", optional=True)) is None


@pytest.mark.parametrize("field", ["target", "target.id", "causation_id", "extra", "extra.a"])
def test_metadata_that_an_event_does_not_have_is_absent(field: str) -> None:
    assert value(at(f"$.metadata.{field}"), BARE) is None
    assert value(at(f"$.metadata.{field}", optional=True), BARE) == "left out"


def test_the_whole_metadata_is_what_a_read_shows() -> None:
    assert value(at("$.metadata"), BARE) == {
        "actor": {"type": "user", "id": "global"},
        "target": None,
        "timestamp": 1700000007.123,
        "correlation_id": "c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c0c0",
        "causation_id": None,
        "extra": None,
    }


def test_extra_comes_as_it_was_sent_or_not_at_all() -> None:
    handler = (Set(("extra",), at("$.metadata.extra")),)
    for stored, shown in ((b'{"a" : 1.10}', b'{"a" : 1.10}'), (b"{", b"null"), (b"[" * 99_999, b"null")):
        event = recorded(1, b"{}", extra=stored)
        assert fold(EMPTY, [event], lambda _: handler).data_json == b'{"extra":%b}' % shown


def test_a_path_into_data_that_is_no_object_finds_nothing() -> None:
    assert value(at("$.data.a", optional=True), recorded(1, b"[1]")) == "left out"
    assert value(at("$.data"), recorded(1, b" [1 ]")) == [1]


def test_the_state_is_seen_as_the_operations_before_left_it() -> None:
    handler = (
        Set(("a",), Constant("x")),
        Set(("b", "c"), Path(Root.STATE, ("a",))),
        Set(("d",), Path(Root.STATE, ("b",))),
        Set(("e",), Path(Root.STATE, ("none",), optional=True)),
    )
    assert folded(b"{}", by=handler).data_json == b'{"a":"x","b":{"c":"x"},"d":{"c":"x"}}'


def test_constants_stand_for_themselves() -> None:
    constants = ('a\u00e9\n"', 1, -2.5, 2**80, True, False, None)
    assert value(ListTemplate(tuple(map(Constant, constants)))) == list(constants)


def test_what_holds_an_absent_optional_path_is_left_out() -> None:
    absent = at("$.data.x", optional=True)
    assert value(ObjectTemplate((("a", Constant(1)), ("b", absent), ("c", at("$.data.x"))))) == {
        "a": 1,
        "c": None,
    }
    assert value(ListTemplate((Constant(1), absent, Constant(2)))) == [1, 2]
    assert value(MergeTemplate((ObjectTemplate((("a", absent),)), absent))) == {}
    assert value(ListTemplate((ObjectTemplate((("a", absent),)), ListTemplate((absent,))))) == [{}, []]


def test_merge_makes_one_object_of_all_fields_the_later_winning() -> None:
    first = ObjectTemplate((("a", Constant(1)), ("b", Constant(2))))
    parts = (first, at("$.data.list"), at("$.data.x"), Constant("text"), at("$.data.a"), at("$.data.a.b"))
    assert value(MergeTemplate(parts)) == {"a": 1, "b": {"c": 1.10}, "c": 1.10}
    assert value(MergeTemplate(())) == {}
    again = (Merge((), MergeTemplate((first, Path(Root.STATE)))),)
    assert folded(b"{}", b"{}", by=again).data_json == b'{"a":1,"b":2}'


# ---- tests in `where` ----

ITEM = Path(Root.ITEM)


def kept(where: Predicate, items: bytes, payload: bytes = b"{}") -> bytes:
    """The items that `where` does not pick."""
    before = folded(items, by=Set(("list",), Path(Root.DATA)))
    after = folded(payload, by=Remove(("list",), where), on=before)
    assert after.errors == ()
    return after.data_json.removeprefix(b'{"list":').removesuffix(b"}")


def is_true(by: Comparison, one: str, other: str) -> bool:
    compare = Compare(by, ITEM, Path(Root.DATA))
    return kept(compare, f"[{one}]".encode(), other.encode()) == b"[]"


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        ("1", "2", "<"),
        ("2", "1.5", ">"),
        ("1", "1.0", "="),
        ("0", "-0", "="),
        ("1e400", "1e401", "<"),
        ("1e400", "1" + "0" * 400, "="),
        ("-1e400", "0", "<"),
        ("1e99999999999999999999", "9" * 5000, ">"),
        ("1e-99999999999999999999", "0", "="),
        ("0.1", "0.10000000000000000001", "<"),
        ("9007199254740993", "9007199254740992.0", ">"),
        ('"a"', '"b"', "<"),
        ('"a"', r'"\u0061"', "="),
        ('"Z"', '"a"', "<"),
        ('"\uffff"', r'"\ud83d\ude00"', "<"),
        ('"10"', '"9"', "<"),
        ("null", "null", "same"),
        ("true", "true", "same"),
        ("true", "1", "other"),
        ("true", "false", "other"),
        ('"1"', "1", "other"),
        ("null", "0", "other"),
        ("[1]", "[1.0]", "same"),
        ("[1]", "[2]", "other"),
        ('{"a":1,"b":2}', '{"b":2, "a":1}', "same"),
        ("[]", "{}", "other"),
    ],
)
def test_values_compare_by_what_they_are(one: str, other: str, order: str) -> None:
    c = Comparison
    assert {by for by in c if by not in (c.IN, c.NOT_IN) and is_true(by, one, other)} == {
        "<": {c.NOT_EQUALS, c.LT, c.LTE},
        ">": {c.NOT_EQUALS, c.GT, c.GTE},
        "=": {c.EQUALS, c.LTE, c.GTE},
        "same": {c.EQUALS},
        "other": {c.NOT_EQUALS},
    }[order]


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("1", "[2,1.0]", True),
        ('"a"', r'["\u0061"]', True),
        ("[1]", "[[1]]", True),
        ("true", "[true]", True),
        ("1", "[true]", False),
        ("1", "[]", False),
        ("1", "1", False),
        ("true", "true", False),
        ("null", "null", False),
        ('"a"', '"abc"', False),
        ('"a"', '{"a":1}', False),
    ],
)
def test_in_looks_for_an_equal_item_of_a_list(one: str, other: str, found: bool) -> None:
    assert is_true(Comparison.IN, one, other) is found
    assert is_true(Comparison.NOT_IN, one, other) is not found


def test_remove_where_keeps_the_other_items_as_they_were_sent() -> None:
    where = Compare(Comparison.EQUALS, Path(Root.ITEM, ("sku",)), Path(Root.DATA, ("sku",)))
    items = rb'[{"sku":"A", "n":1.10},{"sku":"\u0042"},7,{"sku" : "C"}]'
    assert kept(where, items, b'{"sku":"B"}') == rb'[{"sku":"A", "n":1.10},7,{"sku" : "C"}]'
    assert kept(where, b"[ 1 ]", b'{"sku":"B"}') == b"[ 1 ]"
    assert kept(where, b"[]", b'{"sku":"B"}') == b"[]"


def test_remove_where_fits_only_lists() -> None:
    where = Exists(ITEM)
    for target, error in (
        (("text",), "`text` is a string, not a list."),
        (("text", "a"), "`text` is a string, which has no fields."),
        ((), "The whole state is an object, not a list; name a field of it."),
    ):
        [found] = folded(b"{}", by=(Set(("text",), Constant("")), Remove(target, where))).errors
        assert found.error == error
    assert folded(b"{}", by=(Remove(("none",), where), Remove(("a", "b"), where))).data_json == b"{}"


def test_exists_is_true_of_null_and_false_of_what_is_absent() -> None:
    for optional in (True, False):
        where = Exists(Path(Root.ITEM, ("a",), optional))
        assert kept(where, b'[{"a":null},{"a":1},{"b":1},1]') == b'[{"b":1},1]'


def test_an_absent_value_compares_as_null_and_an_absent_optional_one_never() -> None:
    items = b'[{"a":null},{"a":1},{}]'
    for by, with_null, never in (
        (Comparison.EQUALS, b'[{"a":1}]', b'[{"a":1},{}]'),
        (Comparison.NOT_EQUALS, b'[{"a":null},{}]', b'[{"a":null},{}]'),
        (Comparison.NOT_IN, b"[]", b"[{}]"),
    ):
        assert kept(Compare(by, Path(Root.ITEM, ("a",)), Constant(None)), items) == with_null
        assert kept(Compare(by, Path(Root.ITEM, ("a",), optional=True), Constant(None)), items) == never
        assert kept(Compare(by, Constant(None), Path(Root.DATA, ("a",), optional=True)), items) == items


def test_tests_combine() -> None:
    def over(least: int) -> Compare:
        return Compare(Comparison.GT, ITEM, Constant(least))

    items = b"[1,2,3,4]"
    assert kept(All((over(1), Not(over(3)))), items) == b"[1,4]"
    assert kept(Any((over(3), Not(over(1)))), items) == b"[2,3]"
    assert kept(All(()), items) == b"[]"
    assert kept(Any(()), items) == items


def test_an_item_compares_with_values_that_are_made() -> None:
    pair = ListTemplate((Path(Root.ITEM, ("a",)), Path(Root.DATA, ("b",))))
    where = Compare(Comparison.EQUALS, pair, ListTemplate((Constant(1), Constant(2))))
    assert kept(where, b'[{"a":1},{"a":2}]', b'{"b":2.0}') == b'[{"a":2}]'
    state = Compare(Comparison.IN, ITEM, Path(Root.STATE, ("list",)))
    handler = (Append(("list",), Path(Root.DATA)), Remove(("list",), state))
    assert folded(b"1", b"2", by=handler).data_json == b'{"list":[]}'
