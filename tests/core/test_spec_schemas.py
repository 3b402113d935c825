"""What a schema refuses in data: the first violation, where it is, and never late."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spec.errors import Faults
from spec.model import EventType, SchemaViolation, Spec
from spec.parse import parse
from spec.patterns import breadth
from spec.subschemas import places

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault


def event(schema: object) -> EventType:
    events = {"b": {"schema": schema}}
    spec = parse({"aggregate_types": {"a": {"events": events}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    return spec.aggregate_types["a"].events["b"]


def path(schema: object, data: object) -> str:
    found = event(schema).violation(data)
    assert found is not None
    return found.path


@pytest.mark.parametrize(
    ("schema", "data", "where"),
    [
        ({"required": ["email"]}, {}, "email"),
        ({"required": ["b", "a"]}, {}, "b"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b"),
        ({"additionalProperties": False}, {"x": 1}, "x"),
        ({"properties": {"x": False}}, {"x": 1}, "x"),
        ({"patternProperties": {"^x": False}}, {"y": 1, "xy": 1}, "xy"),
        (
            {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": {"type": "null"}},
            {"xy": 1},
            "xy",
        ),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xy": 1, "y": 1}, "y"),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"ok": 1, "No": 1}, "No"),
        ({"type": "object"}, [], ""),
        ({"type": "object"}, None, ""),
        ({"properties": {"a": {"properties": {"b": {"type": "string"}}}}}, {"a": {"b": 1}}, "a.b"),
        (
            {"properties": {"items": {"items": {"required": ["sku"]}}}},
            {"items": [{"sku": 1}, {}, {}]},
            "items[1].sku",
        ),
        ({"items": {"items": {"type": "integer"}}}, [[1], [1, 2, "x"]], "[1][2]"),
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}]}, ["a", "b"], "[1]"),
        ({"prefixItems": [True], "items": False}, [1, 2], "[1]"),
        ({"prefixItems": [True]}, [1, 2], None),
        ({"allOf": [True, {"required": ["a"]}]}, {}, "a"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {"type": "null"}}}}}, {"a": 1}, "a"),
        ({"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x", "required": ["a"]}}}, {}, "a"),
        (
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
            {"a": 1},
            "b",
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}, {}, "c"),
        ({"if": True, "then": {"required": ["a"]}}, {}, "a"),
        ({"if": False, "then": {"required": ["a"]}, "not": {}}, {}, ""),
        ({"anyOf": [True], "oneOf": [True], "propertyNames": {"const": "a"}}, {"b": 1}, "b"),
        ({"dependentSchemas": {"a": False}, "propertyNames": True, "not": {}}, {"b": 1}, ""),
        ({"dependentSchemas": {"x": False, "a": {"required": ["b"]}}}, {"a": 1}, "b"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, ""),
        (
            {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "null"}}}]},
            {"a": 1},
            "a",
        ),
        ({"oneOf": [{"type": "null"}, {"items": {"type": "string"}, "type": "array"}]}, [1], "[0]"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, ""),
        ({"properties": {"n": {"not": {"const": 1}}}}, {"n": 1}, "n"),
        ({"properties": {"l": {"contains": {"type": "null"}}}}, {"l": [1]}, "l"),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, {"b": 1}, ""),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], ""),
        ({"properties": {"odd.name": {"type": "null"}}}, {"odd.name": 1}, '["odd.name"]'),
        ({"properties": {"": {"items": {"type": "null"}}}}, {"": [1]}, '[""][0]'),
        ({"properties": {"a/b~c%": {"type": "null"}}}, {"a/b~c%": 1}, "a/b~c%"),
        (False, {"a": 1}, ""),
        ({"items": False}, [1], "[0]"),
        (True, {"anything": [1]}, None),
    ],
)
def test_a_violation_names_its_place(schema: object, data: object, where: str | None) -> None:
    found = event(schema).violation(data)
    assert (None if found is None else found.path) == where


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        ({"required": ["a"]}, {}, "This property is required."),
        ({"additionalProperties": False}, {"a": 1}, "The schema does not allow this property."),
        ({"items": False}, [1], "The schema allows no value here."),
        (False, 1, "The schema allows no value here."),
        ({"type": "string"}, 1, 'This value is not of type "string".'),
        ({"maximum": 3}, 4, "This value is greater than the maximum of 3."),
        ({"enum": ["a", "b"]}, "c", 'This value is not one of "a" or "b".'),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, 3, "This value fits none of the 2 schemas of `anyOf`."),
        ({"oneOf": [True, True, False]}, 3, "This value fits 2 of the schemas of `oneOf`, not exactly one."),
        ({"not": True}, 3, "This value is one that the schema excludes by `not`."),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "The schema does not allow this property's name."),
        ({"contains": {"const": 1}}, [], "This value does not satisfy `contains`."),
    ],
)
def test_a_message_is_a_sentence_about_what_is_needed(schema: object, data: object, message: str) -> None:
    found = event(schema).violation(data)
    assert found is not None
    assert found.message == message


def test_a_path_continues_where_the_data_stands() -> None:
    assert SchemaViolation("", "").under("data") == "data"
    assert SchemaViolation("a.b", "").under("data") == "data.a.b"
    assert SchemaViolation("[1].b", "").under("events[0].data") == "events[0].data[1].b"


def test_what_a_value_is_comes_before_its_parts_and_parts_in_the_order_of_the_data() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["c"],
        "additionalProperties": False,
    }
    assert path(schema, {"x": 1, "b": 1, "a": 1}) == "c"
    assert (
        path(schema, {"c": 1, "b": 1, "a": 1}) == "c"
    )  # required, and not allowed: no property of its schema
    schema["properties"]["c"] = True  # type: ignore[index]
    assert path(schema, {"c": 1, "x": 1, "b": 1, "a": 1}) == "x"
    assert path(schema, {"c": 1, "b": 1, "a": 1, "x": 1}) == "b"


def test_a_huge_value_is_never_repeated() -> None:
    huge = "x" * 200_000
    for schema in (
        {"maxLength": 3},
        {"enum": [huge + "y"]},
        {"const": huge + "y"},
        {"pattern": "^a{500}$"},
        {"type": "null"},
    ):
        found = event(schema).violation(huge)
        assert found is not None
        assert len(found.message) <= 301
    found = event({"additionalProperties": False}).violation({huge: 1})
    assert found is not None
    assert len(found.path) < 100


@pytest.mark.parametrize(
    "number",
    [
        Decimal("1.10"),
        Decimal("1e400"),
        Decimal("1e999999999999999999"),
        Decimal("-1e-999999999"),
        10**4_000,
        1.5,
    ],
)
def test_numbers_of_any_size_are_numbers(number: object) -> None:
    assert event({"type": "number"}).violation(number) is None
    assert path({"properties": {"n": {"type": "string"}}}, {"n": number}) == "n"
    assert event({"enum": [1]}).violation(number) is not None


def test_an_integer_of_more_digits_than_python_converts_is_refused_like_any_other() -> None:
    long = Decimal("9" * 4_301)
    required = {"properties": {"n": {"maximum": 10}}, "required": ["a", "b"]}
    for schema, data, where, message in (
        ({"properties": {"n": {"type": "integer", "maximum": 10}}}, {"n": long}, "n", "`maximum`"),
        ({"properties": {"n": {"type": "string"}}}, {"n": long}, "n", "`type`"),
        ({"uniqueItems": True}, [long, long], "", "`uniqueItems`"),
        (required, {"n": long, "a": 1}, "b", "required"),
        ({"minProperties": 1} | required, {"n": long}, "a", "required"),
        ({"anyOf": [{"type": "null"}, {"properties": {"n": {"const": 1}}}]}, {"n": long}, "n", "`const`"),
    ):
        found = event(schema).violation(data)
        assert found is not None
        assert (found.path, message in found.message) == (where, True), found
    assert event({"properties": {"n": {"minimum": 10}}}).violation({"n": long}) is None


def test_decimals_are_checked_exactly() -> None:
    cents = event({"multipleOf": 0.01})
    assert cents.violation(Decimal("1234567890123456789.07")) is None
    assert cents.violation(Decimal("1234567890123456789.071")) is not None


def test_format_is_an_annotation() -> None:
    assert event({"format": "email"}).violation("no address") is None


def nested(bottom: object, depth: int) -> Any:
    for _ in range(depth):
        bottom = {"a": bottom}
    return bottom


@pytest.mark.timeout(20)
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("bottom", [1, "bad"])
def test_a_recursive_schema_takes_no_more_time_for_deeper_data(keyword: str, bottom: object) -> None:
    # The validator's own search for errors would take 2**60 steps.
    branch = {"type": ["number", "object"], "properties": {"a": {"$ref": "#/$defs/n"}}}
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {keyword: [branch, dict(branch)]}}}
    found = event(schema).violation(nested(bottom, 60))
    assert (found is None) == (bottom == 1 and keyword != "oneOf")


@pytest.mark.timeout(20)
def test_a_regular_expression_takes_linear_time() -> None:
    assert event({"pattern": "^(a+)+$"}).violation("a" * 100_000 + "b") is not None
    assert event({"pattern": "^(a|a)*$"}).violation("a" * 100_000 + "b") is not None


@pytest.mark.timeout(20)
def test_a_wide_document_is_refused_at_its_first_fault() -> None:
    assert path({"items": {"type": "string"}}, [1] * 100_000) == "[0]"


def test_a_circle_through_the_search_ends() -> None:
    # Both branches of `n` are for objects, and one leads back to `n` by way of the property.
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {
            "n": {
                "type": "object",
                "anyOf": [
                    {"required": ["k"], "properties": {"a": {"$ref": "#/$defs/n"}}},
                    {"allOf": [{"$ref": "#/$defs/m"}]},
                ],
            },
            "m": {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["z"]},
        },
    }
    assert path(schema, {"a": {}}) == "z"
    assert path(schema, {"a": {}, "z": 1}) == "a.z"


ATOMS: list[Any] = [
    True,
    False,
    {"type": "string"},
    {"type": "object"},
    {"type": ["null", "array"]},
    {"const": 1},
    {"required": ["a"]},
    {"maxProperties": 1},
    {"minItems": 1},
    {"$ref": "#/$defs/x"},
]
schemas = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            "propertyNames": st.just({"const": "a"}),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from("ab"), inner, max_size=1),
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        },
    ),
    max_leaves=8,
)
instances = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", "b"]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner)),
    max_leaves=8,
)


def parents(where: str) -> set[str]:
    steps = where.replace("[", ".[").split(".")
    return {"".join(steps[:n]) for n in range(len(steps) + 1)}


@calm
@given(schemas, schemas, instances)
def test_a_violation_is_found_exactly_when_the_validator_refuses(
    schema: Any, shared: Any, data: object
) -> None:
    whole = {"allOf": [schema], "$defs": {"x": {"properties": {"a": shared}}}}
    found = parse({"aggregate_types": {"a": {"events": {"b": {"schema": whole}}}}, "agent_types": []})
    assume(isinstance(found, Spec))
    assert isinstance(found, Spec)
    violation = found.aggregate_types["a"].events["b"].violation(data)
    errors = [*jsonschema_rs.Draft202012Validator(whole, offline=True).iter_errors(data)]
    assert (violation is None) == (not errors)
    if violation is not None:
        assert violation == found.aggregate_types["a"].events["b"].violation(json.loads(json.dumps(data)))
        assert violation.message.endswith(".")


@calm
@given(schemas)
def test_every_place_of_a_schema_can_be_asked(schema: Any) -> None:
    found = places(schema)
    validators = jsonschema_rs.validator_map_for({"allOf": [schema], "$defs": {"x": {}}}, offline=True)
    assert {"#/allOf/0" + place for place in found.schemas} <= set(validators.keys())


def test_what_stands_in_place_of_a_schema_and_is_none_is_no_place() -> None:
    schema: dict[str, object] = {"allOf": [True, 1], "properties": {"a": {}, "b": 1}, "not": 1, "$defs": 1}
    assert sorted(places(schema).schemas) == ["", "/allOf/0", "/properties/a"]


def test_a_schema_that_reaches_outside_is_refused_before_anything_is_asked() -> None:
    for reference in ("http://127.0.0.1:9/x", "file:///etc/hostname", "//x/y", "x.json"):
        event_type = {"schema": {"properties": {"a": {"$ref": reference}}}}
        found = parse({"aggregate_types": {"a": {"events": {"b": event_type}}}, "agent_types": []})
        assert isinstance(found, Faults)
        assert [fault.code for fault in found] == ["remote_ref"]


# ---- how much work it is ----


def weight(schema: object) -> int:
    return event(schema).compiled.weight


def test_a_schema_weighs_what_one_value_is_compared_with() -> None:
    branches = [{"type": "object", "properties": {"a": {"const": n}}} for n in range(100)]
    assert weight(True) == weight({"type": "object"}) == 5
    assert weight({"items": {"anyOf": branches}}) > 200
    assert weight({"items": {"allOf": [{"not": {"const": n}} for n in range(100)]}}) > 200
    assert weight({"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": branches}}}) > 200


def test_constants_that_are_looked_up_weigh_nothing_and_others_are_compared_one_by_one() -> None:
    texts = [f"v{n}" for n in range(1000)]
    assert weight({"enum": texts}) == weight({"enum": [*range(1000)]}) == 5
    assert weight({"anyOf": [{"const": text} for text in texts]}) == 5
    assert weight({"enum": [1, *texts]}) > 1000
    assert weight({"enum": [{"a": [n]} for n in range(1000)]}) > 3000
    assert weight({"const": {"a": [1] * 100}}) > 100
    assert weight({"const": "a"}) == 5


def test_names_that_are_required_and_multiples_weigh_something() -> None:
    assert weight({"required": [f"k{n}" for n in range(800)]}) > 100
    assert weight({"dependentRequired": {f"k{n}": ["a"] for n in range(800)}}) > 100
    assert weight({"multipleOf": 0.01}) > 5


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("", 0),
        ("abc", 3),
        (r"^\S{1,255}$", 2),
        (r"^[A-Z]{3}-\d{4}$", 1),
        (r"^[A-Z]{2,5}-\d{4}$", 7),
        ("^[a-z0-9]+(?:-[a-z0-9]+)*$", 3),
        ("^[^@]{1,64}@[^@]{1,255}$", 320),
        ("(.{0,500}a.{0,500}b)c", 1003),
        ("(?:a|b)*a(?:a|b){16}", 35),
        ("^(?:a{1,3}){1,500}$", 1500),
        ("^(?:a|aa){500}$", 1500),
        ("^a*a{500}$", 502),
        ("^(?:ab){3,}a{500}$", 502),
        ("^a|b", 2),
        ("^{0}a{500}", 500),
        (r"\p{L}{400}\x{1F}", 401),
        ("(?i)ab", 2),
        ("(?P<n>a){5}", 5),
        ("[]](.{9})]", 12),
        ("a{0}b{}", 2),
        (")(", 1),
    ],
)
def test_a_character_is_compared_with_so_many_places_of_a_pattern(pattern: str, places: int) -> None:
    assert breadth(pattern) == places


def test_a_pattern_weighs_by_its_places() -> None:
    wide = "(.{0,500}a.{0,500}b)c"
    assert weight({"pattern": r"^\S{1,255}$"}) == 5
    assert weight({"pattern": wide}) > 3000
    assert weight({"patternProperties": {wide: True, "^a": True}}) > 3000


@pytest.mark.parametrize(
    "constants", [[1, 2.5], ["a", "b"], [1, "a", None], [True, 0], [2**70, 1.0], [1e300]]
)
def test_a_choice_among_constants_means_the_same_however_it_is_checked(constants: list[object]) -> None:
    choice = event({"anyOf": [{"const": each} for each in constants]})
    values = [0, 1, 1.0, -0.0, "1", "a", "b", None, True, False, 2**70, 2.5, Decimal("1e400"), [1], {"a": 1}]
    for value in values:
        fits = any(event({"const": each}).violation(value) is None for each in constants)
        found = choice.violation(value)
        assert (found is None) is fits, value
        if found is not None:
            assert found.message == f"This value fits none of the {len(constants)} schemas of `anyOf`."


def test_a_choice_that_is_more_than_constants_stays_as_it_is() -> None:
    assert path({"anyOf": [{"const": 1}, {"const": 2}], "enum": [2, 3]}, 3) == ""
    assert event({"anyOf": [{"const": 1}, {"const": 2}], "enum": [2, 3]}).violation(2) is None
    pointed = {"properties": {"a": {"$ref": "#/anyOf/1"}}, "anyOf": [{"const": 1}, {"const": {"a": 2}}]}
    assert event(pointed).violation({"a": 2}) is not None
    pointed = {
        "properties": {"a": {"$ref": "#/properties/b/anyOf/1"}, "b": {"anyOf": [{"const": 1}, {"const": 2}]}}
    }
    assert path(pointed, {"a": 1}) == "a"
    assert path(pointed, {"a": 2, "b": 3}) == "b"


def test_a_text_is_light_by_its_length_or_by_its_values() -> None:
    plain, heavy = event({"type": "object"}), event({"anyOf": [{"not": {"const": n}} for n in range(2000)]})
    assert plain.is_light(b"[" + b"1," * 3_000 + b"1]")
    assert not plain.is_light(b"[" + b"1," * 30_000 + b"1]")
    assert plain.is_light(b'"' + b"x" * 200_000 + b'"')
    assert not plain.is_light(b'"' + b"x" * 900_000 + b'"')
    assert heavy.is_light(b"{}")
    assert not heavy.is_light(b"[" + b" " * 20 + b"]"), "finding words for a violation takes long by itself"
    assert plain.compiled.work(b"[1,2,3]") == 5 * 4
