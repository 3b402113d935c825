"""Events of earlier revisions, as the present spec sees them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest

from gateway.appends import pack_event, row_digest, unpack_event
from gateway.events import Event, Recorded, RevisedEvent, revised
from gateway.state import AT_ONCE_LOOKS, EMPTY, TakesLong, fold, upcast
from spec.errors import Faults
from spec.model import EventType, Spec
from spec.parse import parse
from tests.core.state_samples import STREAM, recorded


def declared(upcasts: dict[str, Any], revision: int = 3, schema: object = True) -> EventType:
    event = {"schema": schema, "revision": revision, "upcast": upcasts}
    spec = parse({"aggregate_types": {"order": {"events": {"was_placed": event}}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    return spec.aggregate_types["order"].events["was_placed"]


STEPS = {
    "1": [{"set": {"target": "currency", "value": "EUR"}}],
    "2": [
        {"set": {"target": "total", "value": {"n": "$.data.total", "in": "$.data.currency"}}},
        {"remove": {"target": "currency"}},
        {"map": {"target": "lines", "do": {"set": {"target": "sku", "value": "@.id"}}}},
    ],
}


def stored(payload: bytes | None, revision: int) -> Recorded:
    plain = recorded(1, payload)
    return Recorded(plain.stream, plain.version, revised(plain.event, revision))


def seen(payload: bytes, revision: int, of: EventType) -> Any:
    brought = upcast(stored(payload, revision), of).event.payload
    assert brought is not None
    return json.loads(brought)


def test_data_of_each_revision_go_through_the_steps_that_are_left() -> None:
    of = declared(STEPS)
    old = b'{"total": 1.10, "lines": [{"id": "a"}]}'
    placed = {"total": {"n": 1.1, "in": "EUR"}, "lines": [{"id": "a", "sku": "a"}]}
    assert seen(old, 1, of) == placed
    assert seen(b'{"total": 1.10, "currency": "CHF"}', 2, of) == {"total": {"n": 1.1, "in": "CHF"}}
    assert b"1.10" in (upcast(stored(old, 1), of).event.payload or b"")


@pytest.mark.parametrize("revision", [3, 4])
def test_an_event_of_the_present_revision_or_a_later_one_is_as_it_was_stored(revision: int) -> None:
    event = stored(b'{ "total" : 1 }', revision)
    assert upcast(event, declared(STEPS)) is event
    assert upcast(event, None) is event


def test_what_was_erased_or_is_no_object_is_as_it_was_stored() -> None:
    said: list[tuple[int, str]] = []
    for payload in (None, b"[1]", b"{", b'"text"'):
        event = stored(payload, 1)
        assert upcast(event, declared(STEPS), lambda *each: said.append(each)) is event
    assert said == [(0, "upcast of revision 1: The data is not an object.")] * 3


def test_folds_see_the_present_data_and_say_what_of_a_step_did_not_fit() -> None:
    of = declared(STEPS)
    events = [stored(b'{"total":1,"currency":"CHF"}', 2), stored(b'{"n":2}', 3), stored(b"{}", 1)]
    folded = fold(EMPTY, events, lambda _: of.handler, present=lambda each, *more: upcast(each, of, *more))
    assert json.loads(folded.data_json) == {"total": {"n": None, "in": "EUR"}, "n": 2}
    assert {each.error for each in folded.errors} == {
        "upcast of revision 2: `lines` is absent; `map` takes a list."
    }
    assert [each.operation for each in folded.errors] == [2, 2]


def test_bringing_many_events_to_the_present_is_not_done_at_once() -> None:
    of = declared(STEPS)
    events = [stored(b'{"total":1}', 1)] * 1000
    present: Any = lambda each, *more: upcast(each, of, *more)  # noqa: E731
    few = fold(EMPTY, events[:10], lambda _: of.handler, at_once=AT_ONCE_LOOKS, present=present)
    assert few.length == 10
    with pytest.raises(TakesLong):
        fold(EMPTY, events, lambda _: of.handler, at_once=AT_ONCE_LOOKS, present=present)


def test_an_event_of_revision_1_is_packed_and_digested_as_ever() -> None:
    event = recorded(1, b"{}").event
    assert type(event) is Event
    assert event.revision == 1
    assert revised(event, 1) is event
    assert len(msgspec.msgpack.decode(pack_event(event))) == 12
    later = revised(event, 2)
    assert isinstance(later, RevisedEvent)
    assert (later.revision, later.id, later.payload) == (2, event.id, event.payload)
    assert unpack_event(pack_event(later)) == later
    assert type(unpack_event(pack_event(event))) is Event
    digest = partial(row_digest, STREAM, b"\x01" * 16)
    assert digest(pack_event(later)) != digest(pack_event(event))
    assert pack_event(later)[2:19] == pack_event(event)[2:19]


def test_a_revision_needs_every_step_before_it() -> None:
    for upcasts in ({}, {"1": []}, {"2": []}):
        event = {"schema": True, "revision": 3, "upcast": upcasts}
        found = parse({"aggregate_types": {"o": {"events": {"e": event}}}, "agent_types": []})
        assert isinstance(found, Faults)
        assert "`upcast` needs a step for each" in found[0].error


def test_data_that_are_no_object_are_told_of_where_a_step_is_left_out() -> None:
    told: list[str] = []

    def report(_: int, error: str) -> None:
        told.append(error)

    event = stored(b"[1]", 1)
    assert upcast(event, declared({"1": []}, 2), report) is event
    assert told == []
    assert upcast(event, declared(STEPS), report) is event
    assert told == ["upcast of revision 1: The data is not an object."]
