"""Events to state: what counts, what comes back as it was sent, and what is reported."""

from __future__ import annotations

import sys
from functools import partial

import pytest
from msgspec.structs import replace

from gateway.events import Recorded
from gateway.state import AT_ONCE_LOOKS, EMPTY, Folded, HandlerError, TakesLong, fold, is_light, merged
from gateway.state.draft import FIELDS_MAX
from gateway.state.fold import ERRORS_KEPT_MAX
from spec.handlers import (
    DEFAULT_HANDLER,
    All,
    Append,
    AppendUnique,
    Compare,
    Comparison,
    Conditional,
    Constant,
    Exists,
    Filter,
    Handler,
    Increment,
    Let,
    ListTemplate,
    Map,
    Merge,
    ObjectTemplate,
    Operation,
    Path,
    Root,
    Set,
    SetAt,
    UpdateWhere,
    Upsert,
)
from tests.core.state_samples import NUMBERS, folded, recorded

DATA = Path(Root.DATA)


def data(*payloads: bytes | None, by: Handler | Operation = DEFAULT_HANDLER) -> bytes:
    return folded(*payloads, by=by).data_json


def test_no_events_are_the_empty_state() -> None:
    assert fold(EMPTY, (), lambda _: ()) == EMPTY
    assert (EMPTY.length, EMPTY.created_at_ms, EMPTY.updated_at_ms, EMPTY.data_json) == (0, None, None, b"{}")
    assert EMPTY.errors == ()
    assert EMPTY.errors_total == 0


def test_the_default_handler_merges_one_level_deep_and_later_events_win() -> None:
    assert data(b'{"a":1,"b":{"x":1}}', b'{"c":3,"b":{"y":2}}') == b'{"a":1,"b":{"y":2},"c":3}'


def test_length_and_times_are_those_of_the_events() -> None:
    two = folded(b"{}", b"{}", by=DEFAULT_HANDLER)
    assert (two.length, two.created_at_ms, two.updated_at_ms) == (2, 1_700_000_001_123, 1_700_000_002_123)
    three = folded(b"{}", by=DEFAULT_HANDLER, on=two)
    assert (three.length, three.created_at_ms, three.updated_at_ms) == (
        3,
        1_700_000_001_123,
        1_700_000_003_123,
    )


def test_an_erased_event_counts_and_changes_nothing() -> None:
    one = folded(b'{"a":1}', None, by=(Set(("type",), Path(Root.TYPE)), Merge((), DATA)))
    assert (one.length, one.data_json, one.errors_total) == (2, b'{"type":"was_placed","a":1}', 0)
    first = folded(None, by=DEFAULT_HANDLER)
    assert (first.length, first.created_at_ms, first.data_json) == (1, 1_700_000_001_123, b"{}")


def test_an_empty_handler_changes_nothing_even_by_data_that_is_unreadable() -> None:
    assert folded(b'{"a":1}', b"{", by=()) == replace(
        EMPTY, length=2, created_at_ms=1_700_000_001_123, updated_at_ms=1_700_000_002_123
    )


def test_two_operations_of_one_event_share_the_object_they_write_into() -> None:
    assert (
        data(b"{}", by=(Set(("a", "b"), Constant(1)), Set(("a", "c"), Constant(2)))) == b'{"a":{"b":1,"c":2}}'
    )


def test_each_event_goes_by_the_handler_of_its_type() -> None:
    handlers: dict[str, Handler] = {
        "a": (Set(("by",), Constant("a")),),
        "b": (Append(("seen",), Path(Root.TYPE)),),
    }
    events = [recorded(version, b"{}", event_type) for version, event_type in enumerate("abba", 1)]
    assert fold(EMPTY, events, handlers.__getitem__).data_json == b'{"by":"a","seen":["b","b"]}'


@pytest.mark.parametrize(
    "digits", [*NUMBERS, "9" * 10_000, "1e99999999999999999999", "1" + "0" * 5000 + ".0"]
)
def test_numbers_come_back_digit_for_digit(digits: str) -> None:
    sent = f'{{"n":{digits},"in":[{digits},{{"n":{digits}}}]}}'.encode()
    assert data(sent) == sent
    beside = folded(sent, by=(Set(("a",), DATA), Set(("a", "b"), Constant(True))))
    assert beside.data_json == b'{"a":%b,"b":true}}' % sent[:-1]


def test_texts_come_back_in_the_spelling_in_which_they_were_sent() -> None:
    sent = r'{"t":"\u0041\/\ud83d\ude00 \u00e9 é \b","list":["\u0061"]}'.encode()
    assert data(sent) == sent


def test_values_keep_their_blanks_and_the_order_of_their_fields() -> None:
    assert data(b' {"z" : {"b": 1,\n "a":[1 , 2]} , "y":1}\n') == b'{"z":{"b": 1,\n "a":[1 , 2]},"y":1}'
    assert data(b"{}", by=Set(("all",), DATA)) == b'{"all":{}}'
    assert data(b' {"z" : 1 } ', by=Set(("all",), DATA)) == b'{"all":{"z" : 1 }}'


def test_one_field_in_two_spellings_is_one_field() -> None:
    assert data(rb'{"caf\u00e9":1}', '{"café":2}'.encode()) == '{"café":2}'.encode()


def test_an_operation_that_does_not_fit_is_reported_and_the_others_apply() -> None:
    handler = (
        Set(("a",), Constant("text")),
        Increment(("a",), Constant(1)),
        Append(("a",), Constant(1)),
        Set(("b",), Constant(2)),
    )
    result = folded(b"{}", by=handler)
    assert result.data_json == b'{"a":"text","b":2}'
    assert result.errors == (
        HandlerError(1, "was_placed", 1, "`a` is a string, not a number."),
        HandlerError(1, "was_placed", 2, "`a` is a string, not a list."),
    )
    assert result.errors_total == 2


def test_the_last_errors_are_kept_and_all_are_counted() -> None:
    many = folded(*[b"5"] * 30, by=DEFAULT_HANDLER)
    assert many.errors_total == 30
    assert [each.version for each in many.errors] == list(range(11, 31))
    more = folded(b"[]", b"{}", by=DEFAULT_HANDLER, on=many)
    assert more.errors_total == 31
    assert [each.version for each in more.errors] == list(range(12, 32))
    assert len(more.errors) == ERRORS_KEPT_MAX


UNREADABLE = "The event's data can't be read; compare it with the backup."


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{",
        b"{} {}",
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b'"\xed\xa0\x80"',
        rb'{"a":"\ud800"}',
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
    ],
)
def test_data_that_is_unreadable_is_reported_for_each_operation(stored: bytes) -> None:
    result = folded(b'{"a":1}', stored, by=(*DEFAULT_HANDLER, Set(("b",), Constant(2))))
    assert result.data_json == b'{"a":1,"b":2}'
    assert [(each.version, each.operation, each.error) for each in result.errors] == [
        (2, 0, UNREADABLE),
        (2, 1, UNREADABLE),
    ]


def test_data_of_the_greatest_depth_is_folded_and_brackets_in_texts_are_no_depth() -> None:
    deep = b'{"a":' * 64 + b"1" + b"}" * 64
    assert data(deep) == deep
    texts = b'{"a":"' + b'[{\\"' * 100 + b'","b":[[]]}'
    assert data(texts) == texts


def test_folding_on_leaves_what_was_folded_as_it_was() -> None:
    before = folded(b'{"a":{"b":[1]}}', b"5", by=DEFAULT_HANDLER)
    kept = repr(before)
    after = folded(b"7", by=(Append(("a", "b"), DATA), Set(("c",), DATA)), on=before)
    assert after.data_json == b'{"a":{"b":[1,7]},"c":7}'
    assert repr(before) == kept
    with pytest.raises(AttributeError):
        before.length = 9  # type: ignore[misc]


def test_the_size_of_a_state_is_about_the_memory_that_it_takes() -> None:
    small, large = (
        folded(b"{}", by=DEFAULT_HANDLER),
        folded(b'{"a":"%b"}' % (b"x" * 9999), by=DEFAULT_HANDLER),
    )
    assert large.size_bytes - small.size_bytes == len(large.data_json) - len(small.data_json)
    assert small.size_bytes >= sys.getsizeof(small) + sys.getsizeof(small.data_json)
    assert folded(b"5", by=DEFAULT_HANDLER).size_bytes > small.size_bytes


def test_a_field_left_behind_does_not_keep_the_data_it_came_with() -> None:
    state = folded(b'{"a":1,"b":"%b"}' % (b"x" * 200_000), b'{"b":2}', by=DEFAULT_HANDLER)
    assert state.data_json == b'{"a":1,"b":2}'
    assert state.size_bytes < 1000


def test_a_fold_may_stop_after_any_event() -> None:
    events = [recorded(version, b'{"n":%d}' % version) for version in range(1, 6)]
    answers = iter([True, True, False])
    part = fold(EMPTY, events, lambda _: DEFAULT_HANDLER, lambda: next(answers))
    assert (part.length, part.data_json) == (3, b'{"n":3}')
    assert fold(part, events[3:], lambda _: DEFAULT_HANDLER) == fold(EMPTY, events, lambda _: DEFAULT_HANDLER)


def test_a_fold_is_light_by_its_events_its_state_and_what_its_operations_look_at() -> None:
    small = folded(b'{"a":[1,2,3]}', by=DEFAULT_HANDLER)
    items = folded(b'{"a":[%b]}' % b",".join([b"1"] * 1000), by=DEFAULT_HANDLER)
    large = folded(b'{"a":"%b"}' % (b"x" * 3_000_000), by=DEFAULT_HANDLER)
    unique: Handler = (AppendUnique(("a",), DATA),)
    one = [recorded(2, b"{}")]

    def light(before: Folded, events: list[Recorded], handler: Handler) -> bool:
        return is_light(before, events, lambda _: handler)

    assert light(small, one, unique)
    assert light(small, one * 100, DEFAULT_HANDLER)
    assert not light(small, one * 2000, DEFAULT_HANDLER)
    assert not light(large, one, DEFAULT_HANDLER)
    assert not light(items, one, unique)
    assert light(items, one, DEFAULT_HANDLER)
    assert light(small, [recorded(2, None)], unique)
    assert light(items, one, (Set(("b",), DATA),))
    assert not light(small, [recorded(2, b'"%b"' % (b"x" * 500_000))], DEFAULT_HANDLER)


def test_what_holds_operations_on_items_is_not_light_and_gives_up_where_it_was_not_expected() -> None:
    items = folded(b'{"a":[%b]}' % b",".join([b'{"n":1}'] * 1000), by=DEFAULT_HANDLER)
    bump = (Increment(("n",), Constant(1)),)
    on_items: tuple[Operation, ...] = (
        Map(("a",), None, bump),
        UpdateWhere(("a",), Exists(Path(Root.ITEM)), None, bump),
        Upsert(("a",), "n", DATA),
        Filter(("a",), Exists(Path(Root.ITEM))),
    )
    one = [recorded(2, b'{"n":1}')]
    for operation in on_items:
        within: Operation = Let((), (Conditional(All(()), (operation,)),))
        for handler in ((operation,), (within,)):
            assert not is_light(items, one, {"was_placed": handler}.__getitem__)
    by = {"was_placed": (on_items[0],)}.__getitem__
    assert fold(items, one, by, at_once=10_000) == fold(items, one, by)
    with pytest.raises(TakesLong):
        fold(items, one, by, at_once=1_000)
    assert is_light(items, one, lambda _: (SetAt((), Constant("a"), DATA),))


def test_a_long_text_nests_as_deep_as_a_short_one() -> None:
    deep = b'{"t":"%b","d":%b1%b}'
    for filler in (b"[{", b"[{" * 150_000):
        for levels, fits in ((62, True), (63, True), (64, False)):
            sent = deep % (filler, b"[" * levels, b"]" * levels)
            assert (data(sent) == sent) is fits, (len(filler), levels)


SOME = folded(b'{"a":1,"b":{"x":1}}', b"[", by=DEFAULT_HANDLER)
LARGE = fold(SOME, [recorded(3, b'{"a":2}')], lambda _: DEFAULT_HANDLER, bytes_max=10)
DEEP = b'{"a":%b%b}' % (b"[" * 63, b"]" * 63)


@pytest.mark.parametrize("before", [EMPTY, SOME])
@pytest.mark.parametrize(
    "payloads",
    [
        (b'{"a":1.10,"c":"\\u00e9"}',),
        (b'{"a":1}', b' {"b" : [2, 3]} ', b'{"a":{"y":1},"a":2}', b"{}"),
        ('{"é":"ü"}'.encode(), b'{"a":3}'),
        (DEEP, b'{"d":[1]}'),
    ],
)
def test_events_that_merge_their_data_are_merged_to_what_a_fold_makes(
    before: Folded, payloads: tuple[bytes, ...]
) -> None:
    events = [recorded(before.length + n, payload) for n, payload in enumerate(payloads, 1)]
    after = merged(before, events, lambda _: DEFAULT_HANDLER)
    assert after is not None
    assert after == fold(before, events, lambda _: DEFAULT_HANDLER)
    assert after == merged(before, events, lambda _: DEFAULT_HANDLER, admitted=True)


@pytest.mark.parametrize(
    "payloads",
    [
        (),
        (b'{"a":1}', None),
        (b'{"a":1}', b""),
        (b'{"a":1}', b"[2]"),
        (b'{"a":1', b'"b":2}'),
        (b'{"a":"\xc3"}',),
        (b'{"a":"\xc3', b'\xa9"}'),
        (b'{"a":%b}' % DEEP,),
        (b'{"a":"%b"}' % (b"x" * 400_000),),
        (b"{}",) * 1001,
        (b"{%b}" % b",".join([b'"%d":0' % n for n in range(FIELDS_MAX)]), b'{"a":1}'),
    ],
)
def test_events_that_may_not_just_be_merged_are_left_to_the_fold(payloads: tuple[bytes | None, ...]) -> None:
    events = [recorded(SOME.length + n, payload) for n, payload in enumerate(payloads, 1)]
    assert merged(SOME, events, lambda _: DEFAULT_HANDLER) is None


def test_what_is_too_large_or_has_other_handlers_is_not_merged() -> None:
    one = [recorded(LARGE.length + 1, b'{"a":1}')]
    assert LARGE.too_large_at == 3
    assert merged(LARGE, one, lambda _: DEFAULT_HANDLER) is None
    assert merged(SOME, one, lambda _: DEFAULT_HANDLER, bytes_max=20) is None
    assert merged(SOME, one, lambda _: (Merge((), DATA),)) is None


def copies(of: str, levels: int) -> tuple[Handler, list[Recorded]]:
    """A handler that doubles its state with each event, and so many events."""
    field = Path(Root.STATE, (of,) if of else ())
    handler: Handler = (
        (Set((of,), ListTemplate((field, field))),)
        if of
        else (Set((), ObjectTemplate((("a", field), ("b", field)))),)
    )
    return handler, [recorded(n, b"{}") for n in range(1, levels + 1)]


@pytest.mark.parametrize("of", ["", "l"])
def test_a_state_that_grows_by_copies_of_itself_is_not_folded_at_once(of: str) -> None:
    for levels, at_once in ((8, True), (17, False), (60, False)):
        handler, events = copies(of, levels)
        assert is_light(EMPTY, events, lambda _, by=handler: by)  # by all that is known beforehand
        folds = partial(fold, EMPTY, events, lambda _, by=handler: by, at_once=AT_ONCE_LOOKS)
        if at_once:
            assert folds().length == levels
        else:
            with pytest.raises(TakesLong):
                folds()


def test_comparing_long_lists_is_not_done_at_once() -> None:
    numbers = b"[%b]" % b",".join([b"7"] * 20_000)
    held = folded(b'{"l":%b,"i":[%b]}' % (numbers, numbers), by=DEFAULT_HANDLER)
    one = Path(Root.STATE, ("l",))
    by: tuple[Operation, ...] = (
        Conditional(Compare(Comparison.IN, DATA, one), (Set(("b",), DATA),)),
        Append(("m",), Constant(1)),
    )
    unique: tuple[tuple[Operation, ...], ...] = (
        (AppendUnique(("n",), one),),
        (AppendUnique(("i",), DATA),),
        (Upsert(("n",), "k", ObjectTemplate((("k", one),))),),
    )
    for handler in (by, *unique):
        assert fold(held, [recorded(2, b"3")], lambda _, by=handler: by).errors_total == 0
        with pytest.raises(TakesLong):
            fold(held, [recorded(2, b"3")], lambda _, by=handler: by, at_once=AT_ONCE_LOOKS)
    few = folded(b'{"l":[1,2,3]}', by=DEFAULT_HANDLER)
    assert fold(few, [recorded(2, b"3")], lambda _: by, at_once=AT_ONCE_LOOKS).length == 2
