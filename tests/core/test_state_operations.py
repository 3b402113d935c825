"""Each operation of the handler language, at its edges."""

from __future__ import annotations

import json

import pytest

from gateway.state import EMPTY, Folded, budget, fold
from gateway.state.budget import STATE_BYTES_MAX
from gateway.state.draft import FIELDS_MAX, ITEMS_MAX, STATE_DEPTH_MAX
from gateway.state.predicates import COMPARED_BYTES_MAX
from gateway.state.values import spelled
from spec.handlers import (
    DEFAULT_HANDLER,
    All,
    Any,
    Append,
    AppendUnique,
    Compare,
    Comparison,
    Conditional,
    Constant,
    Decrement,
    Handler,
    Increment,
    Let,
    ListTemplate,
    Merge,
    Not,
    ObjectTemplate,
    Operation,
    Path,
    Remove,
    Root,
    Set,
    SetAt,
    Template,
    Upsert,
)
from tests.core.state_samples import NUMBERS, folded, recorded

DATA = Path(Root.DATA)
STATE = Path(Root.STATE)
OPTIONAL = Path(Root.DATA, ("none",), optional=True)
ONE = Constant(1)

STATE_BEFORE = rb'{"text":"\u0061","list":[1, 2],"object":{"n" : 1.10},"number":5,"null":null,"true":true}'
BEFORE = folded(STATE_BEFORE, by=DEFAULT_HANDLER)


def after(by: Handler | Operation, payload: bytes = b"{}", on: Folded = BEFORE) -> bytes:
    """The state, which must have taken every operation."""
    result = folded(payload, by=by, on=on)
    assert result.errors == ()
    return result.data_json


def changed(by: Operation, payload: bytes = b"{}") -> dict[str, object]:
    """The fields that are other than before."""
    result, before = json.loads(after(by, payload)), json.loads(STATE_BEFORE)
    return {name: value for name, value in result.items() if name not in before or value != before[name]}


def misfit(by: Operation, payload: bytes = b"{}", on: Folded = BEFORE) -> str:
    """Why an operation does not fit; the state must be the same to the byte."""
    result = folded(payload, by=by, on=on)
    assert result.data_json == on.data_json
    [error] = result.errors
    assert (error.version, error.event_type, error.operation) == (result.length, "was_placed", 0)
    return error.error


def writes(target: tuple[str, ...], value: Template) -> list[Operation]:
    each = (Set, Merge, Append, AppendUnique, Increment, Decrement)
    return [operation(target, value) for operation in each]


@pytest.mark.parametrize("operation", writes(("x", "y"), OPTIONAL) + writes(("text", "y"), OPTIONAL))
def test_an_absent_optional_value_leaves_the_operation_out_without_an_error(operation: Operation) -> None:
    assert after(operation) == STATE_BEFORE


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("text", "a string"),
        ("list", "a list"),
        ("number", "a number"),
        ("null", "null"),
        ("true", "a boolean"),
    ],
)
@pytest.mark.parametrize("make", [Set, Merge, Append, AppendUnique, Increment, Decrement])
def test_what_is_no_object_is_in_the_way(make: type[Set], name: str, kind: str) -> None:
    assert misfit(make((name, "a", "b"), DATA)) == f"`{name}` is {kind}, which has no fields."
    assert misfit(Remove((name, "a"))) == f"`{name}` is {kind}, which has no fields."


def test_what_is_in_the_way_further_down_is_named_from_the_state_down() -> None:
    assert misfit(Set(("object", "n", "x"), ONE)) == "`object.n` is a number, which has no fields."


def test_objects_missing_on_the_way_are_made() -> None:
    assert changed(Set(("a", "b", "c"), ONE)) == {"a": {"b": {"c": 1}}}
    assert changed(Merge(("a", "b"), DATA), b'{"c":1}') == {"a": {"b": {"c": 1}}}
    assert changed(Merge(("a",), DATA), b"{}") == {"a": {}}
    assert changed(Append(("a", "b"), ONE)) == {"a": {"b": [1]}}
    assert changed(AppendUnique(("a", "b"), ONE)) == {"a": {"b": [1]}}
    assert changed(Increment(("a", "b"), ONE)) == {"a": {"b": 1}}
    assert changed(Decrement(("a", "b"), ONE)) == {"a": {"b": -1}}


def test_an_operation_that_does_not_fit_makes_no_objects_on_the_way() -> None:
    assert misfit(Increment(("a", "b"), Constant("x"))) == "The value to add is a string, not a number."
    assert misfit(Merge(("a", "b"), Constant(None))) == "The value is null, not an object."


# ---- set ----


@pytest.mark.parametrize("name", ["text", "list", "object", "number", "null", "true", "new"])
def test_set_puts_a_value_in_place_of_any_other(name: str) -> None:
    assert json.loads(after(Set((name,), DATA), b'[1.10, "x"]'))[name] == [1.10, "x"]


def test_set_keeps_the_place_of_a_field_and_the_values_beside_it() -> None:
    assert after(Set(("object", "m"), ONE)) == STATE_BEFORE.replace(b'{"n" : 1.10}', b'{"n":1.10,"m":1}')
    assert after(Set(("text",), Constant("b"))) == STATE_BEFORE.replace(rb'"\u0061"', b'"b"')


def test_set_replaces_the_whole_state_by_only_an_object() -> None:
    assert after(Set((), DATA), b'{"b": 1,"a":2}') == b'{"b":1,"a":2}'
    assert after(Set((), STATE)) == STATE_BEFORE
    assert after(Set((), Path(Root.STATE, ("object",)))) == b'{"n":1.10}'
    assert misfit(Set((), DATA), b"[]") == "The value is a list, not an object."
    assert misfit(Set((), DATA), b"7") == "The value is a number, not an object."
    assert misfit(Set((), ListTemplate((ONE,)))) == "The value is a list, not an object."


def test_a_value_taken_from_the_state_is_a_copy() -> None:
    handler = (
        Append(("list",), Constant(3)),
        Set(("copy",), Path(Root.STATE, ("list",))),
        Append(("list",), Constant(4)),
        Append(("copy",), Constant(5)),
        Set(("all",), STATE),
        Append(("all", "list"), Constant(6)),
    )
    state = json.loads(after(handler))
    assert state["list"] == [1, 2, 3, 4]
    assert state["copy"] == [1, 2, 3, 5]
    assert state["all"]["list"] == [1, 2, 3, 4, 6]


# ---- merge ----


def test_merge_puts_each_field_one_level_deep() -> None:
    assert changed(Merge(("object",), DATA), b'{"m":{"x":1},"n":2}') == {"object": {"n": 2, "m": {"x": 1}}}
    assert after((Merge(("a",), DATA), Merge(("a",), DATA)), b'{"x":1}', EMPTY) == b'{"a":{"x":1}}'


def test_merge_does_not_fit_what_is_no_object() -> None:
    assert misfit(Merge(("list",), DATA)) == "`list` is a list, not an object to merge into."
    assert misfit(Merge(("null",), DATA)) == "`null` is null, not an object to merge into."
    assert misfit(Merge((), DATA), b'"text"') == "The value is a string, not an object."
    assert misfit(Merge(("object",), Path(Root.DATA, ("none",)))) == "The value is null, not an object."


# ---- append, append_unique ----


def test_append_adds_at_the_end_and_keeps_what_is_there() -> None:
    twice = (Append(("list",), DATA), Append(("list",), DATA))
    assert after(twice, b'{"a": 1.0}') == STATE_BEFORE.replace(b"[1, 2]", b'[1,2,{"a": 1.0},{"a": 1.0}]')


@pytest.mark.parametrize("make", [Append, AppendUnique])
def test_append_does_not_fit_what_is_no_list(make: type[Append]) -> None:
    assert misfit(make(("object",), ONE)) == "`object` is an object, not a list."
    assert misfit(make(("null",), ONE)) == "`null` is null, not a list."
    assert misfit(make((), ONE)) == "The whole state is an object, not a list; name a field of it."


@pytest.mark.parametrize(
    ("there", "equal"),
    [
        (b"1", b"1.0"),
        (b"100", b"1e2"),
        (b"0", b"-0.0"),
        (b"1e400", b"10E399"),
        (b"9" * 5000, b"9" * 5000 + b".0"),
        (b"1e99999999999999999999", b"1e99999999999999999999"),
        (b"-1e99999999999999999999", b"-1e99999999999999999999"),
        (rb'"\u0061"', b'"a"'),
        (b"null", b"null"),
        (b"true", b"true"),
        (b'{"a":1,"b":[true]}', b'{"b": [true], "a": 1.0}'),
        (b"[]", b"[ ]"),
    ],
)
def test_append_unique_leaves_out_what_equals_an_item(there: bytes, equal: bytes) -> None:
    one = folded(there, by=AppendUnique(("all",), DATA))
    assert one.data_json == b'{"all":[%b]}' % there
    assert after(AppendUnique(("all",), DATA), equal, one) == one.data_json
    assert after((AppendUnique(("all",), DATA), AppendUnique(("all",), DATA)), equal, one) == one.data_json


@pytest.mark.parametrize(
    ("there", "other"),
    [
        (b"1", b"true"),
        (b"0", b"false"),
        (b"0", b"null"),
        (b"1", b'"1"'),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b"1e400", b"1e401"),
        (b"1e99999999999999999999", b"-1e99999999999999999999"),
        (b"[]", b"{}"),
        (b"[1]", b"[true]"),
        (b"[1,2]", b"[2,1]"),
        (b'{"a":null}', b"{}"),
        (b'[["a",1]]', b'{"a":1}'),
    ],
)
def test_append_unique_adds_what_equals_no_item(there: bytes, other: bytes) -> None:
    handler = (AppendUnique(("all",), DATA), AppendUnique(("all",), DATA))
    one = folded(there, by=handler)
    assert after(handler, other, one) == b'{"all":[%b,%b]}' % (there, other)


def test_append_unique_knows_what_append_and_remove_did_in_between() -> None:
    handler = (
        AppendUnique(("all",), Constant("a")),
        Append(("all",), Constant("b")),
        AppendUnique(("all",), Constant("b")),
        Set(("all",), ListTemplate((Constant("c"),))),
        AppendUnique(("all",), Constant("a")),
        AppendUnique(("all",), Constant("c")),
        Append(("all",), Constant("c")),
    )
    assert after(handler, on=EMPTY) == b'{"all":["c","a","c"]}'


def test_no_choice_of_numbers_makes_a_search_slow() -> None:
    alike = [n * (2**61 - 1) for n in range(1, 1000)]  # what Python hashes to 0
    assert len(set(map(hash, alike))) == 1
    assert len({hash(spelled(number)) for number in alike}) == len(alike)


# ---- remove ----


def test_remove_takes_a_field_away_or_empties_the_state() -> None:
    assert after(Remove(("list",))) == STATE_BEFORE.replace(b'"list":[1, 2],', b"")
    assert after(Remove(("object", "n"))) == STATE_BEFORE.replace(b'{"n" : 1.10}', b"{}")
    assert after(Remove(())) == b"{}"
    assert after((Remove(()), Set(("a",), ONE))) == b'{"a":1}'


def test_remove_of_what_is_not_there_is_no_error_and_makes_nothing() -> None:
    assert after((Remove(("none",)), Remove(("a", "b", "c")), Remove(("object", "none")))) == STATE_BEFORE


# ---- increment, decrement ----


@pytest.mark.parametrize(
    ("there", "by", "total", "difference"),
    [
        ("1", "1", "2", "0"),
        ("0.1", "0.2", "0.3", "-0.1"),
        ("1.10", "1", "2.10", "0.10"),
        ("5", "-7", "-2", "12"),
        ("-5", "7", "2", "-12"),
        ("0", "0", "0", "0"),
        ("5", "5", "10", "0"),
        ("0", "70", "70", "-70"),
        ("999999999999999", "999999999999999", "1999999999999998", "0"),
        ("1000000000000000", "1", "1000000000000001", "999999999999999"),
        ("9007199254740993", "1", "9007199254740994", "9007199254740992"),
        ("123456789012345678901234567890.5", "0.25", "123456789012345678901234567890.75",
         "123456789012345678901234567890.25"),
        ("9" * 4299, "1", "1" + "0" * 4299, "9" * 4298 + "8"),
        ("-0", "0", "0", "-0"),
        ("1e2", "1", "101", "99"),
        ("1e3", "2e3", "3E+3", "-1E+3"),
        ("1e-10", "1e-10", "2E-10", "0E-10"),
        ("1e400", "1", "1" + "0" * 399 + "1", "9" * 400),
        ("5", "1e-99999999999999999999", "5", "5"),
        ("5", "0e99999999999999999999", "5", "5"),
    ],
)  # fmt: skip
def test_sums_are_exact(there: str, by: str, total: str, difference: str) -> None:
    before = folded(f'{{"n":{there}}}'.encode(), by=DEFAULT_HANDLER)
    assert after(Increment(("n",), DATA), by.encode(), before) == f'{{"n":{total}}}'.encode()
    assert after(Decrement(("n",), DATA), by.encode(), before) == f'{{"n":{difference}}}'.encode()
    of_a_field = Increment(("n",), Path(Root.DATA, ("by",)))
    assert after(of_a_field, f'{{"by":{by}}}'.encode(), before) == f'{{"n":{total}}}'.encode()


@pytest.mark.parametrize("digits", NUMBERS)
def test_a_number_that_is_missing_is_zero(digits: str) -> None:
    state = after((Increment(("n",), DATA), Decrement(("n",), DATA)), digits.encode(), EMPTY)
    assert json.loads(state) == {"n": 0}


def test_increment_takes_numbers_of_the_spec() -> None:
    handler = (
        Increment(("n",), Constant(0.1)),
        Increment(("n",), Constant(0.2)),
        Decrement(("n",), Constant(1)),
    )
    assert after(handler, on=EMPTY) == b'{"n":-0.7}'


@pytest.mark.parametrize("make", [Increment, Decrement])
def test_increment_fits_nothing_but_numbers(make: type[Increment]) -> None:
    assert misfit(make(("null",), ONE)) == "`null` is null, not a number."
    assert misfit(make(("true",), ONE)) == "`true` is a boolean, not a number."
    assert misfit(make(("object",), ONE)) == "`object` is an object, not a number."
    assert misfit(make((), ONE)) == "The whole state is an object, not a number; name a field of it."
    assert misfit(make(("number",), Constant(True))) == "The value to add is a boolean, not a number."
    assert misfit(make(("number",), DATA), b'"1"') == "The value to add is a string, not a number."
    assert misfit(make(("number",), Path(Root.DATA, ("none",)))) == "The value to add is null, not a number."
    assert misfit(make(("number",), ListTemplate(()))) == "The value to add is a list, not a number."


@pytest.mark.parametrize(
    "by", ["1e999999999", "1e-999999999", "-1e99999999999999999999", "9" * 4301, "0." + "0" * 4300 + "1"]
)
def test_a_sum_of_too_many_digits_does_not_fit(by: str) -> None:
    assert misfit(Increment(("number",), DATA), by.encode()) == "The sum has more than 4300 digits."
    assert misfit(Decrement(("number",), DATA), by.encode()) == "The sum has more than 4300 digits."


def test_a_sum_beyond_the_greatest_exponent_does_not_fit() -> None:
    before = folded(b'{"n":9e999999999999999999}', by=DEFAULT_HANDLER)
    assert (
        misfit(Increment(("n",), DATA), b"9e999999999999999999", before)
        == "The sum has more than 4300 digits."
    )


# ---- limits ----

TOO_DEEP = f"The state would be nested deeper than {STATE_DEPTH_MAX} levels."


def full(room: int) -> Folded:
    """A state that has `room` bytes less than it may have."""
    filler = b"x" * (STATE_BYTES_MAX - room - len(b'{"a":""}'))
    return folded(b'{"a":"%b"}' % filler, by=DEFAULT_HANDLER)


def test_a_state_that_doubles_with_each_event_is_none_once_it_is_over_its_limit() -> None:
    both = ObjectTemplate((("one", Path(Root.STATE, ("all",))), ("two", Path(Root.STATE, ("all",)))))
    result = folded(*[b"{}"] * 40, by=Set(("all",), both))
    assert result.too_large_at is not None
    before = folded(*[b"{}"] * (result.too_large_at - 1), by=Set(("all",), both))
    assert STATE_BYTES_MAX // 2 < len(before.data_json) <= STATE_BYTES_MAX
    assert before.too_large_at is None
    assert (result.length, result.data_json, result.errors) == (40, b"{}", ())


def test_a_value_longer_than_any_state_is_given_up_while_it_is_made() -> None:
    many = ListTemplate((STATE,) * 1000)
    assert folded(b"{}", by=Set(("b",), many), on=full(100)).too_large_at == 2
    compared = Compare(Comparison.EQUALS, many, ONE)
    result = folded(b"{}", by=Conditional(compared, ()), on=full(100))
    assert (result.too_large_at, result.errors_total) == (None, 1)
    bound = Let((("$a", many),), (Set(("b",), ONE),))
    assert misfit(bound, on=full(100)) == f"The value would be longer than {2 * STATE_BYTES_MAX} bytes."


def test_a_full_state_takes_what_still_fits_and_what_makes_room_for_itself() -> None:
    almost = full(100)
    assert len(almost.data_json) == STATE_BYTES_MAX - 100
    payload = b'{"b":"%b"}' % (b"y" * 100)
    for operation in (
        Merge((), DATA),
        Set(("b",), DATA),
        Append(("b",), DATA),
        AppendUnique(("b",), DATA),
        Upsert(("b",), "b", DATA),
        SetAt((), Constant("b"), DATA),
        Merge(("b",), DATA),
    ):
        assert folded(payload, by=operation, on=almost).too_large_at == 2, operation
    assert folded(b"9" * 100, by=Increment(("b",), DATA), on=almost).too_large_at == 2
    assert len(after(Merge((), DATA), b'{"b":1}', almost)) == STATE_BYTES_MAX - 94
    assert after((Remove(("a",)), Merge((), DATA)), payload, almost) == payload
    assert after((Merge((), DATA), Remove(("a",))), payload, almost) == payload
    assert after(Set(("a",), DATA), payload, almost) == b'{"a":%b}' % payload
    assert folded(b'{"b":1}', b'{"b":2}', by=DEFAULT_HANDLER, on=full(13)).errors_total == 0


@pytest.mark.parametrize("target", [("a",), ("o", "a"), ("o", "p", "q", "a"), ("long" * 5, "é\n")])
def test_a_state_is_too_large_by_a_single_byte(target: tuple[str, ...]) -> None:
    for make in (Set, Merge, Append, AppendUnique, Increment):
        value = DATA if make is not Increment else ONE
        one = [recorded(1, b"{}")]
        whole = fold(EMPTY, one, lambda _: (make(target, value),))  # noqa: B023
        for bytes_max, at in ((len(whole.data_json), None), (len(whole.data_json) - 1, 1)):
            result = fold(EMPTY, one, lambda _: (make(target, value),), bytes_max=bytes_max)  # noqa: B023
            assert result.too_large_at == at, (make, bytes_max)


def test_what_comes_after_a_state_that_was_too_large_changes_nothing() -> None:
    result = folded(
        b'{"a":1}',
        b"{}",
        by=DEFAULT_HANDLER,
        on=folded(b'{"b":"%b"}' % (b"x" * 200), by=DEFAULT_HANDLER, on=full(100)),
    )
    assert (result.length, result.too_large_at, result.data_json) == (4, 2, b"{}")


def test_a_state_that_deepens_with_each_event_stops_at_its_limit() -> None:
    result = folded(*[b"{}"] * 200, by=Set(("a",), STATE))
    assert result.data_json == b'{"a":' * 127 + b"{}" + b"}" * 127
    assert {error.error for error in result.errors} == {TOO_DEEP}
    opened = folded(b"{}", by=(Append(("b",), STATE), Append(("b",), STATE)), on=result)
    assert {error.error for error in opened.errors[-2:]} == {TOO_DEEP}


@pytest.mark.parametrize(
    ("levels", "value"), [(128, b"1"), (127, b"{}"), (126, b'[["[[[["]]'), (64, b"[" * 64 + b"]" * 64)]
)
def test_a_target_and_its_value_are_as_deep_as_a_state_may_be(levels: int, value: bytes) -> None:
    assert folded(value, by=Set(("a",) * levels, DATA)).errors == ()
    for deeper in (levels + 1, 1000):
        [error] = folded(value, by=Set(("a",) * deeper, DATA)).errors
        assert error.error == TOO_DEEP


def test_made_values_are_held_to_the_depth_too() -> None:
    nested: Template = ObjectTemplate(())
    for _ in range(30):
        nested = ListTemplate((ObjectTemplate((("a", nested), ("b", DATA))),))
    assert folded(b"[" * 64 + b"]" * 64, by=Set(("a",) * 4, nested)).errors == ()
    [error] = folded(b"[" * 64 + b"]" * 64, by=Set(("a",) * 5, nested)).errors
    assert error.error == TOO_DEEP


# ---- what one event may take ----


def listed(count: int) -> bytes:
    return b'{"a":[%b]}' % b",".join(b'{"n":%d}' % n for n in range(count))


NOTHING_NAMED = Remove(("a",), Compare(Comparison.GT, Path(Root.ITEM, ("n",)), Path(Root.DATA, ("n",))))


def test_an_event_tests_so_many_items_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looks_max = 20_000  # of 250,000: coverage counts each line
    monkeypatch.setattr(budget, "LOOKS_MAX", looks_max)
    before = folded(listed(looks_max // 5), by=DEFAULT_HANDLER)
    assert folded(b'{"n":1000000}', by=(NOTHING_NAMED,) * 5, on=before).errors == ()
    after_it = folded(b'{"n":1000000}', b"{}", by=(NOTHING_NAMED,) * 6, on=before)
    assert [(each.version, each.operation) for each in after_it.errors] == [(2, 5), (3, 5)]
    assert after_it.errors[0].error == f"One event may test {looks_max} items; this would be more."
    either = Remove(("a",), Any((NOTHING_NAMED.where, Not(NOTHING_NAMED.where))))  # type: ignore[arg-type]
    assert folded(b'{"n":1000000}', by=(NOTHING_NAMED, NOTHING_NAMED, either), on=before).errors_total == 1


def test_a_list_grows_to_its_limit() -> None:
    before = folded(listed(ITEMS_MAX - 1), by=DEFAULT_HANDLER)
    for append in (Append(("a",), DATA), AppendUnique(("a",), DATA)):
        result = folded(b'{"m":1}', b'{"m":2}', by=append, on=before)
        assert [each.version for each in result.errors] == [3]
        assert result.errors[0].error == f"`a` has {ITEMS_MAX} items; a list grows to {ITEMS_MAX} at most."


def test_an_object_has_at_most_so_many_fields() -> None:
    fields = b",".join(b'"k%d":1' % n for n in range(FIELDS_MAX - 1))
    inner = folded(b'{"o":{%b}}' % fields, by=DEFAULT_HANDLER)
    whole = folded(b"{%b}" % fields, by=DEFAULT_HANDLER)
    error = f"An object of the state would have more than {FIELDS_MAX} fields."
    two, known = b'{"x":1,"y":1}', b'{"k1":2,"k2":2}'
    for operation, before in (
        (Merge(("o",), DATA), inner),
        (Merge((), DATA), whole),
        (Set(("o", "b"), DATA), folded(b"{}", by=Set(("o", "a"), DATA), on=inner)),
        (Set(("b",), DATA), folded(b"{}", by=Set(("a",), DATA), on=whole)),
        (Increment(("b",), Constant(1)), folded(b"{}", by=Set(("a",), DATA), on=whole)),
        (Append(("b",), DATA), folded(b"{}", by=Set(("a",), DATA), on=whole)),
        (AppendUnique(("b",), DATA), folded(b"{}", by=Set(("a",), DATA), on=whole)),
        (Merge(("b",), DATA), folded(b"{}", by=Set(("a",), DATA), on=whole)),
    ):
        result = folded(two, by=operation, on=before)
        assert [each.error for each in result.errors] == [error], operation
        assert result.data_json == before.data_json
    assert folded(known, by=Merge(("o",), DATA), on=inner).errors == ()
    assert folded(known, known, by=Merge((), DATA), on=whole).errors == ()
    assert folded(known, known, by=DEFAULT_HANDLER, on=whole).errors == ()


def test_values_that_are_too_long_are_not_compared() -> None:
    text = b'{"t":"%b"}' % (b"x" * COMPARED_BYTES_MAX)
    result = folded(text, by=AppendUnique(("a",), DATA))
    assert result.errors[0].error == f"A value of {len(text)} bytes is too long to be compared."


def test_what_is_looked_up_is_what_would_be_found_one_by_one() -> None:
    items = b'{"a":[{"n":1},{"n":1.0},{"m":1},{"n":null},{"n":2},3,{"n":[1]}]}'
    before = folded(items, by=DEFAULT_HANDLER)
    optional = Path(Root.ITEM, ("n",), optional=True)
    plain = Path(Root.ITEM, ("n",))
    for field in (plain, optional):
        for data in (b'{"n":1}', b'{"n":null}', b"{}", b'{"n":[1.0]}', b'{"n":9}'):
            for wanted in (Path(Root.DATA, ("n",)), Path(Root.DATA, ("n",), optional=True)):
                for sides in ((field, wanted), (wanted, field)):
                    equal = Compare(Comparison.EQUALS, *sides)
                    looked_up = folded(data, by=Remove(("a",), equal), on=before)
                    one_by_one = folded(data, by=Remove(("a",), All((equal,))), on=before)
                    assert looked_up == one_by_one, (field, data, wanted)


def test_lists_are_looked_up_again_after_they_changed() -> None:
    equal = Compare(Comparison.EQUALS, Path(Root.ITEM), Path(Root.DATA, ("n",)))
    handler = (
        Remove(("a",), equal),
        Append(("a",), Path(Root.DATA, ("n",))),
        AppendUnique(("a",), Constant(7)),
    )
    result = folded(b'{"n":1}', b'{"n":2}', b'{"n":1}', b'{"n":7}', by=handler)
    assert result.data_json == b'{"a":[2,1,7]}'
    many = tuple(Remove((f"l{n}",), equal) for n in range(20))
    lists = b"{%b}" % b",".join(b'"l%d": [1, 2]' % n for n in range(20))
    kept = folded(lists, by=DEFAULT_HANDLER)
    assert folded(b'{"n":5}', by=many * 2, on=kept).data_json == kept.data_json, (
        "to the byte: nothing changed"
    )
