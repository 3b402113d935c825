"""A request to append becomes an append, or the refusal that the contract's table names first."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from gateway.admit.append import Fault, before_the_head, compose
from gateway.admit.preconditions import NOTHING_ASKED
from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, OF_BATCH, Appended, event_identity, identity
from gateway.errors import REFUSALS, Refusal
from gateway.events import Event, Stream
from spec.model import Spec
from tests.core.appends import (
    CORRELATION_ID,
    EVENT_BYTES_MAX,
    IF_MATCH_5,
    NOW_MS,
    OTHER_V7,
    SPEC,
    SPEC_REV,
    TENANT,
    UUID,
    V7,
    admitted,
    asked,
    batch,
    event,
    minted,
    minted_id,
    minting,
    one,
    place,
    refused,
    several,
    single,
)

STRANGER = {"type": "stranger", "id": UUID}
NOBODY = {"type": "user", "id": "nobody"}
LONG = "x" * EVENT_BYTES_MAX  # two quotes more than an event may have


def at_fault(answer: object) -> tuple[str, str | None, int]:
    assert isinstance(answer, Refusal), answer
    assert answer.error.endswith("."), answer
    return answer.code, answer.path, answer.http_status


# ---- what is admitted ----


def test_an_event_is_made_of_path_body_and_minting() -> None:
    body = (
        b'{"data": {"email" : "\\u0061", "n": 1.50},'
        b' "metadata": {"actor": {"type": "user", "id": "%b"},'
        b' "target": {"type": "order", "id": "abc1o3xyi"}, "previous_length": 5,'
        b' "causation_id": "B0000000-0000-1000-8000-000000000000", "extra": {"note" : 1}}}'
    ) % UUID.upper().encode()
    append = admitted(one(body))
    assert append.stream == Stream(TENANT, "order", UUID)
    assert append.events == (
        Event(
            id=minted_id(1),
            type="was_placed",
            actor_type="user",
            actor_id=UUID,
            target_type="order",
            target_id="ABC103XY1",
            correlation_id=CORRELATION_ID,
            causation_id=uuid.UUID("b0000000-0000-1000-8000-000000000000").bytes,
            spec_rev=SPEC_REV,
            recorded_at_ms=NOW_MS,
            extra=b'{"note" : 1}',
            payload=b'{"email" : "\\u0061", "n": 1.50}',
        ),
    )
    assert append.expected == 5
    assert append.chosen == ()
    assert append.identities == (event_identity(TENANT, minted_id(1)),)
    assert append.request_digest == b""


def test_what_is_optional_is_none() -> None:
    (made,) = admitted(one(single())).events
    assert (made.target_type, made.target_id, made.causation_id, made.extra) == (None, None, None, None)


def test_only_the_gateway_s_own_import_acts_as_its_importer() -> None:
    body = single(actor={"type": "system_importer", "id": "test_data_importer"})
    importing = msgspec.structs.replace(minting(), importing=True)
    (made,) = admitted(compose(SPEC, place(), NOTHING_ASKED, body, importing)).events
    assert (made.actor_type, made.actor_id) == ("system_importer", "test_data_importer")
    assert refused(one(body))[0] == "unknown_actor_type"


def test_an_unknown_type_of_actor_or_target_is_answered_with_the_nearest_declared_one() -> None:
    actor = one(single(actor={"type": "usr", "id": UUID}))
    target = one(single(target={"type": "ordr", "id": UUID}))
    assert isinstance(actor, Fault) and isinstance(target, Fault)
    assert actor.refusal.error == "The spec's agent_types do not name 'usr' (did you mean `user`?)."
    assert target.refusal.error == "The spec's target_types do not name 'ordr' (did you mean `order`?)."


def test_a_singleton_may_act_and_be_acted_upon() -> None:
    actor, target = {"type": "user", "id": "till"}, {"type": "order", "id": "global"}
    (made,) = admitted(one(single(actor=actor, target=target))).events
    assert (made.actor_id, made.target_id) == ("till", "global")


def test_the_events_of_a_batch_keep_their_order_and_share_its_metadata() -> None:
    target = {"type": "order", "id": UUID}
    body = batch(event("was_noted", 1), event("had_items", [2]), event("was_noted", 3), target=target)
    append = admitted(several(body))
    assert [(made.id, made.type, made.payload) for made in append.events] == [
        (minted_id(1), "was_noted", b"1"),
        (minted_id(2), "had_items", b"[2]"),
        (minted_id(3), "was_noted", b"3"),
    ]
    assert {(made.actor_id, made.target_id, made.correlation_id) for made in append.events} == {
        (UUID, UUID, CORRELATION_ID)
    }
    assert append.append_id == minted_id(1)
    assert append.committed_at(7) == Appended(UUID, 7, (minted_id(1), minted_id(2), minted_id(3)))
    assert append.committed_at(7).length == 9
    assert append.request_digest == b""


def test_only_a_batch_of_one_event_says_that_it_is_one() -> None:
    assert admitted(several(batch(event("was_noted", 1)))).form == OF_BATCH
    assert admitted(several(batch(event("was_noted", 1), event("was_noted", 2)))).form is None
    assert admitted(one(single())).form is None


def test_only_an_append_whose_request_was_of_one_event_is_single() -> None:
    assert admitted(one(single())).is_single
    assert not admitted(several(batch(event("was_noted", 1)))).is_single
    assert not admitted(several(batch(event("was_noted", 1), event("was_noted", 2)))).is_single


def test_an_event_has_the_id_that_its_client_chose_and_none_is_minted_for_it() -> None:
    append = admitted(one(single(event_id=V7.upper())))
    chosen = uuid.UUID(V7).bytes
    assert [made.id for made in append.events] == [chosen]
    assert append.chosen == append.identities == (event_identity(TENANT, chosen),)
    assert append.retry.chosen_events == (chosen,)


def test_a_batch_may_choose_some_of_its_ids() -> None:
    append = admitted(several(batch(event(), event(event_id=V7), event(), event(event_id=OTHER_V7))))
    v7, other = uuid.UUID(V7).bytes, uuid.UUID(OTHER_V7).bytes
    assert [made.id for made in append.events] == [minted_id(1), v7, minted_id(2), other]
    assert append.chosen == (event_identity(TENANT, v7), event_identity(TENANT, other))
    assert append.identities == (event_identity(TENANT, minted_id(1)), *append.chosen)


def test_a_key_against_repeats_is_an_identity_beside_the_ids() -> None:
    append = admitted(one(single(event_id=V7), asked((b"idempotency-key", b"k"))))
    v7 = event_identity(TENANT, uuid.UUID(V7).bytes)
    assert append.chosen == append.identities == (v7, identity(TENANT, "key", b"k"))


# ---- the length asked for ----


@pytest.mark.parametrize(
    ("headers", "metadata", "expected"),
    [
        ([], {}, ANY_LENGTH),
        ([], {"skip_occ": True}, ANY_LENGTH),
        ([], {"previous_length": 0}, 0),
        ([(b"if-match", b'"5"')], {}, 5),
        ([(b"if-match", b'"5"')], {"previous_length": 5}, 5),
        ([(b"if-match", b"*")], {}, AT_LEAST_ONE),
        ([(b"if-match", b"*")], {"previous_length": 2}, 2),
        ([(b"if-none-match", b"*")], {}, 0),
    ],
)
def test_headers_and_body_ask_for_one_length(
    headers: list[tuple[bytes, bytes]], metadata: dict[str, Any], expected: int
) -> None:
    assert admitted(one(single(**metadata), asked(*headers))).expected == expected


@pytest.mark.parametrize("metadata", [{"previous_length": 6}, {"skip_occ": True}])
def test_a_header_that_contradicts_the_body_is_at_fault(metadata: dict[str, Any]) -> None:
    assert refused(one(single(**metadata), IF_MATCH_5)) == ("invalid_field", "If-Match", 422)


@pytest.mark.parametrize(
    ("headers", "metadata"),
    [([], {}), ([], {"previous_length": 0}), ([(b"if-match", b'"0"')], {}), ([(b"if-none-match", b"*")], {})],
)
def test_a_new_aggregate_has_no_events_before(
    headers: list[tuple[bytes, bytes]], metadata: dict[str, Any]
) -> None:
    assert admitted(minted(batch(event(), **metadata), asked(*headers))).expected == 0


@pytest.mark.parametrize(
    ("headers", "metadata", "path"),
    [
        ([], {"previous_length": 3}, "metadata.previous_length"),
        ([(b"if-match", b'"3"')], {}, "If-Match"),
        ([(b"if-match", b"*")], {}, "If-Match"),
        ([(b"if-match", b'"0"')], {"previous_length": 3}, "If-Match"),
    ],
)
def test_a_new_aggregate_is_of_no_other_length(
    headers: list[tuple[bytes, bytes]], metadata: dict[str, Any], path: str
) -> None:
    assert refused(minted(batch(event(), **metadata), asked(*headers))) == ("invalid_field", path, 422)


# ---- refusals, each with its place ----

SINGLE_FAULTS = [
    (b"{", ("invalid_json", None, 400)),
    (b"[]", ("invalid_field", None, 422)),
    (b'{"data": {}}', ("missing_field", "metadata", 422)),
    (
        b'{"data": {}, "metadata": {"actor": {"type": "user", "id": "x"}, "x": 1}}',
        ("unknown_field", "metadata.x", 422),
    ),
    (single(previous_length=1, skip_occ=True), ("invalid_field", "metadata.skip_occ", 422)),
    (single(actor=STRANGER), ("unknown_actor_type", "metadata.actor.type", 422)),
    (single(actor={"type": "system_x", "id": UUID}), ("unknown_actor_type", "metadata.actor.type", 422)),
    (single(target=STRANGER), ("unknown_target_type", "metadata.target.type", 422)),
    (single(actor=NOBODY), ("invalid_identifier", "metadata.actor.id", 422)),
    (single(target={"type": "order", "id": ""}), ("invalid_identifier", "metadata.target.id", 422)),
    (single({"email": 1}), ("schema_violation", "data.email", 422)),
    (single({"items": [1, "2"]}), ("schema_violation", "data.items[1]", 422)),
    (single(5), ("schema_violation", "data", 422)),
    (single(LONG), ("too_large", "data", 413)),
]


@pytest.mark.parametrize(("body", "answer"), SINGLE_FAULTS)
def test_a_single_append_is_refused_with_the_place_at_fault(
    body: bytes, answer: tuple[str, str | None, int]
) -> None:
    assert refused(one(body)) == answer


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"{", ("invalid_json", None, 400)),
        (b"[]", ("invalid_field", None, 422)),
        (b'{"events": 1, "metadata": {}}', ("missing_field", "metadata.actor", 422)),
        (batch(), ("invalid_field", "events", 422)),
        (batch(1), ("invalid_field", "events[0]", 422)),
        (batch(event(), {"data": 1}), ("missing_field", "events[1].type", 422)),
        (batch(event(), event("_x")), ("reserved_event_type", "events[1].type", 422)),
        (batch(event(), event("was_eaten")), ("unknown_event_type", "events[1].type", 422)),
        (batch(event(), event("")), ("unknown_event_type", "events[1].type", 422)),
        (batch(event(), event(data=LONG)), ("too_large", "events[1].data", 413)),
        (batch(event(), event(data={"email": 1})), ("schema_violation", "events[1].data.email", 422)),
        (batch(event(), event("had_items", [1, "2"])), ("schema_violation", "events[1].data[1]", 422)),
        (batch(event(), event("had_items")), ("schema_violation", "events[1].data", 422)),
        (batch(event(), actor=STRANGER), ("unknown_actor_type", "metadata.actor.type", 422)),
    ],
)
def test_a_batch_is_refused_with_the_place_at_fault(body: bytes, answer: tuple[str, str | None, int]) -> None:
    assert refused(several(body)) == answer


def test_data_may_be_as_long_as_the_limit() -> None:
    data = "x" * (EVENT_BYTES_MAX - 2)
    assert admitted(one(single(data), event_type="was_noted")).size_bytes > EVENT_BYTES_MAX
    assert len(admitted(several(batch(event("was_noted", data), event("was_noted", data)))).events) == 2


# ---- refusals, in the order of the table ----

# From the last to the first: each brings its fault into a body that has all the later ones.
BATCH_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("schema_violation", {"data": {"email": 1}}),
    ("invalid_identifier", {"target": {"type": "order", "id": "nobody"}}),
    ("invalid_identifier", {"actor": NOBODY}),
    ("unknown_target_type", {"target": {"type": "stranger", "id": "nobody"}}),
    ("unknown_actor_type", {"actor": {"type": "stranger", "id": "nobody"}}),
    ("invalid_field", {"previous_length": 6}),
    ("invalid_field", {"skip_occ": 1}),
    ("unknown_field", {"unknown": 1}),
    ("too_large", {"data": {"email": [LONG]}}),
    ("unknown_event_type", {"type": "was_eaten"}),
    ("reserved_event_type", {"type": "_x"}),
]


def test_of_all_faults_of_a_batch_the_first_of_the_table_answers() -> None:
    sent: dict[str, Any] = {}
    for code, fault in BATCH_FAULTS:
        sent |= fault
        metadata = {name: value for name, value in sent.items() if name not in ("data", "type")}
        last = event(sent.get("type", "was_placed"), sent["data"])
        body = batch(event("was_eaten") if code == "reserved_event_type" else event(), last, **metadata)
        assert refused(several(body, IF_MATCH_5))[0] == code
    codes = [code for code, _ in reversed(BATCH_FAULTS)]
    assert set(codes) <= set(REFUSALS)


def test_of_all_faults_of_a_single_append_the_first_of_the_table_answers() -> None:
    sent: dict[str, Any] = {}
    for code, fault in BATCH_FAULTS[:-2]:
        sent |= fault
        metadata = {name: value for name, value in sent.items() if name != "data"}
        assert refused(one(single(sent["data"], **metadata), IF_MATCH_5))[0] == code


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"data": "%b"}' % LONG.encode(), "data"),
        (b'{"metadata": 1, "data": "%b", "x": 1}' % LONG.encode(), "data"),
    ],
)
def test_data_that_is_too_large_is_refused_before_the_envelope(body: bytes, path: str) -> None:
    assert refused(one(body)) == ("too_large", path, 413)


def test_a_text_that_is_no_json_has_no_size_of_data() -> None:
    assert refused(one(b'{"data": "%b", "data": 1}' % LONG.encode()))[0] == "invalid_json"
    assert refused(several(b'{"events": [{"data": "%b"}]' % LONG.encode()))[0] == "invalid_json"


@pytest.mark.parametrize("body", [b'["%b"]', b'{"metadata": "%b"}', b'{"x": "%b", "data": 1}'])
def test_a_long_body_without_long_data_is_refused_for_its_envelope(body: bytes) -> None:
    assert refused(one(body % LONG.encode()))[2] == 422


@pytest.mark.parametrize(
    "body", [b'{"events": {"data": "%b"}}', b'{"events": ["%b"]}', b'{"events": [{"x": "%b"}, {"data": 1}]}']
)
def test_a_long_batch_without_long_data_is_refused_for_its_envelope(body: bytes) -> None:
    assert refused(several(body % LONG.encode()))[2] == 422


def test_the_place_of_large_data_is_found_in_a_batch_without_metadata() -> None:
    body = json.dumps({"events": [{"data": 1}, {"type": 1, "data": LONG}]}).encode()
    assert refused(several(body)) == ("too_large", "events[1].data", 413)


# ---- batches whose path or headers are refused ----

NO_TYPE = Refusal("unknown_aggregate_type", "No such type.", "type")
NO_KEY = Refusal("invalid_identifier", "No such id.", "key")
NO_HEADER = Refusal("invalid_field", "No such length.", "If-Match")
RESERVED = ("reserved_event_type", "events[1].type", 422)
UNKNOWN = ("unknown_event_type", "events[1].type", 422)


@pytest.mark.parametrize(
    ("spec", "aggregate", "refusal", "name", "answer"),
    [
        (None, "order", NO_TYPE, "_x", RESERVED),
        (SPEC, "nothing", NO_TYPE, "_x", RESERVED),
        (SPEC, "nothing", NO_TYPE, "was_eaten", at_fault(NO_TYPE)),
        (None, "order", NO_TYPE, "was_eaten", at_fault(NO_TYPE)),
        (SPEC, "order", NO_KEY, "_x", RESERVED),
        (SPEC, "order", NO_KEY, "was_eaten", UNKNOWN),
        (SPEC, "order", NO_KEY, "was_placed", at_fault(NO_KEY)),
        (SPEC, "order", NO_HEADER, "_x", RESERVED),
        (SPEC, "order", NO_HEADER, "was_eaten", UNKNOWN),
        (SPEC, "order", NO_HEADER, "was_placed", at_fault(NO_HEADER)),
    ],
)
def test_event_types_of_a_batch_are_looked_at_where_those_of_a_path_are(
    spec: Spec | None, aggregate: str, refusal: Refusal, name: str, answer: tuple[str, str, int]
) -> None:
    body = json.dumps({"events": [1, {"type": name}, {"type": "_y"}, {"type": 1}]}).encode()
    if not name.startswith("_"):
        body = body.replace(b'"_y"', b'"was_noted"')
    assert at_fault(before_the_head(spec, aggregate, body, refusal)) == answer


def test_a_reserved_type_comes_before_an_unknown_one_wherever_they_stand() -> None:
    body = batch(event("was_eaten"), event("_x"))
    assert refused(several(body)) == RESERVED
    assert at_fault(before_the_head(SPEC, "order", body, NO_KEY)) == RESERVED
    assert refused(several(body[:-1] + b', "x": 1}')) == RESERVED


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"{}", b'{"events": {}}', b'{"events": []}'])
def test_a_body_without_event_types_changes_nothing(body: bytes) -> None:
    assert before_the_head(SPEC, "order", body, NO_KEY) is NO_KEY


def test_a_status_is_the_one_of_the_table_or_the_refusals_own() -> None:
    assert {code: Refusal(code, "").http_status for code in REFUSALS} == {
        code: rule.status for code, rule in REFUSALS.items()
    }
    assert Refusal("bad_request", "", status=431).http_status == 431
