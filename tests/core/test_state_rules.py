"""Rules, judged on the state just before their event."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.events import Recorded, Stream
from gateway.state import AT_ONCE_LOOKS, EMPTY, Folded, TakesLong, fold
from gateway.state.rules import COMPARED_BYTES_MAX, VALUE_CHARS_MAX, Violation, is_light, judge
from spec.errors import Faults
from spec.handlers import Handler
from spec.model import Spec
from spec.parse import parse
from spec.rules import RULES_MAX, Rule
from tests.support.drive import event, new_tenant

STREAM = Stream(new_tenant(), "item", "k")


def declared(rules: object, handler: object = None) -> tuple[Callable[[str], tuple[Rule, ...]], Any]:
    """Rules and handlers of a type whose events `ruled` have these, and whose other ones have none."""
    free: dict[str, Any] = {"schema": True}
    ruled = {"schema": True, "rules": rules} | ({} if handler is None else {"handler": handler})
    spec = parse(
        json.dumps(
            {"aggregate_types": {"item": {"events": {"ruled": ruled, "free": free}}}, "agent_types": []}
        ).encode()
    )
    assert isinstance(spec, Spec), spec
    events = spec.aggregate_types["item"].events

    def handler_of(name: str) -> Handler:
        return events[name].handler

    return lambda name: events[name].rules, handler_of


def recorded(*events: tuple[str, object]) -> tuple[Recorded, ...]:
    return tuple(
        Recorded(STREAM, n, event(type=name, payload=json.dumps(data).encode()))
        for n, (name, data) in enumerate(events, 1)
    )


def sentence(error: str, data: object, state: object = None) -> str:
    rules_of, handler_of = declared([{"require": {"exists": "@.never"}, "error": error}])
    before = EMPTY if state is None else fold(EMPTY, recorded(("free", state)), handler_of)
    verdict = judge(before, recorded(("ruled", data)), rules_of, handler_of)
    assert isinstance(verdict, Violation)
    return verdict.error


def test_values_in_a_sentence_are_texts_as_they_are_and_others_as_json() -> None:
    data = {"t": 'a "text" ✓', "n": 1.10, "o": {"a": [1]}, "z": None}
    said = sentence(
        "{$.data.t}|{$.data.n}|{$.data.o}|{$.data.z}|{@.s}|{$.key}|{@.no}|{@.no?}|{{}}", data, {"s": "x"}
    )
    assert said == 'a "text" ✓|1.1|{"a": [1]}|null|x|k|null||{}'
    assert sentence("{$.data.t}.", {"t": "a" * 1000}) == "a" * VALUE_CHARS_MAX + "…."


def test_events_before_it_in_the_same_append_count() -> None:
    rules_of, handler_of = declared([{"require": {"equals": ["@.n", "$.data.was"]}, "error": "No."}])
    events = recorded(
        ("free", {"n": 1}), ("free", {"n": 2}), ("ruled", {"was": 2, "n": 3}), ("ruled", {"was": 3})
    )
    after = judge(EMPTY, events, rules_of, handler_of)
    assert isinstance(after, Folded)
    assert (after.length, json.loads(after.data_json)) == (4, {"n": 3, "was": 3})
    assert judge(
        EMPTY, recorded(("free", {"n": 1}), ("ruled", {"was": 2})), rules_of, handler_of
    ) == Violation(1, 0, "No.")


def test_a_rule_that_can_not_be_judged_does_not_hold() -> None:
    rules_of, handler_of = declared([{"require": {"not_equals": ["@", "$.data"]}, "error": "No."}])
    before = fold(EMPTY, recorded(("free", {"long": "a" * 300_000})), handler_of)
    verdict = judge(before, recorded(("ruled", {})), rules_of, handler_of)
    assert isinstance(verdict, Violation)
    assert verdict.error.startswith("This rule can't be judged. A value of 3000")


def test_a_rule_on_a_state_that_is_too_large_does_not_hold() -> None:
    rules_of, handler_of = declared([{"require": {"not": {"exists": "@.never"}}, "error": "No."}])
    large = fold(EMPTY, recorded(("free", {"a": "x" * 200})), handler_of, bytes_max=100)
    verdict = judge(large, recorded(("ruled", {})), rules_of, handler_of, 100)
    assert isinstance(verdict, Violation)
    assert verdict.error == "This rule can't be judged. At version 1 the state became longer than its limit."
    assert isinstance(judge(large, recorded(("free", {})), rules_of, handler_of, 100), Folded)


def test_an_event_type_has_a_bounded_number_of_rules() -> None:
    rule = {"require": {"exists": "@.a"}, "error": "No."}
    rules_of, _ = declared([rule] * RULES_MAX)
    assert len(rules_of("ruled")) == RULES_MAX
    events = {"ruled": {"schema": True, "rules": [rule] * (RULES_MAX + 1)}}
    faults = parse(json.dumps({"aggregate_types": {"item": {"events": events}}, "agent_types": []}).encode())
    assert isinstance(faults, Faults)
    assert [(each.code, each.pointer) for each in faults] == [
        ("invalid_value", "/aggregate_types/item/events/ruled/rules")
    ]


def test_what_rules_compare_is_bounded_however_many_there_are() -> None:
    part = {"not_in": ["$.data.n", "@.list"]}
    rules_of, handler_of = declared([{"require": {"and": [part] * 50}, "error": "No."}])
    before = fold(EMPTY, recorded(("free", {"list": ["a" * 1_000] * 50})), handler_of)
    one = ("ruled", {"n": 1})
    verdict = judge(before, recorded(one), rules_of, handler_of)
    assert isinstance(verdict, Violation)
    assert verdict.error.startswith("This rule can't be judged. The rules of one append compare at most")
    rules_of, handler_of = declared([{"require": part, "error": "No."}], [])
    assert isinstance(judge(before, recorded(*[one] * 15), rules_of, handler_of), Folded)
    verdict = judge(before, recorded(*[one] * 30), rules_of, handler_of)
    assert isinstance(verdict, Violation)
    assert verdict.event == COMPARED_BYTES_MAX // 50_151


def test_rules_of_large_states_are_not_judged_where_everything_else_waits() -> None:
    rules_of, handler_of = declared([{"require": {"not_in": ["$.data.n", "@.list"]}, "error": "No."}])
    small = fold(EMPTY, recorded(("free", {"list": [1]})), handler_of)
    large = fold(EMPTY, recorded(("free", {"list": [1] * 20_000})), handler_of)
    one = recorded(("ruled", {"n": 2}))
    assert is_light(small, one, rules_of)
    assert not is_light(large, one, rules_of)
    assert is_light(large, recorded(("free", {"n": 2})), rules_of)


def test_what_a_state_grows_by_within_an_append_is_not_judged_where_everything_else_waits() -> None:
    rule = {"require": {"exists": "@.a"}, "error": "No."}
    compare = {"require": {"not_in": ["$.data", "@.l"]}, "error": "No."}
    double = {"set": {"target": "l", "value": ["@.l", "@.l"]}}
    for rules, times in (([rule], 40), ([compare], 12)):
        rules_of, handler_of = declared(rules, double)
        before = fold(EMPTY, recorded(("free", {"a": 1, "l": 7})), handler_of)
        events = recorded(*[("ruled", 0)] * times)
        assert is_light(before, events, rules_of)  # by all that is known beforehand
        judged = partial(judge, before, events, rules_of, handler_of)
        if times == 12:
            assert isinstance(judged(), Folded)
        with pytest.raises(TakesLong):
            judged(at_once=AT_ONCE_LOOKS)
        few = judge(before, events[:5], rules_of, handler_of, at_once=AT_ONCE_LOOKS)
        assert isinstance(few, Folded)


STATES = st.dictionaries(st.sampled_from("ab"), st.integers(-2, 2), max_size=2)


@given(st.lists(st.tuples(st.sampled_from(["ruled", "free"]), STATES), max_size=6), st.integers(0, 6))
def test_the_verdict_is_that_of_one_event_at_a_time(events: list[tuple[str, Any]], cut: int) -> None:
    rules = [
        {"require": {"gte": ["@.a?", "$.data.b?"]}, "error": "1: {@.a}"},
        {"require": {"or": [{"a": "$.data.a"}, {"not": {"exists": "@.b"}}]}, "error": "2"},
    ]
    rules_of, handler_of = declared(rules)
    state: dict[str, Any] = {}
    wanted: Folded | Violation = EMPTY
    for n, (name, data) in enumerate(events):
        if name == "ruled" and not ("a" in state and "b" in data and state["a"] >= data["b"]):
            wanted = Violation(n, 0, f"1: {state.get('a', 'null')}")
            break
        if name == "ruled" and not (state.get("a") == data.get("a") or "b" not in state):
            wanted = Violation(n, 1, "2")
            break
        state |= data
    verdict = judge(EMPTY, recorded(*events), rules_of, handler_of)
    if isinstance(wanted, Violation):
        assert verdict == wanted
    else:
        assert isinstance(verdict, Folded)
        assert (verdict.length, json.loads(verdict.data_json)) == (len(events), state)
        before = judge(EMPTY, recorded(*events)[:cut], rules_of, handler_of)
        assert isinstance(before, Folded)
        after = judge(before, recorded(*events)[cut:], rules_of, handler_of)
        assert isinstance(after, Folded)
        assert (after.length, after.data_json) == (verdict.length, verdict.data_json)
