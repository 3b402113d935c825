"""Which requests are the same one, and what a repeated one is recognized by."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from gateway.admit.address import Address, minting_address
from gateway.admit.append import SPEC_REFUSALS, Fault, compose, retry_of
from gateway.admit.preconditions import NOTHING_ASKED, Asked
from gateway.appends import ANY_LENGTH, Append, Retry, identity, request_digest
from gateway.errors import Refusal
from tests.core.appends import (
    EVENT_BYTES_MAX,
    IF_MATCH_5,
    NOW_MS,
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
    minting,
    one,
    place,
    several,
    single,
)

BAD_KEY = "not an id"
KEY = (b"idempotency-key", b"k")
KEYED = asked(KEY, (b"if-match", b'"5"'))
STRANGER = {"type": "stranger", "id": UUID}
NOBODY = {"type": "user", "id": "nobody"}
LONG = "x" * EVENT_BYTES_MAX  # two quotes more than an event may have


# ---- what makes a request the same ----


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
        compose(SPEC, place("was_noted"), KEYED, single(), minting()),
        compose(SPEC, place(key="global"), KEYED, single(), minting()),
        compose(SPEC, place(), KEYED, single() + b" ", minting()),
        compose(SPEC, place(), KEYED, single({"n": 1}), minting()),
        compose(SPEC, place(), asked(KEY), single(), minting()),
        compose(SPEC, place(), asked(KEY), single(previous_length=5), minting()),
        compose(SPEC, place(), asked(KEY, (b"if-match", b'"6"')), single(), minting()),
        compose(SPEC, place(), asked(KEY, (b"if-match", b"*")), single(), minting()),
        compose(SPEC, place(), asked(KEY, (b"if-none-match", b"*")), single(), minting()),
    ],
    ids=["type", "key", "blank", "data", "any length", "in the body", "other length", "at least one", "none"],
)
def test_another_path_body_or_version_is_another_request(other: Append | Fault) -> None:
    first = admitted(compose(SPEC, place(), KEYED, single(), minting()))
    assert admitted(other).request_digest != first.request_digest


@pytest.mark.parametrize(
    ("length", "headers"),
    [
        (5, [b'if-match: "5"', b'if-match: "5.r9"', b"if-match: *"]),
        (0, [b'if-match: "0"', b"if-none-match: *"]),
    ],
)
def test_a_header_that_repeats_the_version_of_the_body_makes_no_other_request(
    length: int, headers: list[bytes]
) -> None:
    body = single(previous_length=length)
    first = admitted(compose(SPEC, place(key=UUID), asked(KEY), body, minting()))
    assert first.request_digest == request_digest(f"/order/{UUID}/was_placed", body, ANY_LENGTH)
    for header in headers:
        name, _, value = header.partition(b": ")
        again = asked(KEY, (name, value))
        assert admitted(compose(SPEC, place(key=UUID), again, body, minting())).retry == first.retry
        assert retry_of(None, TENANT, "order", UUID, "was_placed", again, body) == first.retry


@pytest.mark.parametrize("header", [(b"if-match", b'"0"'), (b"if-none-match", b"*")])
def test_a_header_that_says_what_minting_says_makes_no_other_request(header: tuple[bytes, bytes]) -> None:
    body = batch(event(event_id=V7))
    first, again = admitted(minted(body)), asked(header)
    assert admitted(minted(body, again)).retry == first.retry
    assert retry_of(None, TENANT, "order", None, None, again, body) == first.retry


def test_a_header_that_contradicts_the_body_is_no_repeat_of_what_only_the_body_said() -> None:
    """Where the type is refused today, that comes first."""
    body = batch(event("was_eaten", event_id=V7), previous_length=5)
    plain, contradicted = several(body), several(body, asked((b"if-match", b'"6"')))
    assert isinstance(plain, Fault)
    assert isinstance(contradicted, Fault)
    assert plain.retry is not None
    assert contradicted.retry is not None
    assert contradicted.retry.request_digest != plain.retry.request_digest


def test_a_request_that_names_an_identity_is_digested_whole() -> None:
    one = admitted(compose(SPEC, place(key=UUID), asked(KEY), single(), minting()))
    assert one.request_digest == request_digest(f"/order/{UUID}/was_placed", single(), ANY_LENGTH)
    body = batch(event(event_id=V7), event())
    assert admitted(several(body)).request_digest == request_digest(f"/order/{UUID}", body, ANY_LENGTH)


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


def test_a_full_tenant_is_refused_last_and_the_fault_keeps_what_its_original_is_found_by() -> None:
    full = msgspec.structs.replace(minting(), not_stored=Refusal("storage_full", "It is full."))
    fault = compose(SPEC, place(), NOTHING_ASKED, single(event_id=V7), full)
    assert isinstance(fault, Fault)
    assert fault.refusal.code in SPEC_REFUSALS
    assert fault.retry is not None
    assert fault.retry.chosen_events == (uuid.UUID(V7).bytes,)
    earlier = compose(SPEC, place(), NOTHING_ASKED, single(actor=NOBODY), full)
    assert isinstance(earlier, Fault)
    assert earlier.refusal.code == "invalid_identifier"


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
    original = admitted(minted(body))
    assert retry_of(None, TENANT, "order", None, None, NOTHING_ASKED, body) == original.retry


def test_a_request_without_an_identity_of_its_own_is_not_recognized() -> None:
    assert retry_of(SPEC, TENANT, "order", UUID, "was_eaten", IF_MATCH_5, single()) is None
    assert retry_of(SPEC, TENANT, "order", UUID, None, IF_MATCH_5, b"{") is None


def test_a_key_is_recognized_beside_a_body_that_can_not_be_read() -> None:
    retry = retry_of(SPEC, TENANT, "order", BAD_KEY, "was_placed", KEYED, b"{")
    digest = request_digest(f"/order/{BAD_KEY}/was_placed", b"{", 5)
    assert retry == Retry(TENANT, (identity(TENANT, "key", b"k"),), (), digest)
