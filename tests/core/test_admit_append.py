"""A request to append becomes an append, or the refusal that the contract's table names first."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from gateway.admit.append import (
    SPEC_REFUSALS,
    Address,
    Fault,
    before_the_head,
    compose,
    minting_address,
    retry_of,
)
from gateway.admit.append import address as address_of
from gateway.admit.preconditions import NOTHING_ASKED, Asked, read_asked
from gateway.errors import REFUSALS, Refusal
from gateway.events import (
    ANY_LENGTH,
    AT_LEAST_ONE,
    Append,
    Appended,
    Event,
    Retry,
    Stream,
    event_identity,
    identity,
    request_digest,
)
from spec.model import AggregateType, Spec
from tests.core.appends import (
    CORRELATION_ID,
    EVENT_BYTES_MAX,
    NOW_MS,
    OTHER_V7,
    SPEC,
    SPEC_REV,
    TENANT,
    UUID,
    V7,
    admitted,
    batch,
    event,
    minted_id,
    minting,
    place,
    refused,
    single,
)

BAD_KEY = "not an id"
STRANGER = {"type": "stranger", "id": UUID}
NOBODY = {"type": "user", "id": "nobody"}
LONG = "x" * EVENT_BYTES_MAX  # two quotes more than an event may have


def asked(*headers: tuple[bytes, bytes]) -> Asked:
    read = read_asked(headers)
    assert isinstance(read, Asked), read
    return read


def one(body: bytes, by: Asked = NOTHING_ASKED, event_type: str = "was_placed") -> Append | Fault:
    return compose(SPEC, place(event_type), by, body, minting())


def several(body: bytes, by: Asked = NOTHING_ASKED) -> Append | Fault:
    return compose(SPEC, place(None), by, body, minting())


def anew(body: bytes, by: Asked = NOTHING_ASKED) -> Append | Fault:
    """Posted to `/order`, where the gateway mints the key."""
    found = minting_address(SPEC, "order", lambda _: UUID)
    assert isinstance(found, Address), found
    return compose(SPEC, found, by, body, minting())


def at_fault(answer: object) -> tuple[str, str | None, int]:
    assert isinstance(answer, Refusal), answer
    assert answer.error.endswith("."), answer
    return answer.code, answer.path, answer.http_status


# ---- what the path names ----


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        ("abc1o3xyi", "ABC103XY1"),
        ("ABC103XY1", "ABC103XY1"),
        ("global", "global"),
        ("till", "till"),
        (f"{UUID.upper()}:live", f"{UUID}:live"),
    ],
)
def test_a_key_is_known_by_its_canonical_spelling(sent: str, key: str) -> None:
    order = SPEC.aggregate_types["order"]
    assert address_of(SPEC, "order", sent, "was_placed") == Address(
        order, key, order.events["was_placed"], f"/order/{key}/was_placed"
    )
    assert address_of(SPEC, "order", sent, None) == Address(order, key, None, f"/order/{key}")


@pytest.mark.parametrize(
    ("spec", "aggregate", "key", "event_type", "answer"),
    [
        (None, "nothing", None, "_x", ("reserved_event_type", "event_type", 422)),
        (SPEC, "nothing", None, "_x", ("reserved_event_type", "event_type", 422)),
        (None, "order", None, "was_placed", ("unknown_aggregate_type", "type", 404)),
        (SPEC, "nothing", None, "was_eaten", ("unknown_aggregate_type", "type", 404)),
        (SPEC, "order", None, "was_eaten", ("unknown_event_type", "event_type", 404)),
        (SPEC, "order", None, "was_placed", ("invalid_identifier", "key", 422)),
        (SPEC, "order", BAD_KEY, "was_placed", ("invalid_identifier", "key", 422)),
        (SPEC, "nothing", BAD_KEY, None, ("unknown_aggregate_type", "type", 404)),
        (SPEC, "order", BAD_KEY, None, ("invalid_identifier", "key", 422)),
        (SPEC, "order", None, None, ("invalid_identifier", "key", 422)),
    ],
)
def test_the_parts_of_a_path_are_refused_in_the_order_of_the_table(
    spec: Spec | None, aggregate: str, key: str | None, event_type: str | None, answer: tuple[str, str, int]
) -> None:
    assert at_fault(address_of(spec, aggregate, key, event_type)) == answer


def test_a_refusal_repeats_only_the_start_of_a_long_name() -> None:
    name = "x" * 10_000
    for refusal in (address_of(SPEC, name, UUID, None), address_of(SPEC, "order", UUID, name)):
        assert isinstance(refusal, Refusal)
        assert len(refusal.error) < 200


def test_a_new_aggregate_has_the_key_that_its_type_mints() -> None:
    def mint_key(aggregate_type: AggregateType) -> str:
        assert aggregate_type is SPEC.aggregate_types["order"]
        return "ABC103XY1"

    found = minting_address(SPEC, "order", mint_key)
    assert found == Address(SPEC.aggregate_types["order"], "ABC103XY1", None, "/order", minted=True)


@pytest.mark.parametrize("spec", [SPEC, None])
def test_no_aggregate_of_an_unknown_type_is_minted(spec: Spec | None) -> None:
    def mint_key(_: AggregateType) -> str:
        raise AssertionError("minted")

    assert at_fault(minting_address(spec, "nothing", mint_key)) == ("unknown_aggregate_type", "type", 404)


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
    assert append.request_digest == request_digest(f"/order/{UUID}/was_placed", body, ANY_LENGTH)


def test_what_is_optional_is_none() -> None:
    (made,) = admitted(one(single())).events
    assert (made.target_type, made.target_id, made.causation_id, made.extra) == (None, None, None, None)


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
    assert append.request_digest == request_digest(f"/order/{UUID}", body, ANY_LENGTH)


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


# ---- what makes a request the same ----

IF_MATCH_5 = asked((b"if-match", b'"5"'))


def test_a_repeat_in_other_spellings_of_path_and_headers_is_the_same_request() -> None:
    key = asked((b"idempotency-key", b"k"), (b"if-match", b'"5"'))
    first = admitted(compose(SPEC, place(key=UUID), key, single(), minting()))
    again = asked(
        (b"x-idempotency-key", b"k"),
        (b"if-match", b'"5.r9"'),
        (b"prefer", b"wait"),
        (b"x-correlation-id", b"?"),
    )
    later = msgspec.structs.replace(
        minting(), spec_rev=SPEC_REV + 1, now_ms=NOW_MS + 1, correlation_id=bytes(16)
    )
    repeat = admitted(compose(SPEC, place(key=UUID.upper()), again, single(), later))
    assert repeat.retry == first.retry
    assert repeat.events != first.events


@pytest.mark.parametrize(
    "other",
    [
        compose(SPEC, place("was_noted"), IF_MATCH_5, single(), minting()),
        compose(SPEC, place(key="global"), IF_MATCH_5, single(), minting()),
        compose(SPEC, place(), IF_MATCH_5, single() + b" ", minting()),
        compose(SPEC, place(), IF_MATCH_5, single({"n": 1}), minting()),
        compose(SPEC, place(), NOTHING_ASKED, single(), minting()),
        compose(SPEC, place(), NOTHING_ASKED, single(previous_length=5), minting()),
        compose(SPEC, place(), asked((b"if-match", b'"6"')), single(), minting()),
        compose(SPEC, place(), asked((b"if-match", b"*")), single(), minting()),
        compose(SPEC, place(), asked((b"if-none-match", b"*")), single(), minting()),
    ],
    ids=["type", "key", "blank", "data", "any length", "in the body", "other length", "at least one", "none"],
)
def test_another_path_body_or_version_is_another_request(other: Append | Fault) -> None:
    first = admitted(compose(SPEC, place(), IF_MATCH_5, single(), minting()))
    assert admitted(other).request_digest != first.request_digest


def test_a_new_aggregate_is_recognized_without_the_key_that_was_minted_for_it() -> None:
    body = batch(event(event_id=V7))

    def made(key: str) -> Append:
        found = minting_address(SPEC, "order", lambda _: key)
        assert isinstance(found, Address), found
        return admitted(compose(SPEC, found, NOTHING_ASKED, body, minting()))

    assert made(UUID).stream != made("ABC103XY1").stream
    assert made(UUID).retry == made("ABC103XY1").retry
    assert made(UUID).request_digest == request_digest("/order", body, ANY_LENGTH)
    assert made(UUID).request_digest != admitted(several(body)).request_digest


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
    assert admitted(anew(batch(event(), **metadata), asked(*headers))).expected == 0


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
    assert refused(anew(batch(event(), **metadata), asked(*headers))) == ("invalid_field", path, 422)


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


# ---- what a retry is answered by ----


def test_a_fault_keeps_what_a_committed_original_is_found_by_exactly_where_a_spec_may_have_changed() -> None:
    body = single(event_id=V7)
    retry = admitted(one(body)).retry
    for at_fault_now, code in [
        (single(event_id=V7, actor=STRANGER), "unknown_actor_type"),
        (single(event_id=V7, target=STRANGER), "unknown_target_type"),
        (single(event_id=V7, actor=NOBODY), "invalid_identifier"),
        (single({"email": 1}, event_id=V7), "schema_violation"),
    ]:
        fault = one(at_fault_now)
        assert isinstance(fault, Fault)
        assert (fault.refusal.code, code in SPEC_REFUSALS) == (code, True)
        assert fault.retry is not None
        assert fault.retry.chosen == retry.chosen


def test_a_batch_with_an_unknown_type_keeps_what_its_original_is_found_by() -> None:
    fault = several(batch(event("was_eaten", event_id=V7)))
    assert isinstance(fault, Fault)
    assert fault.retry is not None
    assert fault.retry.chosen_events == (uuid.UUID(V7).bytes,)


@pytest.mark.parametrize(
    ("body", "by"),
    [
        (b"{", NOTHING_ASKED),
        (single(event_id="x"), NOTHING_ASKED),
        (single(LONG, event_id=V7), NOTHING_ASKED),
        (single(event_id=V7, previous_length=6), IF_MATCH_5),
    ],
)
def test_what_no_spec_ever_accepted_has_no_original(body: bytes, by: Asked) -> None:
    fault = one(body, by)
    assert isinstance(fault, Fault)
    assert fault.retry is None


KEYED = asked((b"idempotency-key", b"k"), (b"if-match", b'"5"'))


@pytest.mark.parametrize("key", [UUID, UUID.upper(), "abc1o3xyi", "till"])
@pytest.mark.parametrize(
    ("event_type", "body"), [("was_placed", single(event_id=V7)), (None, batch(event(event_id=V7)))]
)
def test_a_request_that_a_later_spec_refuses_is_recognized(
    key: str, event_type: str | None, body: bytes
) -> None:
    original = admitted(compose(SPEC, place(event_type, key), KEYED, body, minting()))
    for later in (SPEC, None):
        assert retry_of(later, TENANT, "order", key, event_type, KEYED, body) == original.retry


def test_a_request_to_mint_is_recognized_though_its_type_is_gone() -> None:
    body = batch(event(event_id=V7))
    original = admitted(anew(body))
    assert retry_of(None, TENANT, "order", None, None, NOTHING_ASKED, body) == original.retry


def test_a_request_without_an_identity_of_its_own_is_not_recognized() -> None:
    assert retry_of(SPEC, TENANT, "order", UUID, "was_eaten", IF_MATCH_5, single()) is None
    assert retry_of(SPEC, TENANT, "order", UUID, None, IF_MATCH_5, b"{") is None


def test_a_key_is_recognized_beside_a_body_that_can_not_be_read() -> None:
    retry = retry_of(SPEC, TENANT, "order", BAD_KEY, "was_placed", KEYED, b"{")
    digest = request_digest(f"/order/{BAD_KEY}/was_placed", b"{", 5)
    assert retry == Retry(TENANT, (identity(TENANT, "key", b"k"),), (), digest)


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
