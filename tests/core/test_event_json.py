"""Events as every way out has them."""

from __future__ import annotations

import json
from uuid import UUID

from gateway.event_json import event_json, fed_json
from gateway.events import Event, Recorded, Stream

ID = UUID("01900000-0000-7000-8000-000000000001")
STREAM = Stream(ID.bytes, "order", "ABC123XYZ")


def event(**more: object) -> Event:
    fields: dict[str, object] = {
        "id": ID.bytes,
        "type": "was_placed",
        "actor_type": "user",
        "actor_id": "global",
        "target_type": None,
        "target_id": None,
        "correlation_id": ID.bytes,
        "causation_id": None,
        "spec_rev": 1,
        "recorded_at_ms": 1_705_312_900_007,
        "extra": None,
        "payload": b'{"n": 1e400, "b":2,"a":1}',
    }
    return Event(**{**fields, **more})  # type: ignore[arg-type]


def test_data_comes_back_byte_for_byte_and_what_is_absent_is_null() -> None:
    text = event_json(Recorded(STREAM, 7, event()))
    assert b'"data":{"n": 1e400, "b":2,"a":1},' in text
    told = json.loads(text)
    assert (told["id"], told["stream_id"], told["version"], told["key"]) == (str(ID), "7-0", 7, "ABC123XYZ")
    assert told["metadata"] == {
        "actor": {"type": "user", "id": "global"},
        "target": None,
        "timestamp": 1705312900.007,
        "correlation_id": str(ID),
        "causation_id": None,
        "extra": None,
        "revision": 1,
    }


def test_what_is_there_is_told_and_the_feed_adds_its_position() -> None:
    recorded = Recorded(
        STREAM,
        1,
        event(target_type="user", target_id="global", causation_id=ID.bytes, extra=b'{"x":1}', payload=None),
    )
    told = json.loads(fed_json(recorded, "AQ"))
    assert told == {**json.loads(event_json(recorded)), "position": "AQ"}
    assert told["data"] is None
    assert told["metadata"]["target"] == {"type": "user", "id": "global"}
    assert (told["metadata"]["causation_id"], told["metadata"]["extra"]) == (str(ID), {"x": 1})
