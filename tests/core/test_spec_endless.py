"""Sagas that would begin themselves again without end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spec.endless import Endless, endless_sagas
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.sources import RedactedEnviron

SPEC = Path(__file__).parents[2] / "spec"
EVENTS = ("a", "b", "c", "d")


def emit(event_type: str) -> dict[str, str]:
    return {"aggregate_type": "t", "id": "$.key", "event_type": event_type}


def step(event_type: str, **more: object) -> dict[str, object]:
    return {"name": f"emit_{event_type}", "emit": emit(event_type), **more}


def saga(trigger: str, *steps: dict[str, object]) -> dict[str, object]:
    return {"trigger": {"aggregate_type": "t", "event_type": trigger}, "steps": list(steps)}


def wait(*event_types: str) -> dict[str, object]:
    return {"aggregate_type": "t", "event_types": list(event_types)}


def found(sagas: dict[str, object], **events: dict[str, Any]) -> list[Endless]:
    document = {
        "aggregate_types": {
            "t": {"events": {each: {"schema": {}, **events.get(each, {})} for each in EVENTS}}
        },
        "agent_types": ["user"],
        "sagas": sagas,
    }
    spec = parse(json.dumps(document).encode(), {})
    assert isinstance(spec, Spec), spec
    return list(endless_sagas(spec))


CONDITION = {"exists": "$.data.more"}
DAILY = {"delay": "24h", "emit": {"aggregate_type": "t", "id": "$.key", "event_type": "a"}}
RULES = {"rules": [{"require": CONDITION, "error": "No more."}]}


def implies(event_type: str, **more: object) -> dict[str, object]:
    return {"implications": [{"emit": emit(event_type), **more}]}


def test_a_step_that_emits_the_trigger_is_told_with_its_place_and_chain() -> None:
    (one,) = found({"s": saga("a", step("b"), step("a"))})
    assert one.pointer == "/sagas/s/steps/1/emit"
    assert one.chain == ("t.a", "saga s", "t.a")
    assert "t.a → saga s → t.a." in one.text


def test_a_circle_over_sagas_and_implied_events_is_told_once() -> None:
    sagas = {"s": saga("a", step("b")), "other": saga("c", step("d"))}
    each = {"in": "$.data.items", "as": "$item", "emit": emit("a")}
    (one,) = found(sagas, b=implies("c"), d={"implications": [{"map": each}]})
    assert one.pointer == "/sagas/s/steps/0/emit"
    assert one.chain == ("t.a", "saga s", "t.b", "t.c", "saga other", "t.d", "t.a")


def test_a_saga_that_leads_into_a_circle_is_not_in_it() -> None:
    found_ = found({"before": saga("a", step("b")), "s": saga("b", step("c"), step("b"))})
    assert [each.chain for each in found_] == [("t.b", "saga s", "t.b")]


def test_an_awaited_event_that_the_spec_emits_does_not_end_a_round() -> None:
    circle = saga("a", step("b", **{"await": wait("c", "d"), "fail_on": ["d"]}), step("a"))
    assert [each.pointer for each in found({"s": circle}, b=implies("c"))] == ["/sagas/s/steps/1/emit"]
    assert not found({"s": circle})
    assert not found({"s": circle}, b=implies("d"))  # by which the step fails


@pytest.mark.parametrize(
    ("sagas", "events"),
    [
        ({"s": saga("a", step("b"))}, {}),
        ({"s": saga("a", step("a", condition=CONDITION))}, {}),
        ({"s": saga("a", step("b", condition=CONDITION), step("a"))}, {}),
        ({"s": saga("a", step("b", compensate=emit("a")))}, {}),
        ({"s": saga("a", step("a"))}, {"a": RULES}),
        ({"s": saga("a", step("a"))}, {"a": {"claims": {"x": {"value": "$.data.x"}}}}),
        ({"s": saga("a", step("b"))}, {"b": implies("a", condition=CONDITION)}),
        ({"s": saga("a", step("b"))}, {"b": implies("c"), "c": {**implies("a"), **RULES}}),
        ({"s": saga("a", step("b"))}, {"b": {"implications": [{"schedule": DAILY}]}}),
    ],
    ids=[
        "no way back",
        "a condition of the step",
        "a condition of a step before",
        "a compensation",
        "a rule of the trigger",
        "a unique value",
        "a condition of an implication",
        "a rule of an implied event",
        "a timer",
    ],
)  # fmt: skip
def test_what_may_end_or_delay_a_round(sagas: dict[str, object], events: dict[str, Any]) -> None:
    assert not found(sagas, **events)


def test_a_wrapped_spec_has_places_of_the_document() -> None:
    wrapped = {
        "spec": {
            "aggregate_types": {"t": {"events": {"a": {"schema": {}}}}},
            "agent_types": ["user"],
            "modules": {"sagas": {"s": saga("a", step("a"))}},
        }
    }
    spec = parse(json.dumps(wrapped).encode(), {})
    assert isinstance(spec, Spec)
    assert [each.pointer for each in endless_sagas(spec)] == ["/spec/modules/sagas/s/steps/0/emit"]


def test_no_example_of_the_specification_is_endless() -> None:
    for each in (*(SPEC / "examples").glob("*.json"), *(SPEC / "cases" / "pass").glob("*.json")):
        spec = parse(each.read_bytes(), RedactedEnviron())
        assert isinstance(spec, Spec), each
        assert not list(endless_sagas(spec)), each
