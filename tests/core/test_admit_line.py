"""A line of a bulk request is judged as a request of its own would be."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit.address import address, misnamed
from gateway.admit.append import Fault, compose
from gateway.admit.envelope import Shared
from gateway.admit.line import judge_line
from gateway.admit.preconditions import NOTHING_ASKED, Asked
from gateway.appends import Append, event_identity, identity
from gateway.errors import Refusal
from spec.model import Spec
from tests.core.appends import (
    ACTOR,
    EVENT_BYTES_MAX,
    SPEC,
    TENANT,
    UUID,
    V7,
    admitted,
    minting,
    place,
    refused,
    single,
)

LEAST: dict[str, Any] = {
    "aggregate_type": "order",
    "key": UUID,
    "type": "was_placed",
    "data": {},
    "metadata": {"actor": ACTOR},
}


def line(*without: str, **changes: Any) -> bytes:
    sent = LEAST | changes
    return json.dumps({name: value for name, value in sent.items() if name not in without}).encode()


def judged(text: bytes, spec: Spec | None = SPEC) -> Append | Fault:
    """By itself, and the same after a line with the same metadata."""
    known: dict[bytes, Shared] = {}
    first, second = (judge_line(spec, text, minting(), known) for _ in range(2))
    if isinstance(first, Fault):
        assert second == first
    else:
        assert isinstance(second, Append)
        assert second.retry == first.retry
        assert len(known) == 1
    return second


# ---- what is admitted ----


TWICE = (b'"key":"a",', b'"data":{},', b'"metadata":{},', b'"type":"a:b",', b'"idempotency_key":"k",')


@pytest.mark.parametrize("more", TWICE)
def test_a_field_that_is_given_twice_is_refused_as_in_any_body(more: bytes) -> None:
    fault = judged(line(idempotency_key="k").replace(b"{", b"{" + more, 1))
    assert isinstance(fault, Fault)
    assert fault.refusal.code == "invalid_json"
    assert "body" not in fault.refusal.error


def test_colons_in_what_stands_around_a_body_are_no_keys() -> None:
    assert isinstance(judged(line(idempotency_key="a:b:c")), Append)


def test_further_metadata_is_kept_and_its_colons_are_counted() -> None:
    append = admitted(judged(line(metadata={"actor": ACTOR, "extra": {"a:b": {"c": "d:e"}}})))
    assert append.events[0].extra == b'{"a:b": {"c": "d:e"}}'


@pytest.mark.parametrize("again", [b'"a:b":1,', b'"a:b":{"c":0},'])
def test_a_key_that_stands_twice_in_further_metadata_is_refused(again: bytes) -> None:
    text = line(metadata={"actor": ACTOR, "extra": {"a:b": {"c": "d:e"}}})
    fault = judged(text.replace(b'"extra": {', b'"extra": {' + again))
    assert isinstance(fault, Fault)
    assert fault.refusal.code == "invalid_json"


def test_a_line_gives_the_append_that_a_request_of_its_own_gives() -> None:
    text = (
        b' {"type": "was_noted", "key": "%b", "aggregate_type": "order",\t"data" : [1.50, "\\u0061"] ,'
        b' "metadata": {"actor": {"id": "global", "type": "user"}, "previous_length": 2, "event_id": "%b"}}'
    ) % (UUID.upper().encode(), V7.encode())
    body = (
        b'{"data":[1.50, "\\u0061"],'
        b'"metadata":{"actor": {"id": "global", "type": "user"}, "previous_length": 2, "event_id": "%b"}}'
    ) % V7.encode()
    append = admitted(judged(text))
    single_append = admitted(compose(SPEC, place("was_noted"), NOTHING_ASKED, body, minting()))
    assert (append.stream, append.events) == (single_append.stream, single_append.events)
    assert (append.expected, append.retry) == (2, single_append.retry)
    assert append.events[0].payload == b'[1.50, "\\u0061"]'


def test_a_line_is_the_same_whatever_its_blanks_and_the_order_of_its_fields() -> None:
    plain = line(idempotency_key="k")
    turned = json.dumps(dict(reversed(json.loads(plain).items())), separators=(" ,", " : ")).encode()
    spelled = plain.replace(UUID.encode(), UUID.upper().encode(), 1)
    assert admitted(judged(spelled)).retry == admitted(judged(plain)).retry
    assert admitted(judged(turned)).chosen == admitted(judged(plain)).chosen


@pytest.mark.parametrize(
    "other",
    [
        {"type": "was_noted"},
        {"key": "till"},
        {"data": {"n": 1}},
        {"metadata": {"actor": ACTOR, "skip_occ": False}},
    ],
    ids=["type", "key", "data", "metadata"],
)
def test_a_line_of_another_place_or_with_other_bytes_is_another_request(other: dict[str, Any]) -> None:
    keyed = line(idempotency_key="k")
    assert (
        admitted(judged(line(idempotency_key="k", **other))).request_digest
        != admitted(judged(keyed)).request_digest
    )


def test_a_line_may_have_a_key_against_repeats() -> None:
    assert admitted(judged(line(idempotency_key="k"))).chosen == (identity(TENANT, "key", b"k"),)
    assert admitted(judged(line(idempotency_key="~" * 255))).chosen
    assert admitted(judged(line(idempotency_key=None))).chosen == ()
    assert admitted(judged(line())).chosen == ()


def test_a_key_of_a_line_and_one_of_a_header_are_one_key() -> None:
    body = single().replace(b'{"data": {}, "metadata": ', b'{"data":{},"metadata":')
    alone = admitted(compose(SPEC, place(), Asked(idempotency_key="k"), body, minting()))
    assert admitted(judged(line(idempotency_key="k"))).retry == alone.retry


# ---- what is refused ----


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"", ("invalid_json", None, 400)),
        (b"{", ("invalid_json", None, 400)),
        (b'{"key": 1, "key": 1}', ("invalid_json", None, 400)),
        (b'{"key": "\\u0000"}', ("invalid_json", None, 400)),
        (b"[]", ("invalid_field", None, 422)),
        (b"null", ("invalid_field", None, 422)),
        (b"{}", ("missing_field", "aggregate_type", 422)),
        (line("key"), ("missing_field", "key", 422)),
        (line("type"), ("missing_field", "type", 422)),
        (line("data"), ("missing_field", "data", 422)),
        (line("metadata"), ("missing_field", "metadata", 422)),
        (line(x=1), ("unknown_field", "x", 422)),
        (line(**{"y" * 65: 1}), ("unknown_field", "y" * 64 + "…", 422)),
        (line(events=[{}]), ("unknown_field", "events", 422)),
        (line(aggregate_type=1), ("invalid_field", "aggregate_type", 422)),
        (line(key=None), ("invalid_field", "key", 422)),
        (line(type=["was_placed"]), ("invalid_field", "type", 422)),
        (line(idempotency_key=1), ("invalid_field", "idempotency_key", 422)),
        (line(idempotency_key=""), ("invalid_field", "idempotency_key", 422)),
        (line(idempotency_key="a b"), ("invalid_field", "idempotency_key", 422)),
        (line(idempotency_key="ä"), ("invalid_field", "idempotency_key", 422)),
        (line(idempotency_key="k\n"), ("invalid_field", "idempotency_key", 422)),
        (line(idempotency_key="k" * 256), ("invalid_field", "idempotency_key", 422)),
        (line(type="_x"), ("reserved_event_type", "event_type", 422)),
        (line(aggregate_type="nothing"), ("unknown_aggregate_type", "type", 404)),
        (line(type="was_eaten"), ("unknown_event_type", "event_type", 404)),
        (line(key="not an id"), ("invalid_identifier", "key", 422)),
        (line(metadata=1), ("invalid_field", "metadata", 422)),
        (line(metadata={}), ("missing_field", "metadata.actor", 422)),
        (line(data="x" * EVENT_BYTES_MAX), ("too_large", "data", 413)),
        (line(data={"email": 1}), ("schema_violation", "data.email", 422)),
    ],
)
def test_a_line_is_refused_with_the_place_at_fault(text: bytes, answer: tuple[str, str | None, int]) -> None:
    assert refused(judged(text)) == answer


# From the last to the first: each brings its fault into a line that has all the later ones.
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("schema_violation", {"data": {"email": 1}}),
    ("unknown_actor_type", {"metadata": {"actor": {"type": "stranger", "id": "x"}}}),
    ("unknown_field", {"x": 1}),
    ("missing_field", {"metadata": {}}),
    ("too_large", {"data": "x" * EVENT_BYTES_MAX}),
    ("invalid_field", {"idempotency_key": ""}),
    ("invalid_identifier", {"key": "not an id"}),
    ("unknown_event_type", {"type": "was_eaten"}),
    ("unknown_aggregate_type", {"aggregate_type": "nothing"}),
    ("reserved_event_type", {"type": "_x"}),
]


def test_of_all_faults_of_a_line_the_first_of_the_table_answers() -> None:
    sent: dict[str, Any] = {}
    for code, fault in FAULTS:
        sent |= fault
        assert refused(judged(line(**sent)))[0] == code


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (line("key", type="_x"), ("reserved_event_type", "event_type", 422)),
        (line("aggregate_type", type="_x", key=1), ("reserved_event_type", "event_type", 422)),
        (line("key", aggregate_type="nothing"), ("unknown_aggregate_type", "type", 404)),
        (line(type=5, aggregate_type="nothing"), ("unknown_aggregate_type", "type", 404)),
        (line("key", type="was_eaten"), ("unknown_event_type", "event_type", 404)),
        (line("aggregate_type", type="was_eaten"), ("missing_field", "aggregate_type", 422)),
        (line("aggregate_type", "type", key="not an id"), ("invalid_identifier", "key", 422)),
        (line("data", idempotency_key="a b"), ("invalid_field", "idempotency_key", 422)),
        (line("metadata", idempotency_key=1), ("invalid_field", "idempotency_key", 422)),
        (line("metadata", data="x" * EVENT_BYTES_MAX), ("too_large", "data", 413)),
        (line("metadata", data={}, x="x" * EVENT_BYTES_MAX), ("missing_field", "metadata", 422)),
        (line(metadata={}, x=1), ("missing_field", "metadata.actor", 422)),
        (line(metadata={"actor": ACTOR, "note": 1}, key=5), ("unknown_field", "metadata.note", 422)),
    ],
)
def test_a_line_of_the_wrong_shape_is_refused_for_what_the_table_names_first(
    text: bytes, answer: tuple[str, str | None, int]
) -> None:
    assert refused(judged(text)) == answer


@pytest.mark.parametrize("spec", [SPEC, None])
@pytest.mark.parametrize(
    "names", list(itertools.product(["order", "nothing"], [UUID, "x"], ["was_placed", "_x", "x"]))
)
def test_names_in_a_line_are_refused_as_those_of_a_path(
    spec: Spec | None, names: tuple[str, str, str]
) -> None:
    place = address(spec, *names)
    assert misnamed(spec, *names) == (place if isinstance(place, Refusal) else None)


@pytest.mark.parametrize("text", [line(), line("data", aggregate_type="nothing"), line(key=1)])
def test_without_a_spec_no_line_is_admitted(text: bytes) -> None:
    fault = judged(text, None)
    assert refused(fault)[0] in ("unknown_aggregate_type", "invalid_field")


# ---- what a repeated line is answered by ----


def test_a_line_that_a_later_spec_refuses_is_recognized() -> None:
    text = line(idempotency_key="k", metadata={"actor": ACTOR, "event_id": V7})
    original = admitted(judged(text)).retry
    assert original.chosen == (event_identity(TENANT, uuid.UUID(V7).bytes), identity(TENANT, "key", b"k"))
    fault = judged(text, None)
    assert isinstance(fault, Fault)
    assert fault.retry == original


@pytest.mark.parametrize(
    "text",
    [
        line(type="was_eaten"),
        line(type="was_eaten", idempotency_key=""),
        line(type="was_eaten", idempotency_key=1),
        line(type="was_eaten", idempotency_key="k", x=1),
        line("data", type="was_eaten", idempotency_key="k"),
        line(idempotency_key="k", x=1),
    ],
    ids=["no identity", "a bad key", "no key", "an unknown field", "a missing field", "a known place"],
)
def test_what_no_spec_ever_accepted_has_no_original(text: bytes) -> None:
    fault = judged(text)
    assert isinstance(fault, Fault)
    assert fault.retry is None


names = st.sampled_from([*LEAST, "idempotency_key", "x"])
values = st.sampled_from(
    ["order", UUID, "was_placed", "_x", "", "\ud7ff", None, 1, 10**5000, 1e300, [], {}, {"actor": ACTOR}]
)


@given(st.dictionaries(names, values), st.sampled_from([SPEC, None]))
def test_any_object_is_an_append_or_a_refusal(changes: dict[str, Any], spec: Any) -> None:
    for sent in (changes, LEAST | changes):
        digits = json.dumps({name: "@" if value == 10**5000 else value for name, value in sent.items()})
        text = digits.replace('"@"', "1" + "0" * 5000).encode()
        assert isinstance(judged(text, spec), Append | Fault)


@given(st.binary())
def test_any_bytes_are_an_append_or_a_refusal(text: bytes) -> None:
    assert isinstance(judged(text), Append | Fault)
