"""Parsing is total: any bytes, any text and any value give a spec or its faults, within bounds."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from spec.document import DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX
from spec.errors import CODES, FAULTS_MAX, Fault, Faults
from spec.model import DEFAULT_HANDLER, Spec
from spec.parse import parse

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault

ORDERS = json.loads((files("spec") / "examples" / "orders.json").read_bytes())

WORDS = [
    "spec",
    "aggregate_types",
    "agent_types",
    "target_types",
    "singletons",
    "webhooks",
    "events",
    "mint",
    "schema",
    "handler",
    "order",
    "was_placed",
    "set",
    "merge",
    "append",
    "append_unique",
    "remove",
    "increment",
    "decrement",
    "target",
    "value",
    "where",
    "equals",
    "and",
    "not",
    "exists",
    "$merge",
    "$literal",
    "$",
    "$ref",
    "$defs",
    "$id",
    "$anchor",
    "$dynamicRef",
    "properties",
    "items",
    "allOf",
    "anyOf",
    "type",
    "pattern",
    "additionalProperties",
    "patternProperties",
    "enum",
    "const",
    "required",
    "format",
]
keywords = st.sampled_from(WORDS)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    keywords,
    st.sampled_from(
        ["$.data", "$.data.a?", "@.b", "#", "#/$defs/order", "object", "string", "(", "global", ""]
    ),
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(keywords, st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=25,
)
schemas = st.recursive(
    st.one_of(
        st.booleans(),
        st.fixed_dictionaries({"type": st.sampled_from(["object", "string", "nothing"])}),
        st.fixed_dictionaries({"$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#x", "http://x/"])}),
        json_values,
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "$defs": st.dictionaries(st.sampled_from("ab"), inner),
            "properties": st.dictionaries(st.sampled_from(["a", "b", "a/b~", "é%", ""]), inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "(", "\\p{L}"]), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "$anchor": st.just("x"),
        },
    ),
    max_leaves=8,
)


def around(schema: object, handler: object) -> object:
    event = {"schema": schema, "handler": handler}
    return {"aggregate_types": {"order": {"events": {"was_placed": event}}}, "agent_types": []}


documents = st.one_of(
    json_values, st.builds(around, schemas, st.just([])), st.builds(around, st.just({}), json_values)
)


def check_outcome(outcome: Spec | Faults) -> None:
    if isinstance(outcome, Faults):
        assert outcome
        assert {fault.code for fault in outcome} <= CODES.keys()
        assert all(fault.pointer == "" or fault.pointer.startswith("/") for fault in outcome)
        assert all(len(fault.error) < 500 for fault in outcome)


@calm
@given(documents)
def test_any_value_is_a_spec_or_faults(document: object) -> None:
    check_outcome(parse(document))


@calm
@given(documents)
def test_a_value_and_its_text_are_parsed_alike(document: object) -> None:
    assume(not isinstance(document, str))  # a str is text already
    try:
        text = json.dumps(document, allow_nan=False)
    except ValueError:
        return
    assert parse(text) == parse(text.encode()) == parse(json.loads(text))


@calm
@given(st.one_of(st.binary(), st.text()))
@example(b"")
@example("\ud800")
@example(b"[" * 100_000)
@example(b'{"a":' * 50_000)
@example(b"\xef\xbb\xbf{}")
@example("1" * 5_000)
@example("-1e400")
def test_any_text_is_a_spec_or_faults(text: bytes | str) -> None:
    check_outcome(parse(text))


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, {"a": {1, 2}}, float("nan"), Decimal("1e999"), b"x" * 3, {"a\ud800": 1}, [b"x"]],
)
def test_a_value_that_is_no_json_is_a_fault(value: object) -> None:
    found = parse(value)
    assert isinstance(found, Faults)
    assert {fault.code for fault in found} == {"invalid_json"}


@pytest.mark.parametrize("text", [b"\xff", b'{"a": "\xc3"}', "{", "NaN", "-Infinity", "1" * 5_000])
def test_a_text_that_is_no_json_is_a_fault(text: bytes | str) -> None:
    found = parse(text)
    assert isinstance(found, Faults)
    assert [(fault.code, fault.pointer) for fault in found] == [("invalid_json", "")]


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_has_at_most_4300_digits(sign: str) -> None:
    text = '{"aggregate_types": {}, "agent_types": [], "x": %s}'
    found = parse(text % (sign + "1" * 4_301))
    assert isinstance(found, Faults)
    assert "has 4301 digits, and 4300 are the most" in found[0].error
    found = parse(text % (sign + "1" * 4_300))
    assert isinstance(found, Faults)
    assert [fault.code for fault in found] == ["unknown_key"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_named(encoding: str) -> None:
    found = parse('{"aggregate_types": {}}'.encode(encoding))
    assert isinstance(found, Faults)
    assert [fault.code for fault in found] == ["invalid_json"]
    assert "byte order mark" in found[0].error


@pytest.mark.parametrize("text", ["[" * 100_000, b'{"a":' * 50_000])
def test_a_text_that_is_deeper_than_python_reads_is_too_deep(text: bytes | str) -> None:
    found = parse(text)
    assert isinstance(found, Faults)
    assert [(fault.code, fault.pointer) for fault in found] == [("too_deep", "")]


def test_a_key_that_is_no_text_is_one_fault_however_often_it_is_there() -> None:
    found = parse('{"agent_types": [], "\\ud800": 1, "\\ud800": 2}')
    assert isinstance(found, Faults)
    assert [(fault.code, fault.pointer) for fault in found] == [("invalid_json", "")]


def test_a_value_that_holds_itself_is_too_deep() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert isinstance(found := parse(loop), Faults)
    assert found[0].code == "too_deep"


def test_the_deepest_document_is_read() -> None:
    deep = json.loads("[" * DOCUMENT_DEPTH_MAX + "]" * DOCUMENT_DEPTH_MAX)
    assert isinstance(found := parse(deep), Faults)
    assert {fault.code for fault in found} == {"wrong_type"}
    assert isinstance(found := parse([deep]), Faults)
    assert {fault.code for fault in found} == {"too_deep"}


@pytest.mark.parametrize("character", ["a", "é"])
def test_a_text_over_the_limit_is_too_large(character: str) -> None:
    filler = DOCUMENT_BYTES_MAX // len(character.encode())
    for text in (json.dumps(character * filler, ensure_ascii=False), character * filler + "xx"):
        for given_as in (text, text.encode()):
            assert isinstance(found := parse(given_as), Faults)
            assert [fault.code for fault in found] == ["too_large"]


def test_bytes_of_any_kind_are_text() -> None:
    text = json.dumps(ORDERS).encode()
    assert parse(text) == parse(bytearray(text)) == parse(memoryview(text)) == parse(ORDERS)


def test_a_flood_of_faults_is_cut_and_says_so() -> None:
    found = parse({"aggregate_types": {}, "agent_types": ["BAD"] * 5_000 + ["X"] + [1] * 5_000})
    assert isinstance(found, Faults)
    assert len(found) == FAULTS_MAX + 1
    assert found[-1] == Fault("too_many_faults", "", "There are more than 1000 faults; correct these first.")


def test_exactly_as_many_faults_as_fit_are_all() -> None:
    found = parse({"aggregate_types": {}, "agent_types": [1] * FAULTS_MAX})
    assert isinstance(found, Faults)
    assert len(found) == FAULTS_MAX
    assert {fault.code for fault in found} == {"wrong_type"}


def test_faults_are_sorted_by_place_with_indexes_as_numbers() -> None:
    found = parse({"aggregate_types": {}, "agent_types": [1] * 11, "zzz": 1, "aaa": 1})
    assert isinstance(found, Faults)
    places = [fault.pointer for fault in found]
    assert places == ["/aaa", *(f"/agent_types/{i}" for i in range(11)), "/zzz"]


MISTAKES: list[tuple[tuple[str | int, ...], object, str]] = [
    (("spec", "agent_types", 0), "system_user", "reserved_name"),
    (("spec", "target_types", 1), "Cart", "invalid_name"),
    (("spec", "singletons", 0), "scheduler", "ambiguous_name"),
    (("spec", "aggregate_types", "order", "mint"), "v7", "invalid_value"),
    (
        ("spec", "aggregate_types", "order", "events", "was_paid", "schema", "type"),
        "objekt",
        "invalid_schema",
    ),
    (("spec", "aggregate_types", "cart", "events", "was_checked_out", "handler"), None, "wrong_type"),
    (
        ("spec", "aggregate_types", "coupon", "events", "was_redeemed", "handler"),
        {"sett": {}},
        "unknown_operation",
    ),
    (("spec", "aggregate_types", "user", "events", "length"), {"schema": {}}, "reserved_name"),
    (("spec", "public_ids"), {"key": "VNO", "types": ["orders"]}, "undeclared"),
    (("spec", "hash_ids"), {"prefix": "BD", "types": ["order"]}, "invalid_value"),
    (("spec", "webhooks"), {"stripe": 7}, "wrong_type"),
    (("spec", "hooks"), {}, "unknown_key"),
]


def put(document: Any, way: tuple[str | int, ...], value: object) -> None:
    for step in way[:-1]:
        document = document[step]
    document[way[-1]] = value


@calm
@given(st.sets(st.integers(0, len(MISTAKES) - 1)))
def test_every_mistake_is_reported_whatever_else_is_wrong(chosen: set[int]) -> None:
    document = json.loads(json.dumps(ORDERS))
    for index in chosen:
        put(document, MISTAKES[index][0], MISTAKES[index][1])
    found = parse(document)
    codes = sorted(fault.code for fault in found) if isinstance(found, Faults) else []
    assert codes == sorted(MISTAKES[index][2] for index in chosen)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("agent_typ", "agent_types"),
        ("singelton", "singletons"),
        ("Webhook", "webhooks"),
        ("hashids", "hash_ids"),
    ],
)
def test_an_unknown_key_comes_with_the_nearest_known_one(key: str, named: str) -> None:
    found = parse({"aggregate_types": {}, "agent_types": [], key: {}})
    assert isinstance(found, Faults)
    assert found[0].error == f'"{key}" is not a known key here. Did you mean "{named}"?'


def test_an_unknown_key_like_no_other_comes_with_all_known_ones() -> None:
    found = parse({"aggregate_types": {"order": {"events": {}, "qqq": 1}}, "agent_types": []})
    assert isinstance(found, Faults)
    assert (
        found[0].error == '"qqq" is not a known key here. '
        "Known here: aliases, events, idempotent_create, identity, list, mint."
    )


def test_a_type_that_is_not_declared_where_none_is_says_so() -> None:
    source = {"provider": "clerk", "secrets": ["whsec_eA=="], "to": {"type": "order", "event": "e"}}
    found = parse({"aggregate_types": {}, "agent_types": [], "webhooks": {"clerk": source}})
    assert isinstance(found, Faults)
    assert '`aggregate_types` has no "order". There is none yet.' in [fault.error for fault in found]


@pytest.mark.parametrize(
    ("schema", "place", "told"),
    [
        ({"pattern": "("}, "pattern", "close every bracket"),
        ({"type": ["string", "string"]}, "type", "none of them twice"),
        ({"$schema": 1}, "$schema", "not of type"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema", "rewrite this one"),
    ],
)
def test_a_fault_of_a_schema_is_told_once_and_says_what_is_wrong(
    schema: dict[str, object], place: str, told: str
) -> None:
    events = {"was_placed": {"schema": schema}}
    found = parse({"aggregate_types": {"order": {"events": events}}, "agent_types": []})
    assert isinstance(found, Faults)
    assert [fault.pointer.rpartition("/")[2] for fault in found] == [place]
    assert told in found[0].error


def test_a_message_repeats_only_the_start_of_a_long_name() -> None:
    found = parse({"aggregate_types": {}, "agent_types": [], "x" * 10_000: {}})
    assert isinstance(found, Faults)
    assert "x" * 59 + "…" in found[0].error
    assert len(found[0].error) < 250


def test_the_spec_is_what_was_declared() -> None:
    spec = parse(ORDERS)
    assert isinstance(spec, Spec)
    assert list(spec.aggregate_types) == list(ORDERS["spec"]["aggregate_types"])
    assert spec.aggregate_types["order"].name == "order"
    assert spec.aggregate_types["order"].mint == spec.aggregate_types["cart"].mint == "uuid"
    assert spec.singleton_list == ("twilio_webhook", "stripe_webhook")
    issued = spec.aggregate_types["coupon"].events["was_issued"]
    assert issued.name == "was_issued"
    assert issued.handler == DEFAULT_HANDLER
    assert issued.schema == ORDERS["spec"]["aggregate_types"]["coupon"]["events"]["was_issued"]["schema"]


def test_a_spec_can_not_be_changed_by_anyone() -> None:
    document = json.loads(json.dumps(ORDERS))
    spec = parse(document)
    assert isinstance(spec, Spec)
    with pytest.raises(TypeError):
        spec.aggregate_types["order"].events["was_lost"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        spec.agent_types = frozenset()  # type: ignore[misc]
    document["spec"]["aggregate_types"]["coupon"]["events"]["was_issued"]["schema"]["type"] = "array"
    assert spec == parse(ORDERS)


def test_an_older_mapping_of_the_environment_is_not_needed() -> None:
    assert parse(ORDERS, {"SLUICE_SECRET_STRIPE": "whsec_x"}) == parse(ORDERS)
