"""What the path of an append names by the spec, or the first refusal of its parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.admit.address import Address, minting_address
from gateway.admit.address import address as address_of
from gateway.errors import Refusal
from spec.model import AggregateType, Spec
from tests.core.appends import (
    SPEC,
    UUID,
)

BAD_KEY = "not an id"


def at_fault(answer: object) -> tuple[str, str | None, int]:
    assert isinstance(answer, Refusal), answer
    assert answer.error.endswith("."), answer
    return answer.code, answer.path, answer.http_status


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


def test_an_unknown_name_is_answered_with_the_nearest_declared_one() -> None:
    kind = address_of(SPEC, "orders", UUID, None)
    event = address_of(SPEC, "order", UUID, "was_palced")
    strange = address_of(SPEC, "zzz", UUID, None)
    assert isinstance(kind, Refusal) and isinstance(event, Refusal) and isinstance(strange, Refusal)
    assert kind.error == "The spec declares no aggregate type 'orders' (did you mean `order`?)."
    assert event.error == "The spec declares no event 'was_palced' for 'order' (did you mean `was_placed`?)."
    assert strange.error == "The spec declares no aggregate type 'zzz'."


def test_a_refusal_repeats_only_the_start_of_a_long_name() -> None:
    name = "x" * 10_000
    for refusal in (address_of(SPEC, name, UUID, None), address_of(SPEC, "order", UUID, name)):
        assert isinstance(refusal, Refusal)
        assert len(refusal.error) < 200


def test_what_can_not_be_decoded_is_not_told_as_if_it_had_been_sent() -> None:
    for place, words in (
        (address_of(SPEC, "", UUID, "was_placed"), "can't be decoded"),
        (address_of(SPEC, "order", UUID, ""), "can't be decoded"),
        (address_of(SPEC, "order", None, "was_placed"), "control characters, or is `.` or `..`"),
    ):
        assert isinstance(place, Refusal)
        assert words in place.error
        assert "''" not in place.error


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


def test_what_a_deployment_has_closed_may_be_sent_again() -> None:
    order = SPEC.aggregate_types["order"]
    rest = {name: each for name, each in order.events.items() if name != "was_placed"}
    closing = replace(order, events=rest, closed=frozenset({"was_placed"}))
    spec = replace(SPEC, aggregate_types={"order": closing}, closed=frozenset({"cart"}))
    for names in (("order", UUID, "was_placed"), ("cart", UUID, None)):
        assert at_fault(address_of(spec, *names)) == ("not_committed", None, 503)
    assert at_fault(address_of(spec, "order", UUID, "was_never")) == ("unknown_event_type", "event_type", 404)
    assert at_fault(address_of(spec, "never", UUID, None)) == ("unknown_aggregate_type", "type", 404)
