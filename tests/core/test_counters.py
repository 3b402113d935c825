"""Counters, held as integers over many events, leave what each operation would have left by itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.state.budget import Budget, Misfit
from gateway.state.counters import Counters, counts_of
from gateway.state.draft import FIELDS_MAX, Draft
from gateway.state.operations import apply
from gateway.state.templates import View
from gateway.state.values import decode_fields, encode
from spec.handlers import Constant, Decrement, Handler, Increment, Path, Root, Set
from tests.core.state_samples import NUMBERS, recorded

MOST = 10_000
TOTAL = Path(Root.DATA, ("total",))
HANDLER: Handler = (
    Increment(("orders",), Constant(1)),
    Increment(("spent",), TOTAL),
    Decrement(("left",), TOTAL),
    Decrement(("rest",), Constant(3)),
)
SHORT = ("0", "7", "0.0", "1.10", "141.7", "-3", "-0.5", "0.000001", "12345678901234567890", "0.25")
OTHERS = ("-0", "-0.0", "0.0000001", "1e3", "123456789012345678901", "null", '"7"', "[1]")


def folded(handler: Handler, before: bytes, payloads: Sequence[bytes], *, counted: bool) -> tuple[bytes, int]:
    """The state, and how many events were counted at once."""
    draft = Draft(decode_fields(before), len(before), MOST)
    counters, counts, at_once = Counters(draft), counts_of(handler), 0
    for payload in payloads:
        data = decode_fields(payload)
        if counted and counts is not None and counters.take(counts, data):
            at_once += 1
            continue
        counters.settle()
        view = View.of(recorded(1, payload), data, draft.fields, Budget())
        for operation in handler:
            with suppress(Misfit):
                apply(operation, draft, view, lambda _: None)
    counters.settle()
    return encode(draft.fields), at_once


def check(handler: Handler, before: bytes, payloads: Sequence[bytes]) -> int:
    """How many were counted at once."""
    state, at_once = folded(handler, before, payloads, counted=True)
    assert state == folded(handler, before, payloads, counted=False)[0]
    return at_once


@pytest.mark.parametrize("total", SHORT)
@pytest.mark.parametrize("spent", SHORT)
def test_short_numbers_are_counted_as_each_operation_adds_them(spent: str, total: str) -> None:
    payloads = [b'{"total":%b}' % each.encode() for each in (total, total, "5", total, "0.75")]
    assert check(HANDLER, b'{"a":1,"spent":%b}' % spent.encode(), payloads) == len(payloads)


@pytest.mark.parametrize("other", OTHERS)
def test_other_values_are_left_to_the_operations(other: str) -> None:
    payloads = [b'{"total":1.5}', b'{"total":%b}' % other.encode(), b'{"total":2}']
    assert check(HANDLER, b"{}", payloads) < len(payloads)
    assert check(HANDLER, b'{"spent":%b}' % other.encode(), payloads[:1]) == 0


def test_an_absent_value_and_an_object_are_left_to_the_operations() -> None:
    assert check(HANDLER, b"{}", [b"{}"]) == 0
    draft = Draft({"spent": {}}, 2, MOST)
    counts = counts_of(HANDLER)
    assert counts is not None
    assert not Counters(draft).take(counts, decode_fields(b'{"total":1}'))
    assert draft.fields == {"spent": {}}


def test_a_state_that_might_become_too_large_is_left_to_the_operations() -> None:
    assert check(HANDLER, b'{"text":"%b"}' % (b"x" * (MOST - 100)), [b'{"total":1}']) == 0
    draft = Draft(dict.fromkeys(map(str, range(FIELDS_MAX - 3)), Draft({}, 0, 0).fields), 2, 10 * MOST)
    counts = counts_of(HANDLER)
    assert counts is not None
    assert not Counters(draft).take(counts, decode_fields(b'{"total":1}'))


def test_two_handlers_count_the_same_state_by_turns() -> None:
    draft = Draft(decode_fields(b'{"spent":1.5}'), 13, MOST)
    counters, other = Counters(draft), (Decrement(("spent",), Constant(1)), Increment(("late",), Constant(1)))
    for handler, total in ((HANDLER, b"2.25"), (other, b"0"), (HANDLER, b"1"), (other[:1], b"0")):
        counts = counts_of(handler)
        assert counts is not None
        assert counters.take(counts, decode_fields(b'{"total":%b}' % total))
    counters.settle()
    assert encode(draft.fields) == b'{"spent":2.75,"orders":2,"left":-3.25,"rest":-6,"late":1}'


@pytest.mark.parametrize(
    "operation",
    [
        Set(("n",), Constant(1)),
        Decrement(("spent",), Constant(1)),
        Increment((), Constant(1)),
        Increment(("a", "b"), Constant(1)),
        Increment(("n",), Constant(1.5)),
        Increment(("n",), Constant(True)),
        Increment(("n",), Constant(10**20)),
        Increment(("n",), Path(Root.DATA)),
        Increment(("n",), Path(Root.DATA, (0,))),
        Increment(("n",), Path(Root.STATE, ("n",))),
    ],
)
def test_a_handler_with_another_operation_is_none_that_only_counts(
    operation: Increment | Decrement | Set,
) -> None:
    assert counts_of((*HANDLER, operation)) is None


numbers = st.sampled_from((*SHORT, *OTHERS, *NUMBERS)) | st.decimals(
    allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
).map(lambda number: f"{number:f}")


@given(numbers, st.lists(numbers, max_size=8))
def test_any_numbers_are_counted_as_each_operation_adds_them(spent: str, totals: list[str]) -> None:
    check(HANDLER, b'{"spent":%b}' % spent.encode(), [b'{"total":%b}' % each.encode() for each in totals])
