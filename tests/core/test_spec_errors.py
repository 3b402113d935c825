"""What a message repeats of what it was given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spec.errors import SHOWN_CHARS_MAX, Faults, nearest, proposal, shown
from spec.parse import parse


def test_of_many_names_only_those_of_about_the_same_length_are_compared() -> None:
    known = [f"{'x' * n}_name" for n in range(100)]
    assert nearest(f"{'x' * 40}_nmae", known) == f" (did you mean `{known[40]}`?)"
    assert nearest("entirely-different", known) == ""


@pytest.mark.parametrize(
    ("word", "meant"), [("was_payed", "was_paid"), ("was_palced", "was_placed"), ("was_plcd", "was_placed")]
)
def test_of_names_that_are_about_as_near_the_one_that_begins_alike_is_proposed(word: str, meant: str) -> None:
    known = ("was_placed", "was_paid", "was_reserved", "was_cancelled")
    assert nearest(word, known) == f" (did you mean `{meant}`?)"
    assert proposal(word, known) == f'Did you mean "{meant}"?'


@pytest.mark.parametrize("word", ["t00007_nmae", "entirely_different"])
def test_a_proposal_from_any_number_of_names_is_short(word: str) -> None:
    assert len(proposal(word, [f"t{n:05}_{'x' * 50}" for n in range(8_000)])) < 2_500
    assert proposal("b", ["y" * 65]) == f"Known here: {'y' * 64}…."


def test_many_names_that_are_not_declared_are_told_in_little_text() -> None:
    types: dict[str, Any] = {f"t{n:05}_{'x' * 20}": {"events": {}} for n in range(2_000)}
    named = [f"t{n:05}_{'y' * 20}" for n in range(100)]
    subscriptions = {f"s{n}": {"filter": {"types": named}, "target": {"type": "pull"}} for n in range(2)}
    found = parse({"aggregate_types": types, "agent_types": [], "subscriptions": subscriptions})
    assert isinstance(found, Faults)
    assert len(found) == 200
    assert sum(len(fault.error) for fault in found) < 300_000


def test_a_name_that_is_not_bound_lists_only_some_of_many_that_are() -> None:
    let = {"let": {f"{'a' * n}_": 1 for n in range(1, 31)} | {f"{'b' * n}_": 1 for n in range(1, 31)}}
    handler = [{**let, "do": [{"set": {"target": "x", "value": "$zzz"}}]}]
    event = {"schema": True, "handler": handler}
    found = parse({"aggregate_types": {"a": {"events": {"e": event}}}, "agent_types": []})
    assert isinstance(found, Faults)
    assert "and 30 more" in found[0].error


@given(st.text() | st.text("\x1f\U00010000", max_size=100))
@example("0" + "\x1f" * 40 + "\U00010000" * 20)
def test_any_text_is_shown_in_quotes_and_within_the_bound(text: str) -> None:
    told = shown(text)
    assert len(told) <= SHOWN_CHARS_MAX + len('""')
    repeated = json.loads(told)
    assert repeated == text or text.startswith(repeated.removesuffix("…"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", '""'),
        ("grün", '"grün"'),
        ('a "b"\n', '"a \\"b\\"\\n"'),
        ("ü\x1f", '"\\u00fc\\u001f"'),
        ("\ud800", '"\\ud800"'),
        ("x" * 60, f'"{"x" * 60}"'),
        ("x" * 61, f'"{"x" * 59}…"'),
        ("\x1f" * 10, '"' + "\\u001f" * 10 + '"'),
        ("\x1f" * 11, '"' + "\\u001f" * 9 + '…"'),
    ],
)
def test_a_text_is_shown_as_it_is_as_far_as_it_can_be_printed_and_is_not_long(text: str, told: str) -> None:
    assert shown(text) == told


SAGA = {
    "trigger": {"aggregate_type": "order", "event_type": "was_placed"},
    "steps": [
        {"name": "one", "emit": {"aggregate_type": "order", "id": "@.key", "event_type": "was_placed"}},
    ],
}
LOOKUP = {"$lookup": "$.order.lines", "where": {"id": "$key"}, "select": "$item.name"}
FOUND = "paths are `$`, the item that was found, and its fields, as `$.name`"


@pytest.mark.parametrize(
    ("selected", "told"),
    [
        ("@.total", "There is no `@` here; paths begin with one of $key, $order."),
        ("$.customer.name", '"$customer" is no name here; paths begin with one of $key, $order.'),
        (LOOKUP, f'"$item" is no name here; {FOUND}.'),
        ({**LOOKUP, "select": "name"}, f'"name" is not a path: {FOUND}.'),
    ],
)
def test_a_path_of_a_join_is_told_what_paths_are_there(selected: object, told: str) -> None:
    join = {"for_each": "order", "sources": {"order": "$key"}, "select": {"a": selected}}
    (fault,) = faults_of(projections={"rows": {"join": join}})
    assert fault.error.startswith(told)


def test_a_path_of_a_saga_that_begins_with_a_state_is_told_what_there_is() -> None:
    """It had been told of the data so far, which only the upcast of an event has."""
    (fault,) = faults_of(sagas={"flow": SAGA})
    assert fault.error == "There is no `@` here; name a value of the event, as `$.data.total`."


def faults_of(**parts: object) -> Faults:
    events = {"was_placed": {"schema": {}}}
    faults = parse({"aggregate_types": {"order": {"events": events}}, "agent_types": ["user"], **parts})
    assert isinstance(faults, Faults)
    return faults
