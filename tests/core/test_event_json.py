"""Events as every way out has them."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from gateway.event_json import event_json, fed_json, named_json
from gateway.events import Event, Recorded, Stream, revised
from gateway.stored_extra import RecordSaid, guarded, with_record

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


@pytest.mark.parametrize("extra", [None, b'{"x":1}'])
def test_an_event_shows_its_revision_with_and_without_extra(extra: bytes | None) -> None:
    shown = json.loads(event_json(Recorded(STREAM, 1, revised(event(extra=extra), 17))))
    assert list(shown["metadata"])[-2:] == ["extra", "revision"]
    assert shown["metadata"]["revision"] == 17


def test_an_event_of_a_type_with_records_shows_its_identity() -> None:
    record = RecordSaid("a" * 64, None, "new")
    shown = json.loads(event_json(Recorded(STREAM, 1, event(extra=with_record(b'{"x":1}', record)))))
    assert shown["metadata"]["extra"] == {"x": 1}
    assert shown["metadata"]["identity"] == {"content": "a" * 64, "context": None, "grade": "new"}
    without = json.loads(event_json(Recorded(STREAM, 1, event(extra=with_record(None, None)))))
    assert (without["metadata"]["extra"], without["metadata"]["identity"]) == (None, None)


def test_an_extra_that_only_looks_like_a_record_shows_no_identity() -> None:
    shown = json.loads(event_json(Recorded(STREAM, 1, event(extra=guarded(b'{"$identity":{}}')))))
    assert shown["metadata"]["extra"] == {"$identity": {}}
    assert "identity" not in shown["metadata"]


def test_an_alias_may_stand_for_the_key_and_only_for_that() -> None:
    payload = b'{"key":"ABC123XYZ","n":1}'
    text = fed_json(Recorded(STREAM, 7, event(payload=payload)), "AQ")
    named = json.loads(named_json(text, STREAM.key, ("ORD-1", "bd-k86gaq"), keyless=False))
    assert named == {**json.loads(text), "aliases": ["ORD-1", "bd-k86gaq"]}
    keyless = json.loads(named_json(text, STREAM.key, ("ORD-1",), keyless=True))
    assert (keyless["aliases"], "key" in keyless, keyless["data"]["key"]) == (["ORD-1"], False, STREAM.key)
    nameless = json.loads(named_json(text, STREAM.key, (), keyless=True))
    assert (nameless["key"], nameless["aliases"]) == (STREAM.key, [])
