from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spec.differences import DIFFERENCES_MAX, Difference, differences

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "~"]), inner),
    max_leaves=8,
)


@given(VALUES)
def test_a_document_does_not_differ_from_itself(value: Any) -> None:
    assert differences(value, value) == ()


@given(VALUES, VALUES)
def test_every_difference_has_the_other_way_round(old: Any, new: Any) -> None:
    other = {"added": "removed", "removed": "added", "changed": "changed"}
    forth, back = differences(old, new), differences(new, old)
    assert {repr((each.pointer, other[each.kind], each.now, each.was)) for each in forth} == {
        repr((each.pointer, each.kind, each.was, each.now)) for each in back
    }


def test_names_are_compared_as_sets_and_other_lists_by_place() -> None:
    assert differences({"a": ["x", "y"]}, {"a": ["y", "x"]}) == ()
    assert differences(["x", "y"], ["y", "z"]) == (
        Difference("removed", "/0", was="x"),
        Difference("added", "/1", now="z"),
    )
    assert differences([1, {"a": True}], [1, {"a": 1}, 2]) == (
        Difference("changed", "/1/a", True, 1),
        Difference("added", "/2", now=2),
    )


def test_more_than_a_person_reads_are_not_told() -> None:
    assert len(differences({}, {str(n): n for n in range(DIFFERENCES_MAX + 5)})) == DIFFERENCES_MAX
