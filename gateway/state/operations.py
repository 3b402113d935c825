"""What one operation does to a state: all of it, or nothing and a sentence that says why.

Operations within others each stand for themselves as well: what does not fit among them is reported with its
place.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import assert_never

from msgspec import Raw

from gateway.state import lists
from gateway.state.budget import Exhausted, Misfit, TooLarge, TooLong
from gateway.state.draft import FIELDS_MAX, Draft, Target, full
from gateway.state.predicates import Where, parts_of
from gateway.state.templates import View, name_size, value_of
from gateway.state.values import (
    NUMBER_DIGITS_MAX,
    Fields,
    Node,
    fields_of,
    kind,
    length,
    number_of,
    plain,
    raw,
    short_integer,
    sum_of,
)
from spec.handlers import (
    KEY_BYTES_MAX,
    Append,
    AppendUnique,
    Conditional,
    Constant,
    Decrement,
    Filter,
    Handler,
    Increment,
    IncrementAt,
    Let,
    Map,
    Merge,
    MergeAt,
    Operation,
    Path,
    Remove,
    RemoveAt,
    Root,
    Set,
    SetAt,
    Template,
    UpdateWhere,
    Upsert,
)

Report = Callable[[str], None]
"""Takes a sentence about an operation within another that did not fit."""

_SHORT_MAX = 10**15 - 1
_INNER_LOOKS = 3  # what an operation on an item takes, in tests


def apply(operation: Operation, draft: Draft, view: View, report: Report) -> None:
    """Raises Misfit: the draft is as it was, but for what operations within this one did by themselves before
    the budget was used up."""
    view.roots.pop(Root.ITEM, None)  # of the operation before
    match operation:
        case Increment() | Decrement():
            if not _counts(operation, draft, view):
                _put(operation, draft, operation.target, operation.by, view)
        case Set() | Merge() | Append() | AppendUnique() | Upsert():
            _put(operation, draft, operation.target, operation.value, view)
        case Remove():
            _remove(operation, draft, view)
        case SetAt() | MergeAt() | IncrementAt():
            if (name := _key(operation.key, view)) is not None:
                value = operation.by if isinstance(operation, IncrementAt) else operation.value
                _put(operation, draft, (*operation.target, name), value, view)
        case RemoveAt():
            if (name := _key(operation.key, view)) is not None:
                _remove_field(draft, (*operation.target, name))
        case Filter():
            lists.keep(draft, operation.target, operation.where, view)
        case Map():
            become = _becomes(operation, draft, view, report)
            lists.change(draft, operation.target, "map", None, become, view)
        case UpdateWhere():
            become = _becomes(operation, draft, view, report)
            lists.change(draft, operation.target, "update_where", operation.where, become, view)
        case Conditional(test, then, otherwise):
            view.budget.look(parts_of(test))
            chosen = ("then", then) if Where(view).true(test) else ("else", otherwise)
            _run(*chosen, draft, view, report)
        case Let(names, do):
            _run("do", do, draft, _bound(names, view), report)
        case _:
            assert_never(operation)


_Putting = (
    Set | SetAt | Merge | MergeAt | Append | AppendUnique | Upsert | Increment | IncrementAt | Decrement
)


def _put(operation: _Putting, draft: Draft, target: Target, template: Template, view: View) -> None:
    """What takes one value to one place. Raises TooLarge: no state could have the value."""
    view.size, view.parts = view.bound, 0
    try:
        value = value_of(template, view)
    except TooLong as too_long:
        raise TooLarge(str(too_long)) from None
    if value is None:
        return
    size = view.pay()
    match operation:
        case Set() | SetAt():
            _set(draft, target, value, size)
        case Merge() | MergeAt():
            _merge(draft, target, value, size)
        case Append():
            lists.append(draft, target, value, size)
        case AppendUnique():
            lists.append_unique(draft, target, operation.key, value, size, view)
        case Upsert():
            lists.upsert(draft, target, operation.key, value, size, view)
        case Increment() | IncrementAt():
            _add(draft, target, value, 1)
        case Decrement():
            _add(draft, target, value, -1)
        case _:
            assert_never(operation)


# ---- operations within others ----


def _run(name: str, handler: Handler, draft: Draft, view: View, report: Report) -> bool:
    """Whether one of them did fit. Raises Exhausted and TooLarge, which are about more than one of them."""
    fitted = False
    for index, operation in enumerate(handler):
        here = partial(_within, report, f"{name}[{index}]")
        try:
            view.budget.look(_INNER_LOOKS)
            apply(operation, draft, view, here)
            fitted = True
        except (Exhausted, TooLarge):
            raise
        except Misfit as misfit:
            report(f"{name}[{index}]: {misfit}")
    return fitted


def _within(report: Report, place: str, sentence: str) -> None:
    report(f"{place}, {sentence}")


def _bound(names: tuple[tuple[str, Template], ...], view: View) -> View:
    """A view that has the names too. Raises Misfit: what they stand for is too long."""
    view = view.within({})
    view.begin()
    for name, template in names:
        value = value_of(template, view)
        if value is None:
            view.roots.pop(name, None)
        else:
            view.roots[name] = value
    view.pay()
    view.bound = view.size
    return view


def _becomes(operation: Map | UpdateWhere, draft: Draft, view: View, report: Report) -> lists.Become:
    """What a template or operations make of an item; what does not fit it is reported."""
    levels = draft.levels - len(operation.target) - 1

    def by_value(template: Template, index: int, item: Node) -> Node | None:
        view.roots[Root.ITEM] = item
        view.begin()
        try:
            made = value_of(template, view)
        except TooLong as too_long:
            raise TooLarge(str(too_long)) from None
        view.pay()
        if made is None or isinstance(operation, Map):
            return made
        try:
            return lists.merged(item, made)
        except Misfit as misfit:
            report(f"item {index}: {misfit}")
            return None

    def by_operations(index: int, item: Node) -> Node | None:
        item = raw(item)
        fields = fields_of(item)
        if fields is None:
            report(f"item {index}: It is {kind(item)}, which has no fields.")
            return None
        inner = Draft(fields, length(item), draft.bytes_max, levels)
        seen = view.within({Root.STATE: fields, Root.ITEM: None})
        fitted = _run("do", operation.do, inner, seen, partial(_within, report, f"item {index}"))
        return fields if fitted else None

    return by_operations if operation.value is None else partial(by_value, operation.value)


# ---- fields ----


def _key(template: Template, view: View) -> str | None:
    """The name of a field; None if it is an absent optional path. Raises Misfit."""
    view.begin()
    value = value_of(template, view)
    view.pay()
    if value is None:
        return None
    text = raw(value)
    if kind(text) == "a number":
        name = bytes(text).decode()
    elif kind(text) == "a string":
        name = str(plain(text)) if length(text) <= 6 * KEY_BYTES_MAX + 2 else ""
    else:
        raise Misfit(f"The key is {kind(text)}, not a string.")
    if length(text) > 6 * KEY_BYTES_MAX + 2 or len(name.encode()) > KEY_BYTES_MAX:
        raise Misfit(f"The key is longer than {KEY_BYTES_MAX} bytes.")
    return name


def _remove(operation: Remove, draft: Draft, view: View) -> None:
    if operation.where is not None:
        lists.remove(draft, operation.target, operation.where, view)
    elif operation.target:
        _remove_field(draft, operation.target)
    else:
        draft.fields.clear()


def _remove_field(draft: Draft, target: Target) -> None:
    place = draft.place(target)
    if place.found is not None:
        place.remove()


def _set(draft: Draft, target: Target, value: Node, size: int) -> None:
    if target:
        place = draft.place(target)
        draft.check(target, value, size)
        place.room()
        place.put(value)
        return
    fields = _as_fields(value)
    _room(fields, {})
    draft.check((), value, size)
    draft.fields.clear()
    draft.fields.update(fields)


def _merge(draft: Draft, target: Target, value: Node, size: int) -> None:
    fields = _as_fields(value)
    if not target:
        draft.check((), value, size)
        _room(draft.fields, fields)
        draft.fields.update(fields)
        return
    place = draft.place(target)
    found = place.found
    into = {} if found is None else fields_of(found)
    if into is None:
        raise _unfit(target, found, "an object to merge into")
    draft.check(target, value, size)
    _room(into, fields)
    place.room()
    into.update(fields)
    place.put(into)


def _room(into: Fields, fields: Fields) -> None:
    """Raises Misfit if the object would have too many fields."""
    if len(into) + len(fields) > FIELDS_MAX and len(into.keys() | fields.keys()) > FIELDS_MAX:
        raise full()


def _as_fields(value: Node) -> Fields:
    fields = fields_of(value)
    if fields is None:
        raise Misfit(f"The value is {kind(value)}, not an object.")
    return fields


def _unfit(target: Target, found: Node | None, wanted: str) -> Misfit:
    assert found is not None  # what is missing is made
    return Misfit(f"`{'.'.join(target)}` is {kind(found)}, not {wanted}.")


# ---- numbers ----


def _counts(operation: Increment | Decrement, draft: Draft, view: View) -> bool:
    """Does what `_put` does where an integer of a few digits is added to such a one, or to nothing, in a
    field of the state itself: in a quarter of the time, for most of what is counted. False where it does
    not."""
    by = _short_value(operation.by, view)
    if by is None or len(operation.target) != 1 or draft.levels < 1:
        return False
    (name,), fields = operation.target, draft.fields
    found = fields.get(name)
    number = 0 if found is None else short_integer(found)
    if number is None or (found is None and len(fields) >= FIELDS_MAX):
        return False
    text = b"%d" % (number + by if isinstance(operation, Increment) else number - by)
    draft.grow(len(text) + name_size(name))
    fields[name] = Raw(text)
    return True


def _short_value(template: Template, view: View) -> int | None:
    """Of a constant, or of a field of the event's data."""
    match template:
        case Constant(value):
            return value if type(value) is int and 0 <= value <= _SHORT_MAX else None
        case Path(Root.DATA, (name,)):
            data = view.roots.get(Root.DATA)
            node = data.get(name) if isinstance(data, dict) and isinstance(name, str) else None
            return None if node is None else short_integer(node)
    return None


def _add(draft: Draft, target: Target, value: Node, sign: int) -> None:
    if not target:
        raise Misfit("The whole state is an object, not a number; name a field of it.")
    place = draft.place(target)
    found = place.found
    total = _short_sum(found, value, sign) or _sum(target, found, value, sign)
    draft.check(target, total, length(total))
    place.room()
    place.put(total)


def _short_sum(found: Node | None, value: Node, sign: int) -> Raw | None:
    """What `_sum` makes of integers of a few digits, in a third of the time; None where it is not two of
    them."""
    number = 0 if found is None else short_integer(found)
    by = short_integer(value)
    return None if number is None or by is None else Raw(b"%d" % (number + sign * by))


def _sum(target: Target, found: Node | None, value: Node, sign: int) -> Raw:
    number = Decimal(0) if found is None else number_of(found)
    if number is None:
        raise _unfit(target, found, "a number")
    by = number_of(value)
    if by is None:
        raise Misfit(f"The value to add is {kind(value)}, not a number.")
    total = sum_of(number, by if sign > 0 else by.copy_negate())
    if total is None:
        raise Misfit(f"The sum has more than {NUMBER_DIGITS_MAX} digits.")
    return total
