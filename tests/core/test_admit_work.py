"""What judging a request takes is known before it is done, and too much of it is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.admit import line as lines
from gateway.admit.address import address
from gateway.admit.append import Append, Fault, compose, is_light
from gateway.admit.preconditions import NOTHING_ASKED
from tests.core.appends import ACTOR, MANY, SPEC, UUID, declared, minting

ROOMY = msgspec.structs.replace(minting(1 << 20), schema_work_max=1_000_000)


def judged(body: dict[str, Any], event_type: str | None) -> Append | Fault:
    place = address(MANY, "order", UUID, event_type)
    return compose(MANY, place, NOTHING_ASKED, json.dumps(body).encode(), ROOMY)  # type: ignore[arg-type]


def single(data: object) -> dict[str, Any]:
    return {"data": data, "metadata": {"actor": ACTOR}}


def batch(*events: tuple[str, object]) -> dict[str, Any]:
    listed = [{"type": name, "data": data} for name, data in events]
    return {"events": listed, "metadata": {"actor": ACTOR}}


def test_an_event_whose_check_would_take_too_long_is_refused() -> None:
    assert isinstance(judged(single([1] * 100), "was_placed"), Append)
    found = judged(single([1] * 200), "was_placed")
    assert isinstance(found, Fault)
    assert (found.refusal.code, found.refusal.path) == ("schema_violation", "data")
    assert found.refusal.error.startswith(
        "Checking this against the schema of was_placed could take over 1000000 "
    )
    assert isinstance(judged(single([1] * 200), "was_noted"), Append)


def test_the_events_of_a_batch_are_counted_together() -> None:
    assert isinstance(judged(batch(*[("was_placed", [1] * 50)] * 2), None), Append)
    found = judged(batch(("was_noted", [1] * 200), *[("was_placed", [1] * 50)] * 4), None)
    assert isinstance(found, Fault)
    assert (found.refusal.code, found.refusal.path) == ("schema_violation", "events[4].data")


@pytest.mark.parametrize(
    ("event_type", "values", "light"),
    [
        ("was_noted", 100, True),
        ("was_noted", 30_000, False),
        ("was_placed", 0, True),
        ("was_placed", 9, False),
    ],
)
def test_a_body_is_light_by_the_schema_that_judges_it(event_type: str, values: int, light: bool) -> None:
    body = b"[" + b"1," * values + b"1]"
    place = address(MANY, "order", UUID, event_type)
    assert is_light(place, body) is light  # type: ignore[arg-type]


def test_a_batch_is_light_by_the_heaviest_schema_of_its_aggregate() -> None:
    assert not is_light(address(MANY, "order", UUID, None), b"[1,2,3,4,5,6]")  # type: ignore[arg-type]
    assert is_light(address(SPEC, "order", UUID, None), b"[1,2,3,4,5,6]")  # type: ignore[arg-type]


def text(aggregate_type: str, event_type: str, values: int) -> bytes:
    sent = {"aggregate_type": aggregate_type, "key": UUID, "type": event_type, **single([1] * values)}
    return json.dumps(sent).encode()


def test_a_line_is_light_by_the_schema_that_it_names() -> None:
    assert lines.is_light(SPEC, text("order", "was_noted", 10))
    assert lines.is_light(MANY, text("order", "was_noted", 10))
    assert not lines.is_light(MANY, text("order", "was_noted", 30_000))
    assert not lines.is_light(MANY, text("order", "was_placed", 10))
    for unknown in (text("order", "was_lost", 10), text("thing", "was_noted", 10)):
        assert lines.is_light(MANY, unknown)
    assert not lines.is_light(MANY, text("thing", "was_noted", 30_000))


def test_a_line_that_is_none_is_light_if_it_is_short() -> None:
    assert lines.is_light(None, b"{")
    assert not lines.is_light(None, b"[" * 30_000)
    assert lines.is_light(MANY, b"{}" * 2)
    assert not lines.is_light(MANY, b"{" * 100)


def test_a_spec_without_events_weighs_the_least() -> None:
    empty = declared({"aggregate_types": {}, "agent_types": []})
    assert empty.weight == MANY.aggregate_types["list"].weight == 5
    assert MANY.weight > 5000
