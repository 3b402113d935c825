"""The conformance cases in spec/cases/fold: what one event makes of a state."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from gateway.events import Recorded, revised
from gateway.state import fold, presenting
from gateway.state.draft import ITEMS_MAX
from spec.handlers import DEFAULT_HANDLER, ITEMS_CHANGED_MAX, Handler
from spec.model import Spec
from spec.parse import parse
from tests.core.state_samples import folded, recorded

FOLDER = files("spec") / "cases" / "fold"
CASES = [
    pytest.param(json.loads(file.read_bytes()), id=file.name.removesuffix(".json"))
    for file in sorted(FOLDER.iterdir(), key=lambda file: file.name)
]


def spec_of(handler: object, **event: object) -> Spec:
    declared = {"schema": True, "handler": handler, **event}
    found = parse({"aggregate_types": {"order": {"events": {"was_placed": declared}}}, "agent_types": []})
    assert isinstance(found, Spec), found
    return found


def handler_of(written: object) -> Handler:
    return spec_of(written).aggregate_types["order"].events["was_placed"].handler


@pytest.mark.parametrize("case", CASES)
def test_an_event_makes_of_a_state_what_the_case_says(case: dict[str, Any]) -> None:
    spec = spec_of(case["handler"], revision=case.get("present", 1), upcast=case.get("upcast", {}))
    before = folded(json.dumps(case.get("before", {})).encode(), by=DEFAULT_HANDLER)
    plain = recorded(2, json.dumps(case["data"]).encode())
    event = Recorded(plain.stream, 2, revised(plain.event, case.get("revision", 1)))
    handler = spec.aggregate_types["order"].events["was_placed"].handler
    after = fold(before, [event], lambda _: handler, present=presenting(spec))
    assert json.loads(after.data_json) == case["after"]
    assert [[each.operation, each.error] for each in after.errors] == case.get("misfits", [])


@pytest.mark.parametrize("name", ["map", "filter", "update_where"])
def test_some_operations_take_lists_of_so_many_items_and_no_more(name: str) -> None:
    arguments: dict[str, Any] = {"target": "l"}
    arguments |= {} if name == "map" else {"where": {"gt": ["@", 5]}}
    arguments |= {} if name == "filter" else {"do": []}
    handler = handler_of({name: arguments})
    for count, fits in ((ITEMS_CHANGED_MAX, True), (ITEMS_CHANGED_MAX + 1, False)):
        before = folded(b'{"l":[%b]}' % b",".join([b"7"] * count), by=DEFAULT_HANDLER)
        after = folded(b"{}", by=handler, on=before)
        assert after.data_json == before.data_json
        told = f"`l` has {count} items; `{name}` takes {ITEMS_CHANGED_MAX} at most."
        assert ([each.error for each in after.errors if "at most" in each.error] == [told]) is not fits


def test_upsert_appends_to_lists_as_long_as_append_does() -> None:
    before = folded(b'{"l":[%b]}' % b",".join([b"7"] * ITEMS_MAX), by=DEFAULT_HANDLER)
    [error] = folded(
        b"{}", by=handler_of({"upsert": {"target": "l", "key": "n", "value": {"n": 1}}}), on=before
    ).errors
    assert error.error == f"`l` has {ITEMS_MAX} items; a list grows to {ITEMS_MAX} at most."


def test_what_uses_the_budget_up_changes_no_item() -> None:
    """Items of items: each is tested, and they share what one event may test."""
    inner = b"[%b]" % b",".join([b'{"n":1}'] * 100)
    before = folded(b'{"l":[%b]}' % b",".join([b'{"l":%b}' % inner] * 1000), by=DEFAULT_HANDLER)
    bump = {"increment": {"target": "n"}}
    within = {"map": {"target": "l", "do": {"map": {"target": "l", "do": [bump]}}}}
    after = folded(b"{}", by=handler_of([within, {"set": {"target": "seen", "value": 1}}]), on=before)
    assert [(each.operation, each.error) for each in after.errors] == [
        (0, "One event may test 250000 items; this would be more.")
    ]
    assert json.loads(after.data_json)["l"] == json.loads(before.data_json)["l"]


def test_a_name_that_doubles_what_it_names_ends_at_a_limit() -> None:
    written: Any = {"set": {"target": "n", "value": 1}}
    for _ in range(25):
        written = {"let": {"x": ["$x", "$x"]}, "do": written}
    handler = handler_of([{"let": {"x": "$.data"}, "do": written}, {"set": {"target": "m", "value": 1}}])
    after = folded(b'{"a":"%b"}' % (b"x" * 10_000), by=handler)
    assert after.data_json == b'{"m":1}'
    [error] = after.errors
    assert error.error.endswith("The value would be longer than 8388608 bytes.")
    assert error.error.startswith("do[0], do[0]")
