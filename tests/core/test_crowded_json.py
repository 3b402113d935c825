"""How many arrays and objects a body may have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.admit.strict_json import CROWDED, NESTED_MAX, decode, decode_exactly


@pytest.mark.parametrize("read", [decode, decode_exactly])
def test_as_many_as_permitted_are_read_and_one_more_is_refused(read: Callable[[bytes], object]) -> None:
    permitted = b"[" + b",".join([b"{}"] * (NESTED_MAX - 1)) + b"]"
    assert read(permitted) == [{}] * (NESTED_MAX - 1)
    assert read(b" [" + permitted + b"]") is CROWDED
