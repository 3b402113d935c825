"""How many arrays and objects a body may have."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gateway.admit.append import Fault
from gateway.admit.envelope import read_batch, read_single
from gateway.admit.line import judge_line
from gateway.admit.strict_json import CROWDED, NESTED_MAX, decode, decode_exactly
from gateway.errors import Refusal
from tests.core.appends import ACTOR, SPEC, UUID, minting


@pytest.mark.parametrize("read", [decode, decode_exactly])
def test_as_many_as_permitted_are_read_and_one_more_is_refused(read: Callable[[bytes], object]) -> None:
    permitted = b"[" + b",".join([b"{}"] * (NESTED_MAX - 1)) + b"]"
    assert read(permitted) == [{}] * (NESTED_MAX - 1)
    assert read(b" [" + permitted + b"]") is CROWDED


def test_data_with_too_many_is_refused_in_every_kind_of_append() -> None:
    data = "[" + ",".join(["{}"] * NESTED_MAX) + "]"
    metadata = f'"metadata":{json.dumps({"actor": ACTOR})}'
    single = f'{{"data":{data},{metadata}}}'
    batch = f'{{"events":[{{"type":"was_placed","data":{data}}}],{metadata}}}'
    line = f'{{"aggregate_type":"order","key":"{UUID}","type":"was_placed","data":{data},{metadata}}}'
    refusal = Refusal("invalid_json", CROWDED.reason)
    assert read_single(single.encode()) == refusal
    assert read_batch(batch.encode()) == refusal
    judged = judge_line(SPEC, line.encode(), minting(), {})
    assert isinstance(judged, Fault)
    assert judged.refusal == Refusal("invalid_json", CROWDED.reason.replace("The body", "The line"))
