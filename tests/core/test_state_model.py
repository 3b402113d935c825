"""The fold against a naive one, on random handlers and events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.events import Joined, Recorded
from gateway.state import EMPTY, Folded, draft, fold, merged, merged_joined, values
from spec import handlers as h
from tests.core.state_reference import parse, reference
from tests.core.state_samples import NUMBERS, recorded

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault

# Few names and values, so that operations meet.
names = st.sampled_from(["a", "b", "c\u00e9"])
targets = st.lists(names, max_size=3).map(tuple)
scalars = st.sampled_from(['"a"', '"\\u0061"', '"b"', '""', "true", "false", "null", *NUMBERS])


def _object(pairs: dict[str, str]) -> str:
    return "{ " + " ,".join(f'"{name}": {value}' for name, value in pairs.items()) + "}"


texts = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + " ]"),
        st.dictionaries(names, inner, max_size=3).map(_object),
    ),
    max_leaves=8,
)
objects = st.dictionaries(names, texts, max_size=3).map(_object)
paths = st.builds(
    h.Path,
    st.sampled_from([*h.Root, h.Root.DATA, h.Root.DATA, h.Root.STATE, h.Root.ITEM, "$n", "$n", "$m"]),
    st.lists(
        st.sampled_from(["a", "b", "c\u00e9", "actor", "target", "extra", "type", 0, 1, -1, -2, h.EACH]),
        max_size=3,
    ).map(tuple),
    st.booleans(),
)
constants = st.builds(h.Constant, st.sampled_from(["a", "b", 0, 1, -3, 0.1, 2.5, 2**70, True, False, None]))
templates: st.SearchStrategy[Any] = st.recursive(
    st.one_of(paths, paths, constants),
    lambda inner: st.one_of(
        st.dictionaries(names, inner, max_size=3).map(lambda made: h.ObjectTemplate(tuple(made.items()))),
        st.lists(inner, max_size=3).map(lambda made: h.ListTemplate(tuple(made))),
        st.lists(inner, max_size=3).map(lambda made: h.MergeTemplate(tuple(made))),
    ),
    max_leaves=4,
)
predicates: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.builds(h.Compare, st.sampled_from(h.Comparison), templates, templates),
        st.builds(h.Exists, paths),
    ),
    lambda inner: st.one_of(
        st.builds(h.All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(h.Any, st.lists(inner, max_size=3).map(tuple)),
        st.builds(h.Not, inner),
    ),
    max_leaves=3,
)
keys = st.one_of(paths, constants)
whole = st.one_of(
    *[
        st.builds(each, targets, templates)
        for each in (h.Set, h.Merge, h.Append, h.AppendUnique, h.Increment, h.Decrement)
    ],
    *[st.builds(each, targets, keys, templates) for each in (h.SetAt, h.MergeAt, h.IncrementAt)],
    st.builds(h.RemoveAt, targets, keys),
    st.builds(h.AppendUnique, targets, templates, names),
    st.builds(h.Upsert, targets, names, templates),
    st.builds(h.Remove, targets, st.none() | predicates),
    st.builds(h.Filter, targets, predicates),
    st.builds(h.Map, targets, templates),
    st.builds(h.UpdateWhere, targets, predicates, templates),
)


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    do = st.lists(inner, max_size=3).map(tuple)
    bound = st.lists(st.tuples(st.sampled_from(["$n", "$m"]), templates), max_size=3).map(tuple)
    return st.one_of(
        st.builds(h.Map, targets, st.none(), do),
        st.builds(h.UpdateWhere, targets, predicates, st.none(), do),
        st.builds(h.Conditional, predicates, do, do),
        st.builds(h.Let, bound, do),
    )


operations = st.recursive(whole, _holding, max_leaves=5)
# Lists of objects that operations meet, more often than chance has them.
lists_first = st.sampled_from(
    [
        h.Set(("a",), h.Path(h.Root.DATA, ("a",))),
        h.Append(("a",), h.Path(h.Root.DATA)),
        h.Append(("b",), h.Path(h.Root.DATA)),
    ]
)
handlers = st.one_of(
    st.lists(operations, max_size=4).map(tuple),
    st.tuples(lists_first, lists_first, operations, operations),
    st.just(h.DEFAULT_HANDLER),
)
payloads = st.one_of(objects, objects, texts).map(str.encode)
streams = st.lists(
    st.tuples(st.sampled_from(["one", "two", "three"]), st.none() | payloads | payloads, st.booleans()),
    max_size=8,
).map(
    lambda made: [
        recorded(version, payload, event_type, with_all=with_all)
        for version, (event_type, payload, with_all) in enumerate(made, 1)
    ]
)
handlings = st.fixed_dictionaries({"one": handlers, "two": handlers, "three": handlers})


def _fold(before: Folded, events: list[Recorded], handling: dict[str, h.Handler]) -> Folded:
    return fold(before, events, handling.__getitem__)


@settings(calm, max_examples=200)
@given(streams, handlings)
def test_agrees_with_the_naive_fold(events: list[Recorded], handling: dict[str, h.Handler]) -> None:
    folded = _fold(EMPTY, events, handling)
    state, errors = reference(events, handling.__getitem__)
    assert repr(parse(folded.data_json)) == repr(state)  # the order of fields and every digit
    assert [(each.version, each.operation) for each in folded.errors] == errors[-20:]
    assert folded.errors_total == len(errors)
    assert folded.length == len(events)
    assert folded.created_at_ms == (events[0].event.recorded_at_ms if events else None)
    assert folded.updated_at_ms == (events[-1].event.recorded_at_ms if events else None)


@settings(calm, max_examples=100)
@given(streams, handlings)
def test_a_suffix_folds_on_to_what_the_whole_folds_to(
    events: list[Recorded], handling: dict[str, h.Handler]
) -> None:
    whole = _fold(EMPTY, events, handling)
    one_by_one = EMPTY
    for cut in range(len(events) + 1):
        before = _fold(EMPTY, events[:cut], handling)
        kept = repr(before)
        assert before == one_by_one
        assert _fold(before, events[cut:], handling) == whole
        assert repr(before) == kept
        one_by_one = _fold(one_by_one, events[cut : cut + 1], handling)


@settings(calm, max_examples=100)
@given(streams, handlings, st.integers(8, 120), st.integers(1, 6))
def test_no_state_is_over_its_limits_and_they_do_not_depend_on_where_folding_paused(
    events: list[Recorded], handling: dict[str, h.Handler], bytes_max: int, depth_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "STATE_DEPTH_MAX", depth_max)
        patch.setattr(values, "DATA_DEPTH_MAX", depth_max)
        whole = fold(EMPTY, events, handling.__getitem__, bytes_max=bytes_max)
        paused = EMPTY
        for event in events:
            paused = fold(paused, [event], handling.__getitem__, bytes_max=bytes_max)
            assert len(paused.data_json) <= bytes_max
            assert paused.too_large_at is None or paused.data_json == b"{}"
            assert values.nests_within(paused.data_json, depth_max)
    assert paused == whole


# Anything at all where stored bytes are expected.
bytes_stored = st.one_of(
    st.binary(max_size=20),
    st.text('[]{}"\\,:u0d81.-+eE \n', max_size=20).map(str.encode),
    st.sampled_from(
        [b"[" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65, b'"\xff"', b'{"\xff":1}', b'{"a":"\xff"}']
    ),
)


@settings(calm, max_examples=70)
@given(st.lists(bytes_stored, max_size=4), bytes_stored, handlings)
def test_folds_whatever_bytes_are_stored(
    stored: list[bytes], extra: bytes, handling: dict[str, h.Handler]
) -> None:
    events = [
        recorded(version, payload, ("one", "two", "three")[version % 3], extra=extra)
        for version, payload in enumerate(stored, 1)
    ]
    folded = _fold(EMPTY, events, handling)
    assert isinstance(parse(folded.data_json.decode()), dict)
    assert folded.length == len(stored)


@settings(calm, max_examples=70)
@given(st.lists(objects.map(str.encode) | payloads | bytes_stored, max_size=4), st.integers(8, 120))
def test_what_is_merged_is_what_is_folded(stored: list[bytes], bytes_max: int) -> None:
    events = [recorded(version, payload) for version, payload in enumerate(stored, 1)]
    found = merged(EMPTY, events, lambda _: h.DEFAULT_HANDLER, bytes_max)
    folded = fold(EMPTY, events, lambda _: h.DEFAULT_HANDLER, bytes_max=bytes_max)
    assert found in (None, folded)
    if stored:
        times = [each.event.recorded_at_ms for each in events]
        joined = Joined(len(stored), times[0], times[-1], b"\0".join(stored))
        assert merged_joined(joined, bytes_max) in (None, folded)


def _joined(*texts: bytes) -> Joined:
    return Joined(len(texts), 1_000, 2_000, b"\0".join(texts))


def test_data_that_are_joined_are_merged_in_their_order() -> None:
    texts = ('{"a":1,"é":[{}]}'.encode(), b"{}", b'{"b":"}, {","a":1e9}')
    assert merged_joined(_joined(*texts)) == Folded(
        3, 1_000, 2_000, (), 0, '{"a":1e9,"é":[{}],"b":"}, {"}'.encode()
    )


@pytest.mark.parametrize(
    "texts",
    [
        (b'{"a":1}', b"[]"),
        (b'{"a":1}', b""),
        (b'{"a":1},{"a":2}', b'{"a":3}'),
        (b'{"a":[', b"]}"),
        (b'{"a":"\xff"}', b"{}"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", b"{}"),
        (b'{"a":"' + b"x" * 400_000 + b'"}',),
        (b"{%b}" % b",".join([b'"%d":0' % n for n in range(draft.FIELDS_MAX + 1)]),),
    ],
    ids=("list", "empty", "two", "cut", "utf-8", "deep", "long", "fields"),
)
def test_joined_data_of_any_other_kind_are_left_to_the_fold(texts: tuple[bytes, ...]) -> None:
    assert merged_joined(_joined(*texts)) is None


def test_joined_data_of_more_than_a_state_may_have_are_left_to_the_fold() -> None:
    assert merged_joined(_joined(b'{"a":1}'), bytes_max=6) is None
