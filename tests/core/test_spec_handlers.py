"""The handler language, as values."""

from __future__ import annotations

from typing import Any

import pytest

from spec import handlers
from spec.errors import Faults
from spec.handlers import (
    EACH,
    All,
    Append,
    AppendUnique,
    Compare,
    Comparison,
    Constant,
    Decrement,
    Exists,
    Handler,
    Increment,
    ListTemplate,
    Merge,
    MergeTemplate,
    Not,
    ObjectTemplate,
    Path,
    Remove,
    Root,
    Set,
    Template,
)
from spec.model import DEFAULT_HANDLER, Spec
from spec.parse import parse

ABSENT: Any = object()


def handler(written: object, schema: object = True) -> Handler:
    event = {"schema": schema} if written is ABSENT else {"schema": schema, "handler": written}
    spec = parse({"aggregate_types": {"a": {"events": {"b": event}}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    return spec.aggregate_types["a"].events["b"].handler


def refused(written: object, schema: object = True) -> list[str]:
    event = {"schema": schema, "handler": written}
    found = parse({"aggregate_types": {"a": {"events": {"b": event}}}, "agent_types": []})
    assert isinstance(found, Faults)
    return [fault.error for fault in found]


def value(written: object) -> Template:
    [operation] = handler({"set": {"target": "t", "value": written}})
    assert isinstance(operation, Set)
    return operation.value


def where(written: object) -> handlers.Predicate | None:
    [operation] = handler({"remove": {"target": "t", "where": written}})
    assert isinstance(operation, Remove)
    return operation.where


def test_without_a_handler_the_data_is_merged_into_the_state() -> None:
    assert handler(ABSENT) == DEFAULT_HANDLER == (Merge((), Path(Root.DATA)),)
    assert handler([{"merge": {"target": "", "value": "$.data"}}]) == DEFAULT_HANDLER


def test_an_empty_handler_does_nothing() -> None:
    assert handler([]) == ()


def test_one_operation_needs_no_list() -> None:
    assert handler({"increment": {"target": "n"}}) == handler([{"increment": {"target": "n"}}])


@pytest.mark.parametrize(
    ("written", "operation"),
    [
        ({"set": {"target": "a.b", "value": 1}}, Set(("a", "b"), Constant(1))),
        ({"merge": {"target": "a", "value": {}}}, Merge(("a",), ObjectTemplate(()))),
        ({"append": {"target": "a", "value": None}}, Append(("a",), Constant(None))),
        ({"append_unique": {"target": "a", "value": "x"}}, AppendUnique(("a",), Constant("x"))),
        ({"remove": {"target": ""}}, Remove(())),
        ({"remove": {"target": "a.b"}}, Remove(("a", "b"), None)),
        ({"increment": {"target": "a"}}, Increment(("a",), Constant(1))),
        ({"increment": {"target": "a", "value": 2.5}}, Increment(("a",), Constant(2.5))),
        (
            {"decrement": {"target": "a", "value": "$.data.n?"}},
            Decrement(("a",), Path(Root.DATA, ("n",), True)),
        ),
    ],
)
def test_each_operation_is_a_value(written: object, operation: handlers.Operation) -> None:
    assert handler([written]) == (operation,)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("$.data", Path(Root.DATA)),
        ("$.data?", Path(Root.DATA, (), True)),
        ("$.data.a.b", Path(Root.DATA, ("a", "b"))),
        ("$.data.a.b?", Path(Root.DATA, ("a", "b"), True)),
        ("$.metadata.timestamp", Path(Root.METADATA, ("timestamp",))),
        ("$.metadata.actor.id", Path(Root.METADATA, ("actor", "id"))),
        ("$.metadata.extra.a.b", Path(Root.METADATA, ("extra", "a", "b"))),
        ("$.key", Path(Root.KEY)),
        ("$.type", Path(Root.TYPE)),
        ("@", Path(Root.STATE)),
        ("@.a.b?", Path(Root.STATE, ("a", "b"), True)),
        ("@.list[0].a", Path(Root.STATE, ("list", 0, "a"))),
        ("$.data[-2][3]?", Path(Root.DATA, (-2, 3), True)),
        ("@.list[*].a", Path(Root.STATE, ("list", EACH, "a"))),
        ({"$": "$.data.a"}, Path(Root.DATA, ("a",))),
    ],
)
def test_each_path_is_a_value(written: object, path: Path) -> None:
    assert value(written) == path


def test_templates_nest() -> None:
    assert value({"a": ["$.key", {"b": True}], "c": {"$merge": ["$.data", {"d": 1}]}}) == ObjectTemplate(
        (
            ("a", ListTemplate((Path(Root.KEY), ObjectTemplate((("b", Constant(True)),))))),
            ("c", MergeTemplate((Path(Root.DATA), ObjectTemplate((("d", Constant(1)),))))),
        )
    )


def test_a_literal_holds_no_paths() -> None:
    assert value({"$literal": "$.data"}) == Constant("$.data")
    assert value({"$literal": {"$": ["@", None]}}) == ObjectTemplate(
        (("$", ListTemplate((Constant("@"), Constant(None)))),)
    )


def test_within_where_the_item_is_meant_and_the_state_again_after_it() -> None:
    at = Path(Root.ITEM, ("sku",))
    assert where({"equals": ["@.sku", "$.data.sku"]}) == Compare(
        Comparison.EQUALS, at, Path(Root.DATA, ("sku",))
    )
    assert where({"exists": "@.sku"}) == Exists(at)
    [_, after] = handler(
        [{"remove": {"target": "l", "where": {"exists": "@"}}}, {"set": {"target": "t", "value": "@.sku"}}]
    )
    assert after == Set(("t",), Path(Root.STATE, ("sku",)))


@pytest.mark.parametrize("comparison", list(Comparison))
def test_each_comparison_is_a_test(comparison: Comparison) -> None:
    assert where({str(comparison): [1, [2]]}) == Compare(
        comparison, Constant(1), ListTemplate((Constant(2),))
    )


def test_tests_combine() -> None:
    exists = Exists(Path(Root.ITEM))
    assert where({"and": [{"exists": "@"}, {"not": {"exists": "@"}}]}) == All((exists, Not(exists)))
    assert where({"or": []}) == handlers.Any(())


def test_a_misspelt_operation_comes_with_the_nearest_one() -> None:
    assert refused({"apend": {}}) == ['There is no "apend". Did you mean "append"?']
    assert refused({"remove": {"target": "l", "where": {"equal": [1, 1]}}}) == [
        'There is no "equal". Did you mean "equals"?'
    ]
    assert refused({"set": {"target": "t", "value": {"$mrge": []}}}) == [
        '"$mrge" is not a template. Did you mean "$merge"?'
    ]


def test_a_string_that_starts_like_a_path_is_told_how_to_be_a_string() -> None:
    [error] = refused({"set": {"target": "t", "value": "@alice"}})
    assert error.endswith('A string is `{"$literal": …}`.')


@pytest.mark.parametrize(
    ("schema", "path", "part"),
    [
        (
            {"properties": {"total": {}}, "additionalProperties": False},
            "$.data.totl",
            'no "totl" in `$.data`',
        ),
        ({"type": "array"}, "$.data.a", "`$.data` is no object"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "$.data.a.b?", "`$.data.a` is no object"),
        ({"additionalProperties": {"additionalProperties": False}}, "$.data.x.y", 'no "y" in `$.data.x`'),
    ],
)
def test_a_path_that_the_schema_rules_out_is_a_fault_that_says_why(
    schema: object, path: str, part: str
) -> None:
    [error] = refused({"set": {"target": "t", "value": path}}, schema)
    assert part in error


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": ["object", "null"], "properties": {"a": {}}},
        {"patternProperties": {"^a": {}}, "additionalProperties": False},
        {"$ref": "#/$defs/x", "$defs": {"x": {"additionalProperties": False}}},
        {"anyOf": [{"additionalProperties": False}]},
        {"additionalProperties": True},
        {"properties": {"a": True}},
    ],
)
def test_a_path_that_the_schema_leaves_open_is_fine(schema: object) -> None:
    handler({"set": {"target": "t", "value": "$.data.a.b"}}, schema)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({}, False),
        ({"handler": [{"set": {"target": "at", "value": "$.metadata.timestamp"}}]}, False),
        ({"handler": [{"set": {"target": "by", "value": {"who": ["$.metadata.actor.id"]}}}]}, True),
        ({"handler": [{"set": {"target": "of", "value": "$.metadata"}}]}, True),
        ({"handler": [{"if": {"exists": "$.metadata.extra"}, "then": []}]}, True),
        ({"revision": 2, "upcast": {"1": [{"set": {"target": "c", "value": "$.metadata.extra"}}]}}, True),
    ],
)
def test_a_type_tells_which_of_its_events_a_state_takes_metadata_of(event: Any, told: bool) -> None:
    events = {"was_seen": {"schema": True}, "was_done": {"schema": True, **event}}
    spec = parse({"aggregate_types": {"order": {"events": events}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    assert spec.aggregate_types["order"].folds_metadata == ({"was_done"} if told else set())
    assert spec.aggregate_types["order"].folds_apart == ({"was_done"} if event else set())


@pytest.mark.parametrize(
    "event",
    [
        {"revision": 2, "upcast": {"1": []}},
        {"handler": []},
        {"handler": [{"merge": {"target": "a", "value": "$.data"}}]},
        {"handler": [{"merge": {"target": "", "value": "$.data"}}, {"set": {"target": "a", "value": 1}}]},
    ],
)
def test_only_events_that_merge_their_data_as_stored_are_not_folded_apart(event: Any) -> None:
    merge = {"handler": [{"merge": {"target": "", "value": "$.data"}}]}
    events = {"was_seen": {"schema": True, **merge}, "was_done": {"schema": True, **event}}
    spec = parse({"aggregate_types": {"order": {"events": events}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    assert spec.aggregate_types["order"].folds_apart == {"was_done"}


def test_a_conditional_without_its_test_is_named() -> None:
    assert refused({"conditional": {"then": []}}) == ["`conditional` needs an `if`."]
