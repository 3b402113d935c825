"""What a new spec takes away."""

from __future__ import annotations

from spec.changes import Removal, Reread, rechecked, references, removals, reread, takings
from spec.model import Spec
from spec.parse import parse


def made(types: dict[str, list[str]], singletons: list[str], agents: list[str]) -> Spec:
    aggregate_types: object = {
        name: {"events": {event: {"schema": {}} for event in events}} for name, events in types.items()
    }
    spec = parse({"aggregate_types": aggregate_types, "agent_types": agents, "singletons": singletons})
    assert isinstance(spec, Spec)
    return spec


OLD = made({"order": ["was_placed", "was_shipped"], "cart": ["was_filled"]}, ["all", "the_clock"], ["user"])


def test_nothing_is_taken_away_by_the_same_spec_or_by_more() -> None:
    more = made(
        {"user": [], "cart": ["was_filled", "was_left"], "order": ["was_shipped", "was_placed"]},
        ["every_one", "the_clock", "all"],
        [],
    )
    assert removals(OLD, OLD) == ()
    assert removals(OLD, more) == ()


def test_types_events_and_singletons_are_named_with_their_places_in_the_old_spec() -> None:
    assert removals(OLD, made({"order": ["was_placed"]}, ["all"], ["user"])) == (
        Removal("event_type", ("order", "was_shipped"), "/aggregate_types/order/events/was_shipped"),
        Removal("aggregate_type", ("cart",), "/aggregate_types/cart"),
        Removal("singleton", ("the_clock",), "/singletons/1"),
    )


def test_another_schema_or_handler_takes_nothing_away() -> None:
    other = parse(
        {
            "aggregate_types": {"a": {"mint": "humane", "events": {"b": {"schema": False, "handler": []}}}},
            "agent_types": [],
        }
    )
    assert isinstance(other, Spec)
    assert removals(made({"a": ["b"]}, [], []), other) == ()


def numbered(key: str | None) -> Spec:
    public_ids = {} if key is None else {"key": key, "types": []}
    spec = parse({"aggregate_types": {}, "agent_types": [], "public_ids": public_ids})
    assert isinstance(spec, Spec)
    return spec


def test_a_new_key_of_public_ids_may_take_the_place_of_one_that_was_given() -> None:
    other = Removal("public_key", ("VNX",), "/public_ids/key")
    assert takings(numbered("VNO"), numbered("VNX"))[0] == other
    assert takings(numbered(None), numbered("VNX"))[0] == other
    assert takings(numbered("VNO"), numbered("VNO")) == ()
    assert takings(numbered("VNO"), numbered(None)) == ()


def hashed(prefix: str | None) -> Spec:
    hash_ids = {} if prefix is None else {"prefix": prefix, "types": []}
    spec = parse({"aggregate_types": {}, "agent_types": [], "hash_ids": hash_ids})
    assert isinstance(spec, Spec)
    return spec


def test_the_key_of_public_ids_is_taken_permanently() -> None:
    first = Removal("public_key", ("VNO",), "/public_ids/key")
    for old in (None, "ABC"):
        assert takings(numbered(old), numbered("VNO")) == (first,)
    assert takings(numbered("VNO"), numbered("VNO")) == takings(numbered("VNO"), numbered(None)) == ()


def test_what_events_may_no_longer_name_is_listed() -> None:
    old = made({}, ["the_clock"], ["user", "service"])
    assert references(old, old) == ()
    assert references(old, made({}, [], ["user"])) == (
        Removal("agent_type", ("service",), "/agent_types"),
        Removal("named_singleton", ("the_clock",), "/singletons/0"),
    )


def typed(schema: object, handler: object = ()) -> Spec:
    spec = parse(
        {
            "aggregate_types": {"a": {"events": {"b": {"schema": schema, "handler": list(handler)}}}},  # type: ignore[call-overload]
            "agent_types": [],
        }
    )
    assert isinstance(spec, Spec)
    return spec


def test_event_types_whose_schema_is_another_are_to_be_checked() -> None:
    one = typed({"const": 1})
    assert rechecked(one, typed({"const": True})) == {"a": ("b",)}
    assert rechecked(one, typed({"const": 1})) == {}
    assert rechecked(one, made({"a": []}, [], [])) == rechecked(one, made({}, [], [])) == {}


def test_what_is_only_read_differently_is_told() -> None:
    one, other = typed(True, [{"set": {"target": "n", "value": 1}}]), typed(True)
    assert reread(one, one) == reread(one, made({}, [], [])) == ()
    assert reread(one, other) == (
        Reread("b has another handler.", "/aggregate_types/a/events/b/handler", "a"),
    )
    (prefix,) = reread(hashed("ab"), hashed("bd"))
    assert (prefix.pointer, prefix.aggregate_type) == ("/hash_ids/prefix", None)
    assert reread(hashed("ab"), hashed(None)) == reread(hashed(None), hashed("ab")) == ()
