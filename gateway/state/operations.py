"""What one operation does to a state: all of it, or nothing and a sentence that says why."""

from __future__ import annotations

from decimal import Decimal
from typing import assert_never

from gateway.state.draft import Draft, Place, Target
from gateway.state.predicates import Where
from gateway.state.templates import Misfit, View, value_of
from gateway.state.values import (
    NUMBER_DIGITS_MAX,
    Fields,
    Node,
    fields_of,
    items_of,
    kind,
    length,
    number_of,
    plain,
    spelled,
    sum_of,
)
from spec.handlers import (
    Append,
    AppendUnique,
    Decrement,
    Increment,
    Merge,
    Operation,
    Predicate,
    Remove,
    Set,
)


def apply(operation: Operation, draft: Draft, view: View) -> None:
    """Raises Misfit; the draft is unchanged then."""
    if isinstance(operation, Remove):
        _remove(draft, operation, view)
        return
    template = operation.by if isinstance(operation, Increment | Decrement) else operation.value
    value = value_of(template, view)
    if value is None:
        return
    match operation:
        case Set():
            _set(draft, operation.target, value, view.size)
        case Merge():
            _merge(draft, operation.target, value, view.size)
        case Append():
            _append(draft, operation.target, value, view.size)
        case AppendUnique():
            _append_unique(draft, operation.target, value, view.size)
        case Increment() | Decrement():
            _add(draft, operation, value)
        case _:
            assert_never(operation)


def _set(draft: Draft, target: Target, value: Node, size: int) -> None:
    if target:
        place = draft.place(target)
        draft.check(target, value, size)
        place.put(value)
        return
    fields = _as_fields(value)
    draft.check((), value, size)
    draft.fields.clear()
    draft.fields.update(fields)


def _merge(draft: Draft, target: Target, value: Node, size: int) -> None:
    fields = _as_fields(value)
    if not target:
        draft.check((), value, size)
        draft.fields.update(fields)
        return
    place = draft.place(target)
    found = place.found
    into = {} if found is None else fields_of(found)
    if into is None:
        raise _unfit(target, found, "an object to merge into")
    draft.check(target, value, size)
    into.update(fields)
    place.put(into)


def _as_fields(value: Node) -> Fields:
    fields = fields_of(value)
    if fields is None:
        raise Misfit(f"The value is {kind(value)}, not an object.")
    return fields


def _unfit(target: Target, found: Node | None, wanted: str) -> Misfit:
    assert found is not None  # what is missing is made
    return Misfit(f"`{'.'.join(target)}` is {kind(found)}, not {wanted}.")


# ---- lists ----


class _Unique(list[Node]):
    """A list that was appended to uniquely: `known` are the spellings of its items."""

    known: set[str]


def _append(draft: Draft, target: Target, value: Node, size: int) -> None:
    place, items = _list_at(draft, target)
    draft.check((*target, ""), value, size)
    if isinstance(items, _Unique):
        items.known.add(spelled(plain(value)))
    items.append(value)
    place.put(items)


def _append_unique(draft: Draft, target: Target, value: Node, size: int) -> None:
    place, found = _list_at(draft, target)
    items = found if isinstance(found, _Unique) else _unique(found)
    spelling = spelled(plain(value))
    if spelling not in items.known:
        draft.check((*target, ""), value, size)
        items.known.add(spelling)
        items.append(value)
    place.put(items)  # also without a new item: the next event finds it open


def _list_at(draft: Draft, target: Target) -> tuple[Place, list[Node]]:
    """The place of a list and its items, none if there is no list."""
    place = _field(draft, target, "a list")
    found = place.found
    items = [] if found is None else items_of(found)
    if items is None:
        raise _unfit(target, found, "a list")
    return place, items


def _field(draft: Draft, target: Target, wanted: str) -> Place:
    if not target:
        raise Misfit(f"The whole state is an object, not {wanted}; name a field of it.")
    return draft.place(target)


def _unique(items: list[Node]) -> _Unique:
    made = _Unique(items)
    made.known = {spelled(plain(item)) for item in items}
    return made


def _remove(draft: Draft, operation: Remove, view: View) -> None:
    if operation.where is not None:
        _remove_items(draft, operation.target, operation.where, view)
    elif operation.target:
        place = draft.place(operation.target)
        if place.found is not None:
            place.remove()
    else:
        draft.fields.clear()


def _remove_items(draft: Draft, target: Target, predicate: Predicate, view: View) -> None:
    place, items = _list_at(draft, target)
    where = Where(view)
    kept = [item for item in items if not where.holds(predicate, item)]
    if len(kept) < len(items):
        place.put(kept)


# ---- numbers ----


def _add(draft: Draft, operation: Increment | Decrement, value: Node) -> None:
    place = _field(draft, operation.target, "a number")
    found = place.found
    number = Decimal(0) if found is None else number_of(found)
    if number is None:
        raise _unfit(operation.target, found, "a number")
    by = number_of(value)
    if by is None:
        raise Misfit(f"The value to add is {kind(value)}, not a number.")
    total = sum_of(number, by if isinstance(operation, Increment) else by.copy_negate())
    if total is None:
        raise Misfit(f"The sum has more than {NUMBER_DIGITS_MAX} digits.")
    draft.check(operation.target, total, length(total))
    place.put(total)
