"""The body of an append: what it may hold, what is refused and in which order, and its bytes as sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit import envelope
from gateway.admit.envelope import (
    Envelope,
    EventBody,
    prove_metadata,
    read_batch,
    read_single,
    single_of,
)
from gateway.errors import Refusal
from tests.core import json_oracle

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
V7 = "01900000-0000-7000-8000-00000000000a"
OTHER_V7 = "01900000-0000-7000-bfff-00000000000b"
V4 = "a0000000-0000-4000-a000-000000000001"


def single(**metadata: Any) -> bytes:
    return json.dumps({"data": {"sku": "A-1"}, "metadata": {"actor": ACTOR, **metadata}}).encode()


def batch(*events: Any, **metadata: Any) -> bytes:
    return json.dumps({"events": events, "metadata": {"actor": ACTOR, **metadata}}).encode()


def event(**more: Any) -> dict[str, Any]:
    return {"type": "was_placed", "data": {}, **more}


def accepted(answer: Envelope | Refusal) -> Envelope:
    assert isinstance(answer, Envelope), answer
    return answer


def refused(answer: Envelope | Refusal) -> tuple[str, str | None]:
    assert isinstance(answer, Refusal), answer
    assert answer.error[0].isupper() or answer.error[0] == "`"
    assert answer.error.endswith(".")
    return answer.code, answer.path


# ---- what is accepted ----


def test_the_least_body_has_data_and_an_actor() -> None:
    assert read_single(b'{"data":null,"metadata":{"actor":{"type":"user","id":"global"}}}') == Envelope(
        events=(EventBody(type=None, data=None, data_raw=b"null", event_id=None),),
        actor_type="user",
        actor_id="global",
        target_type=None,
        target_id=None,
        previous_length=None,
        skip_occ=False,
        event_id=None,
        causation_id=None,
        extra=None,
        parent=None,
    )


def test_every_field_of_metadata_is_read() -> None:
    body = b"""{"metadata": {"extra":  {"note": "x", "n": 1.50} ,
        "causation_id": "A0000000-0000-1000-0000-00000000000F",
        "event_id": "01900000-0000-7000-8000-00000000000A", "skip_occ": false, "previous_length": 5,
        "target": {"id": "ABC123XYZ", "type": "order"}, "actor": {"type": "user", "id": "u"}}, "data": [1]}"""
    assert read_single(body) == Envelope(
        events=(EventBody(type=None, data=[1], data_raw=b"[1]", event_id=V7),),
        actor_type="user",
        actor_id="u",
        target_type="order",
        target_id="ABC123XYZ",
        previous_length=5,
        skip_occ=False,
        event_id=V7,
        causation_id="a0000000-0000-1000-0000-00000000000f",
        extra=b'{"note": "x", "n": 1.50}',
        parent=None,
    )


def test_a_batch_keeps_its_events_in_order_with_their_own_ids() -> None:
    body = batch(
        event(), event(type="x:y", data=[1], event_id=V7.upper()), event(event_id=None), skip_occ=True
    )
    read = accepted(read_batch(body))
    assert [(e.type, e.data, e.data_raw, e.event_id) for e in read.events] == [
        ("was_placed", {}, b"{}", None),
        ("x:y", [1], b"[1]", V7),
        ("was_placed", {}, b"{}", None),
    ]
    assert read.skip_occ
    assert read.event_id is None


@pytest.mark.parametrize(
    "data",
    [
        *[
            "null",
            "0",
            "-0",
            "1e400",
            "9" * 5000,
            '""',
            "[]",
            "{}",
            "false",
            '"\\ud83d\\ude00"',
            '"\\\\u0000"',
            '"é"',
        ],
        *['{ "b" : 1.0,\n\t"a":[ ] }', '{"a":"\\u003a:"}', "[" * 63 + "]" * 63, "[" + "{}," * 80 + "{}]"],
    ],
)
def test_data_may_be_any_value_and_its_bytes_are_kept_as_sent(data: str) -> None:
    body = f'{{"data" : {data} , "metadata":{{"actor":{{"type":"u","id":"i"}}}} }}\n'.encode()
    (one,) = accepted(read_single(body)).events
    assert one.data_raw == data.encode()
    assert json_oracle.same(one.data, json_oracle.read(data.encode()))


@pytest.mark.parametrize(
    "data", ["null", "1e400", "9" * 5000, '"\\\\u0000"', "[" * 61 + "]" * 61, " [ 1 ]\n"]
)
def test_data_of_a_batch_is_kept_as_sent_too(data: str) -> None:
    start = '{"events":[{"data":1,"type":"a"},{"type":"b","data": '
    body = start + data + '\n}],"metadata":{"actor":{"type":"u","id":"i"}}}'
    first, second = accepted(read_batch(body.encode())).events
    assert (first.type, first.data_raw) == ("a", b"1")
    assert (second.type, second.data_raw) == ("b", data.strip().encode())
    assert json_oracle.same(second.data, json_oracle.read(data.encode()))


def test_null_counts_as_absent_for_optional_fields() -> None:
    nulls = dict.fromkeys(("target", "previous_length", "skip_occ", "event_id", "causation_id", "extra"))
    assert read_single(single(**nulls)) == read_single(single())
    assert read_batch(batch(event(event_id=None), **nulls)) == read_batch(batch(event()))
    assert read_single(single(**nulls | {"skip_occ": True})) == read_single(single(skip_occ=True))


def test_the_event_id_of_metadata_names_the_one_event_of_a_batch() -> None:
    read = accepted(read_batch(batch(event(), event_id=V7.upper())))
    assert read.event_id == V7
    assert read.events[0].event_id == V7


def test_a_parent_is_accepted_only_where_it_is_allowed() -> None:
    body = json.dumps({"parent": "@bd-k86gaq", "events": [event()], "metadata": {"actor": ACTOR}}).encode()
    assert accepted(read_batch(body, parent_allowed=True)).parent == "@bd-k86gaq"
    assert refused(read_batch(body)) == ("unknown_field", "parent")
    assert accepted(read_batch(batch(event()), parent_allowed=True)).parent is None
    nothing = body.replace(b'"@bd-k86gaq"', b"null")
    assert accepted(read_batch(nothing, parent_allowed=True)).parent is None
    assert refused(read_batch(nothing)) == ("unknown_field", "parent")
    number = body.replace(b'"@bd-k86gaq"', b"1")
    assert refused(read_batch(number, parent_allowed=True)) == ("invalid_field", "parent")


def test_previous_length_goes_up_to_the_greatest_version() -> None:
    for length in (0, 1, 2**53, 2**63 - 1):
        assert accepted(read_single(single(previous_length=length))).previous_length == length
    assert accepted(read_single(single(previous_length=7).replace(b"7", b"-0", 1))).previous_length == 0


# ---- what is refused ----


@pytest.mark.parametrize(
    "body",
    [
        *[b"", b"{", b'{"data":1,"data":2,"metadata":{"actor":{"type":"u","id":"i"}}}', b"\xef\xbb\xbf{}"],
        b'{"data":1,"metadata":{"actor":{"type":"u","id":"i","id":"j"}}}',
        b'{"data":1,"metadata":{"actor":{"type":"u","id":"i"},"extra":{"a":1,"a":2}}}',
        b'{"data":1,"metadata":{"actor":{"type":"u","id":"i"},"extra":' + b"[" * 63 + b"]" * 63 + b"}}",
        b'{"data":1,"metadata":{"actor":{"type":"u","id":"i"},"extra":{"a":' + b"[" * 62 + b"]" * 62 + b"}}}",
        b'{"data":"\\u0000","metadata":{"actor":{"type":"u","id":"i"}}}',
        b'{"data":"\xff","metadata":{"actor":{"type":"u","id":"i"}}}',
        b'{"data":1,"metadata":{"actor":{"type":"u","id":"\\u0000"}}}',
        b'{"data":' + b"[" * 64 + b"]" * 64 + b',"metadata":{"actor":{"type":"u","id":"i"}}}',
        b'{"data":' + b"[" * 5000,
        b'{"unknown":1,"unknown":2}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_strictness_comes_before_the_shape(body: bytes) -> None:
    assert refused(read_single(body)) == ("invalid_json", None)
    assert refused(read_batch(body)) == ("invalid_json", None)


def test_depth_is_counted_from_the_body_in_a_batch_too() -> None:
    start, end = b'{"events":[{"type":"a","data":', b'}],"metadata":{"actor":{"type":"u","id":"i"}}}'
    assert isinstance(read_batch(start + b"[" * 61 + b"]" * 61 + end), Envelope)
    assert refused(read_batch(start + b"[" * 62 + b"]" * 62 + end)) == ("invalid_json", None)


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        (b"[]", "invalid_field", None),
        (b"null", "invalid_field", None),
        (b"{}", "missing_field", "data"),
        (b'{"dat":1,"metadata":{}}', "missing_field", "data"),
        (b'{"data":1}', "missing_field", "metadata"),
        (b'{"data":1,"x":1}', "missing_field", "metadata"),
        (b'{"data":1,"metadata":{}}', "missing_field", "metadata.actor"),
        (b'{"data":1,"metadata":{"x":1}}', "missing_field", "metadata.actor"),
        (b'{"data":1,"metadata":{"actor":{}}}', "missing_field", "metadata.actor.type"),
        (b'{"data":1,"metadata":{"actor":{"type":1}}}', "missing_field", "metadata.actor.id"),
        (b'{"data":1,"metadata":null}', "invalid_field", "metadata"),
        (b'{"data":1,"metadata":[]}', "invalid_field", "metadata"),
        (b'{"data":1,"metadata":{"actor":null}}', "invalid_field", "metadata.actor"),
        (b'{"data":1,"metadata":{"actor":"user"}}', "invalid_field", "metadata.actor"),
        (b'{"data":1,"metadata":{"actor":{"type":1,"id":2}}}', "invalid_field", "metadata.actor.type"),
        (b'{"data":1,"metadata":{"actor":{"type":"u","id":null}}}', "invalid_field", "metadata.actor.id"),
        (single().replace(b'"data"', b'"extra": 1, "data"'), "unknown_field", "extra"),
        (single().replace(b'"id"', b'"": 1, "id"'), "unknown_field", "metadata.actor."),
        (single(events=[]), "unknown_field", "metadata.events"),
        (single(Target={}), "unknown_field", "metadata.Target"),
        (single(correlation_id=V7), "unknown_field", "metadata.correlation_id"),
        (single(actor={**ACTOR, "name": "x"}), "unknown_field", "metadata.actor.name"),
        (single(target={"type": "order", "id": "x", "ID": "y"}), "unknown_field", "metadata.target.ID"),
        (single(target={"type": "order"}), "missing_field", "metadata.target.id"),
        (single(target={}), "missing_field", "metadata.target.type"),
        (single(target=[]), "invalid_field", "metadata.target"),
        (single(target={"type": "order", "id": 5}), "invalid_field", "metadata.target.id"),
        (single(previous_length=-1), "invalid_field", "metadata.previous_length"),
        (single(previous_length=5.0), "invalid_field", "metadata.previous_length"),
        (single(previous_length="5"), "invalid_field", "metadata.previous_length"),
        (single(previous_length=True), "invalid_field", "metadata.previous_length"),
        (single(previous_length=2**63), "invalid_field", "metadata.previous_length"),
        (
            single(previous_length=7).replace(b"7", b"9" * 5000, 1),
            "invalid_field",
            "metadata.previous_length",
        ),
        (single(previous_length=7).replace(b"7", b"1e400", 1), "invalid_field", "metadata.previous_length"),
        (single(skip_occ="true"), "invalid_field", "metadata.skip_occ"),
        (single(skip_occ=0), "invalid_field", "metadata.skip_occ"),
        (single(skip_occ=True, previous_length=0), "invalid_field", "metadata.skip_occ"),
        (single(event_id=1), "invalid_field", "metadata.event_id"),
        (single(event_id=""), "invalid_field", "metadata.event_id"),
        (single(event_id=V4), "invalid_field", "metadata.event_id"),
        (single(event_id=V7 + "\n"), "invalid_field", "metadata.event_id"),
        (single(event_id="{" + V7 + "}"), "invalid_field", "metadata.event_id"),
        (single(event_id=V7.replace("8000", "c000")), "invalid_field", "metadata.event_id"),
        (single(event_id=V7.replace("0", "０", 1)), "invalid_field", "metadata.event_id"),
        (single(causation_id={}), "invalid_field", "metadata.causation_id"),
        (single(causation_id=V4.replace("-", "")), "invalid_field", "metadata.causation_id"),
        (single(causation_id="urn:uuid:" + V4), "invalid_field", "metadata.causation_id"),
        (single(extra=[]), "invalid_field", "metadata.extra"),
        (single(extra="note"), "invalid_field", "metadata.extra"),
        (single(extra=1), "invalid_field", "metadata.extra"),
    ],
)
def test_a_single_body_is_refused_with_the_code_and_the_place(body: bytes, code: str, path: str) -> None:
    assert refused(read_single(body)) == (code, path)


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        (b"[]", "invalid_field", None),
        (single(), "missing_field", "events"),
        (b'{"events":[]}', "missing_field", "metadata"),
        (batch(), "invalid_field", "events"),
        (batch(*[event()] * 4), "invalid_field", "events"),
        (batch(event()).replace(b"[", b'{"a":').replace(b"]", b"}"), "invalid_field", "events"),
        (b'{"events":null,"metadata":{"actor":{"type":"u","id":"i"}}}', "invalid_field", "events"),
        (b'{"events":[{"type":"a","data":1}],"metadata":1}', "invalid_field", "metadata"),
        (batch(event(), 5), "invalid_field", "events[1]"),
        (batch(event(), None), "invalid_field", "events[1]"),
        (batch(event(), {"data": 1}), "missing_field", "events[1].type"),
        (batch(event(), {"type": "a"}), "missing_field", "events[1].data"),
        (batch(5, {"type": "a"}), "missing_field", "events[1].data"),
        (batch(event(), event(key="x")), "unknown_field", "events[1].key"),
        (batch(event(metadata={}), actr={}), "unknown_field", "events[0].metadata"),
        (batch(event(), event(type=None)), "invalid_field", "events[1].type"),
        (batch(event(), event(type=["a"])), "invalid_field", "events[1].type"),
        (batch(event(), event(event_id=7)), "invalid_field", "events[1].event_id"),
        (batch(event(), event(event_id=V4)), "invalid_field", "events[1].event_id"),
        (
            batch(event(event_id=V7), event(), event(event_id=V7.upper())),
            "invalid_field",
            "events[2].event_id",
        ),
        (batch(event(), event(), event_id=V7), "invalid_field", "metadata.event_id"),
        (batch(event(event_id=OTHER_V7), event_id=V7), "invalid_field", "metadata.event_id"),
        (batch(event(event_id=V7), event_id=V7), "invalid_field", "metadata.event_id"),
        (batch(event(), event_id=V4), "invalid_field", "metadata.event_id"),
        (batch(event(), previous_length=1, skip_occ=True), "invalid_field", "metadata.skip_occ"),
        (batch(event(), extra=7), "invalid_field", "metadata.extra"),
        (batch(event(), actor=7), "invalid_field", "metadata.actor"),
    ],
)
def test_a_batch_is_refused_with_the_code_and_the_place(body: bytes, code: str, path: str) -> None:
    assert refused(read_batch(body, 3)) == (code, path)


def test_a_batch_may_be_as_long_as_the_limit() -> None:
    assert len(accepted(read_batch(batch(*[event()] * 1000))).events) == 1000
    assert refused(read_batch(batch(*[event()] * 1001))) == ("invalid_field", "events")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"dta":1,"metadata":{}}', "`data` is missing (did you mean `dta`?)."),
        (b'{"data":1,"metadata":{}}', "`metadata.actor` is missing."),
        (
            single(previous_lenght=1),
            "`metadata.previous_lenght` is not a field (did you mean `previous_length`?).",
        ),
        (single(zzz=1), "`metadata.zzz` is not a field (known are actor, target, previous_length, skip_occ,"),
        (single(previous_length=5.0), "like 5 (not 5.0); it is 5.0."),
        (single(previous_length="5"), "it is a string."),
        (single(actor=None), "it is null."),
        (b"[]", "The body must be an object with `data` and `metadata`."),
    ],
)
def test_a_refusal_says_what_to_do(body: bytes, words: str) -> None:
    answer = read_single(body)
    assert isinstance(answer, Refusal)
    assert words in answer.error


def test_a_long_unknown_key_is_not_repeated_in_full() -> None:
    answer = read_single(single(**{"k" * 100_000: 1}))
    assert isinstance(answer, Refusal)
    assert answer.path == "metadata." + "k" * 64 + "…"
    assert len(answer.error) < 300


def test_thousands_of_unknown_keys_cost_no_thousand_comparisons() -> None:
    body = {f"dat{n}": 1 for n in range(50_000)} | {"metadata": {}}
    assert refused(read_single(json.dumps(body).encode())) == ("missing_field", "data")


# ---- a source, and what is asked for where a record is unchanged ----


def with_fields(body: bytes, **more: Any) -> bytes:
    return json.dumps(json.loads(body) | more).encode()


def minting_batch(**more: Any) -> Envelope | Refusal:
    return read_batch(with_fields(batch(event()), **more), parent_allowed=True)


@pytest.mark.parametrize("asked", ["skip", None])
def test_a_body_may_ask_to_skip_an_unchanged_record(asked: str | None) -> None:
    for read in (
        read_single(with_fields(single(), if_unchanged=asked)),
        read_batch(with_fields(batch(event()), if_unchanged=asked)),
    ):
        assert accepted(read).skip_unchanged == (asked == "skip")
    assert accepted(read_single(single())).skip_unchanged is False


@pytest.mark.parametrize("asked", ["", "Skip", True, 5, ["skip"]])
def test_nothing_but_skip_can_be_asked_for(asked: object) -> None:
    fault = ("invalid_field", "if_unchanged")
    assert refused(read_single(with_fields(single(), if_unchanged=asked))) == fault
    assert refused(read_batch(with_fields(batch(event()), if_unchanged=asked))) == fault


def test_a_source_is_kept_as_sent_only_where_the_gateway_finds_the_key() -> None:
    source = {"source": "jira", "id": "T-1"}
    assert accepted(minting_batch(source=source)).source == source
    assert accepted(minting_batch(source=None)).source is None
    assert refused(read_batch(with_fields(batch(event()), source=source))) == ("unknown_field", "source")


def test_a_source_contradicts_a_parent() -> None:
    assert refused(minting_batch(source={"id": "T-1"}, parent="@bd-k86gaq")) == ("invalid_field", "source")
    assert accepted(minting_batch(source=None, parent="@bd-k86gaq")).parent == "@bd-k86gaq"


# ---- metadata that many lines share ----


def test_shared_metadata_gives_the_envelope_of_a_body_of_its_own() -> None:
    metadata = {"actor": ACTOR, "event_id": V7.upper(), "extra": {"a:b": "\u0061"}}
    shared = prove_metadata(json.dumps(metadata).encode())
    assert shared is not None
    assert shared.colons == 7
    assert single_of({"sku": "A-1"}, b'{"sku": "A-1"}', shared) == accepted(
        read_single(json.dumps({"data": {"sku": "A-1"}, "metadata": metadata}).encode())
    )


@pytest.mark.parametrize(
    "metadata", [b"{", b"{}", b'{"actor":5}', b'{"actor":{"type":"u","id":"i"},"event_id":"x"}']
)
def test_metadata_that_is_not_certainly_legal_is_not_shared(metadata: bytes) -> None:
    assert prove_metadata(metadata) is None


def test_an_extra_nested_too_deep_is_refused() -> None:
    nested: object = 1
    for _ in range(200):
        nested = [nested]
    assert refused(read_single(single(extra={"a": nested}))) == ("invalid_json", None)


# ---- rules that hold for all bodies ----

SEEDS = [
    *[single(), single(previous_length=5, target=ACTOR, extra={"a": [1]}, event_id=V7, skip_occ=False)],
    *[batch(event(), event(event_id=V7, data=[{"a:": 1}])), batch(event(), extra={}, causation_id=V4)],
    b'{"data":{"a\\u003a":1e999},"metadata":{"actor":{"type":"u","id":"\\\\u0000"},"target":null}}',
    b'{"events":[{"type":"a","data":"\\ud83d\\ude00"}],"parent":"x","metadata":{"actor":{"type":"u","id":"i"}}}',
]
PARTS = [
    *[
        b'"data":1,',
        b'"a":1,',
        b'"event_id":null,',
        b'"parent":"x",',
        b'"skip_occ":true,',
        b'"type":"a",',
        b"5.0",
    ],
    *[
        b"\\u0000",
        b"\\u003a",
        b":",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"null",
        b"1e999",
        b"\xff",
        b" ",
    ],
]


@st.composite
def almost_bodies(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.sampled_from([0, 0, 1, 5]))] = draw(
            st.sampled_from(PARTS) | st.binary(max_size=1)
        )
    return bytes(body)


@given(almost_bodies() | st.binary(max_size=30))
def test_any_bytes_give_an_envelope_or_a_refusal_and_the_values_are_those_of_the_text(body: bytes) -> None:
    for read in (read_single, lambda body: read_batch(body, parent_allowed=True)):
        answer = read(body)
        try:
            value = json_oracle.read(body)
        except json_oracle.Illegal:
            assert refused(answer) == ("invalid_json", None)
            continue
        if isinstance(answer, Refusal):
            assert answer.code in ("missing_field", "unknown_field", "invalid_field")
            continue
        datas = [value["data"]] if "data" in value else [one["data"] for one in value["events"]]
        for one, data in zip(answer.events, datas, strict=True):
            assert json_oracle.same(one.data, data)
            assert one.data_raw in body
            assert json_oracle.same(json_oracle.read(one.data_raw), data)
        extra = value["metadata"].get("extra")
        assert json_oracle.same(None if answer.extra is None else json_oracle.read(answer.extra), extra)


@given(almost_bodies())
def test_the_fast_and_the_exact_way_give_the_same_answer(body: bytes) -> None:
    answers = read_single(body), read_batch(body), read_batch(body, parent_allowed=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(envelope, "_prove_single", lambda body: None)
        patched.setattr(envelope, "_prove_batch", lambda body, parent_allowed: None)
        assert answers == (read_single(body), read_batch(body), read_batch(body, parent_allowed=True))


def test_an_ordinary_body_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_read_exactly", None)
    assert isinstance(read_single(single(target=None, previous_length=3, extra={"é": "a:b"})), Envelope)
    assert isinstance(read_batch(batch(*[event(data={"a": [{}]})] * 100)), Envelope)
