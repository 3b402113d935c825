"""The object that a form's parameters make."""

from __future__ import annotations

import time

from gateway.inbound.request import form_object, form_pairs

REPEATED = 260_000
"""As often as `a=1` fits in the largest body."""
LINEAR_S = 2.0
"""It takes 0.1 s; where each value copies those before it, a minute."""


def test_a_name_that_is_there_several_times_is_a_list() -> None:
    pairs = form_pairs(b"a=1&b=2&a=3&a=")
    assert pairs is not None
    assert form_object(pairs) == {"a": ["1", "3", ""], "b": "2"}


def test_the_object_of_the_largest_form_is_made_in_linear_time() -> None:
    pairs = form_pairs(b"&".join([b"a=1"] * REPEATED))
    assert pairs is not None
    begun = time.thread_time()
    assert form_object(pairs) == {"a": ["1"] * REPEATED}
    assert time.thread_time() - begun < LINEAR_S
