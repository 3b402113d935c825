"""What one operation does to a state: all of it, or nothing and a sentence that says why."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import compress
from typing import assert_never

from gateway.state.budget import Misfit
from gateway.state.draft import FIELDS_MAX, ITEMS_MAX, Draft, Place, Target, full
from gateway.state.predicates import Named, Where, parts_of, spelling_at
from gateway.state.templates import COPIED_BYTES, View, value_of
from gateway.state.values import (
    NUMBER_DIGITS_MAX,
    Fields,
    Node,
    fields_of,
    items_of,
    kind,
    length,
    number_of,
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
    Step,
)


def apply(operation: Operation, draft: Draft, view: View) -> None:
    """Raises Misfit; the draft is unchanged then."""
    if isinstance(operation, Remove):
        _remove(draft, operation, view)
        return
    template = operation.by if isinstance(operation, Increment | Decrement) else operation.value
    view.size = 0
    value = value_of(template, view)
    if value is None:
        return
    view.budget.look(view.size // COPIED_BYTES)
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


# ---- lists ----


class _Items(list[Node]):
    """A list that is looked up in: of each of some paths within the items, the spelling of what stands there,
    None where nothing does, in the order of the items; and how often each occurs."""

    spellings: dict[tuple[Step, ...], list[str | None]]
    counts: dict[tuple[Step, ...], Counter[str | None]]

    def look_up(self, path: tuple[Step, ...]) -> Counter[str | None]:
        if path not in self.counts:
            self.spellings[path] = [spelling_at(item, path) for item in self]
            self.counts[path] = Counter(self.spellings[path])
        return self.counts[path]

    def add(self, value: Node) -> None:
        for path, spellings in self.spellings.items():
            spelling = spelling_at(value, path)
            spellings.append(spelling)
            self.counts[path][spelling] += 1
        self.append(value)

    def keep(self, wanted: list[bool]) -> None:
        """Those alone that are True."""
        self[:] = compress(self, wanted)
        for path, spellings in self.spellings.items():
            self.spellings[path] = kept = [*compress(spellings, wanted)]
            self.counts[path] = Counter(kept)


def _append(draft: Draft, target: Target, value: Node, size: int) -> None:
    place, items = _list_at(draft, target)
    _check_item(draft, place, items, target, value, size)
    items.add(value)
    place.put(items)


def _append_unique(draft: Draft, target: Target, value: Node, size: int) -> None:
    place, items = _list_at(draft, target)
    known = items.look_up(())
    if spelling_at(value, ()) not in known:
        _check_item(draft, place, items, target, value, size)
        items.add(value)
    place.room()
    place.put(items)  # also without a new item: the next event finds it open


def _check_item(
    draft: Draft, place: Place, items: list[Node], target: Target, value: Node, size: int
) -> None:
    if len(items) >= ITEMS_MAX:
        raise Misfit(f"`{'.'.join(target)}` has {len(items)} items; a list grows to {ITEMS_MAX} at most.")
    draft.check((*target, ""), value, size)
    place.room()


def _list_at(draft: Draft, target: Target) -> tuple[Place, _Items]:
    """The place of a list and its items, none if there is no list."""
    place = _field(draft, target, "a list")
    found = place.found
    items = _opened([]) if found is None else draft.opened(found, _open)
    if items is None:
        raise _unfit(target, found, "a list")
    assert isinstance(items, _Items)
    return place, items


def _open(node: Node) -> list[Node] | None:
    items = items_of(node)
    return items if items is None or isinstance(items, _Items) else _opened(items)


def _opened(items: list[Node]) -> _Items:
    made = _Items(items)
    made.spellings, made.counts = {}, {}
    return made


def _field(draft: Draft, target: Target, wanted: str) -> Place:
    if not target:
        raise Misfit(f"The whole state is an object, not {wanted}; name a field of it.")
    return draft.place(target)


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
    named = where.named_by(predicate)
    if named is not None:
        kept = _all_but(items, named)
    else:
        view.budget.look(len(items) * parts_of(predicate))
        kept = [not where.holds(predicate, item) for item in items]
    if not all(kept):
        items.keep(kept)
        place.put(items)


def _all_but(items: _Items, named: Named) -> list[bool]:
    counts = items.look_up(named.path)
    if not any(spelling in counts for spelling in named.spellings):
        return []
    return [spelling not in named.spellings for spelling in items.spellings[named.path]]


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
    place.room()
    place.put(total)
