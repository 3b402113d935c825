"""What an event implies, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.state.implications import Emitted, Unfit, emit_at, emitted, text_of, view_of
from spec.handlers import Constant, ListTemplate
from spec.implications import Implication, Schedule
from spec.model import Spec
from spec.parse import parse
from tests.core.state_samples import recorded

EMIT = {
    "aggregate_type": "stock",
    "id": "$.data.sku",
    "event_type": "was_reserved",
    "data": {"n": "$.data.n"},
}
ORDER = b'{"sku":"A-1","n":2,"items":[{"sku":"B-1"},{"sku":"B-2"}],"one":{}}'


def declared(*implications: Any) -> tuple[Implication, ...]:
    spec = parse(
        {
            "aggregate_types": {
                "order": {"events": {"was_placed": {"schema": {}, "implications": list(implications)}}},
                "stock": {"events": {"was_reserved": {"schema": {}}}},
            },
            "agent_types": ["user"],
        }
    )
    assert isinstance(spec, Spec), spec
    return spec.aggregate_types["order"].events["was_placed"].implications


def found(*implications: Any, state: bytes = b"{}", most: int = 100) -> list[Emitted] | Unfit:
    return emitted(view_of(recorded(1, ORDER), state), declared(*implications), most)


def ids(of: list[Emitted] | Unfit) -> list[str | None]:
    assert isinstance(of, list), of
    return [each.id for each in of]


def test_an_event_is_emitted_with_id_data_and_where_it_is_declared() -> None:
    (each,) = found({"emit": EMIT})  # type: ignore[misc]
    assert isinstance(each, Emitted)
    assert (each.id, each.data, each.path) == ("A-1", b'{"n":2}', "implications[0]")
    (minted,) = found({"emit": {**EMIT, "id": {"mint": True}, "data": "$.data.none?"}})  # type: ignore[misc]
    assert isinstance(minted, Emitted)
    assert (minted.id, minted.data) == (None, b"{}")


def test_a_condition_sees_the_event_and_the_state_after_it() -> None:
    holds = {"condition": {"gte": ["$.data.n", "@.limit"]}, "emit": EMIT}
    assert ids(found(holds, state=b'{"limit":2}')) == ["A-1"]
    assert ids(found(holds, state=b'{"limit":3}')) == []


def test_each_item_of_a_list_emits_one_and_is_numbered() -> None:
    each = {"map": {"in": "$.data.items", "as": "$item", "emit": {**EMIT, "id": "$item.sku"}}}
    made = found({"emit": EMIT}, each)
    assert ids(made) == ["A-1", "B-1", "B-2"]
    assert isinstance(made, list)
    assert [one.path for one in made][1:] == ["implications[1][0]", "implications[1][1]"]
    assert len(ids(found({"emit": EMIT}, each, most=1))) == 2


def test_a_list_that_is_absent_where_it_may_be_implies_nothing() -> None:
    each = {"map": {"in": "$.data.none?", "as": "$item", "emit": {**EMIT, "id": "$item.sku"}}}
    assert ids(found({"emit": EMIT}, each)) == ["A-1"]


def test_a_timer_emits_nothing_yet() -> None:
    timer = {"schedule": {"delay": "1h", "emit": EMIT}}
    assert found(timer) == []
    (what,) = [each.what for each in declared(timer)]
    assert isinstance(what, Schedule)
    made = emit_at(what.emit, view_of(recorded(1, ORDER), b"{}"), "implications[0].schedule.emit")
    assert isinstance(made, Emitted)
    assert made.path == "implications[0].schedule.emit"


def test_a_timer_whose_data_take_more_than_an_event_may_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.state.budget.LOOKS_MAX", 10)
    (what,) = [each.what for each in declared({"schedule": {"delay": "1h", "emit": EMIT}})]
    assert isinstance(what, Schedule)
    view = view_of(recorded(1, ORDER), b"{}")
    view.budget.looks = 10
    many = replace(what.emit, data=ListTemplate((Constant(1),) * 100))
    why = "One event may test 10 items; this would be more."
    assert emit_at(many, view, "here") == Unfit("here", why)


def test_what_gives_no_value_that_fits_is_named() -> None:
    each = {"map": {"in": "$.data.one", "as": "$item", "emit": {**EMIT, "id": "$item.sku"}}}
    assert found(each) == Unfit("implications[0]", "`in` gives an object, not a list.")
    each["map"]["in"] = "$.data.none"
    assert found(each) == Unfit("implications[0]", "`in` gives null, not a list.")
    unfit = found({"emit": {**EMIT, "id": "$.data.n"}})
    why = "`id` gives a number, not a string, so there is no identifier."
    assert unfit == Unfit("implications[0].id", why, identifies=True)
    absent = found({"emit": {**EMIT, "id": "$.data.none?"}})
    why = "`id` gives nothing, not a string, so there is no identifier."
    assert absent == Unfit("implications[0].id", why, identifies=True)
    absent = found({"emit": {**EMIT, "id": "$.data.none"}})
    assert isinstance(absent, Unfit)
    assert absent.path == "implications[0].id"


def test_what_would_be_longer_than_a_state_may_be_is_named() -> None:
    view = view_of(recorded(1, b'{"text":"%b"}' % (b"x" * 250_000)), b"{}")
    long = {f"f{n}": "$.data" for n in range(40)}
    (data,) = declared({"emit": {**EMIT, "id": {"mint": True}, "data": long}})
    identifier = replace(data, what=replace(data.emit, id=data.emit.data))
    said = "The value would be longer than 8388608 bytes."
    assert emitted(view, [data], 1) == Unfit("implications[0].data", said)
    assert emitted(view, [identifier], 1) == Unfit("implications[0].id", said)


def test_an_identifier_that_a_timer_watches_is_text_or_said_not_to_be() -> None:
    view = view_of(recorded(1, ORDER), b"{}")
    (emit,) = [each.emit for each in declared({"emit": EMIT})]
    assert emit.id is not None
    assert text_of(emit.id, view, "here") == "A-1"
    (other,) = [each.emit for each in declared({"emit": {**EMIT, "id": "$.data.one"}})]
    assert other.id is not None
    why = "`id` gives an object, not a string, so there is no identifier."
    assert text_of(other.id, view, "here") == Unfit("here", why, identifies=True)
    assert isinstance(emit_at(other, view, "here"), Unfit)
