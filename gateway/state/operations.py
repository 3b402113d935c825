"""What one operation does to a state: all of it, or nothing and a sentence that says why."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from gateway.state.predicates import holds
from gateway.state.templates import STATE_BYTES_MAX, Misfit, View, name_size, value_of
from gateway.state.values import (
    NUMBER_DIGITS_MAX,
    Fields,
    Node,
    canonical,
    encode,
    fields_of,
    items_of,
    kind,
    length,
    nests_within,
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
)

STATE_DEPTH_MAX: Final = 128
"""Levels of a state: twice those of an event's data, and what the strictest of the common readers take. A
handler that sets a field to `@` deepens the state with each event."""


@dataclass(slots=True)
class Draft:
    """A state that is being changed. `size_at_most` bounds its length as JSON from above."""

    fields: Fields
    size_at_most: int

    def surely_holds(self, size: int) -> bool:
        """Makes room without a measurement, where that is possible."""
        if self.size_at_most + size > STATE_BYTES_MAX:
            return False
        self.size_at_most += size
        return True

    def make_room(self, size: int) -> None:
        """Raises Misfit if the state and `size` more bytes are too long. Measures only when in doubt, so that
        the answer depends on the state and not on the way to it."""
        if self.surely_holds(size):
            return
        self.size_at_most = len(encode(self.fields))
        if not self.surely_holds(size):
            raise Misfit(f"The state would be longer than {STATE_BYTES_MAX} bytes; store less in it.")


class _Items(list[Node]):
    """A list that is appended to uniquely; `known` are its items in canonical form."""

    known: set[Hashable]


def apply(operation: Operation, draft: Draft, view: View) -> None:
    """Raises Misfit; the draft is unchanged then."""
    match operation:
        case Remove():
            return _remove(draft, operation, view)
        case Increment() | Decrement():
            value = value_of(operation.by, view)
        case _:
            value = value_of(operation.value, view)
    if value is None:
        return None
    match operation:
        case Set():
            return _set(draft, operation.target, value, view.size)
        case Merge():
            return _merge(draft, operation.target, value, view.size)
        case Append() | AppendUnique():
            return _append(draft, operation, value, view.size)
    return _add(draft, operation, value)


@dataclass(slots=True)
class _Place:
    """The field that a target names. `way` are objects that must be put in place with it: made, or opened."""

    holder: Fields
    name: str
    way: list[tuple[Fields, str, Fields]]

    @property
    def found(self) -> Node | None:
        return self.holder.get(self.name)

    def put(self, node: Node) -> None:
        self._open()
        self.holder[self.name] = node

    def remove(self) -> None:
        self._open()
        del self.holder[self.name]

    def _open(self) -> None:
        for holder, name, fields in self.way:
            holder[name] = fields


def _place(draft: Draft, target: tuple[str, ...]) -> _Place:
    """Raises Misfit if something else than objects is in the way."""
    holder = draft.fields
    way: list[tuple[Fields, str, Fields]] = []
    for depth, name in enumerate(target[:-1], 1):
        node = holder.get(name)
        fields: Fields | None = {} if node is None else fields_of(node)
        if fields is None:
            assert node is not None
            raise Misfit(f"`{'.'.join(target[:depth])}` is {kind(node)}, which has no fields.")
        if fields is not node:
            way.append((holder, name, fields))
        holder = fields
    return _Place(holder, target[-1], way)


def _check(draft: Draft, target: tuple[str, ...], value: Node, size: int) -> None:
    """Raises Misfit unless the state may take `value` of `size` bytes at `target`."""
    if not nests_within(value, STATE_DEPTH_MAX - len(target)):
        raise Misfit(f"The state would be nested deeper than {STATE_DEPTH_MAX} levels.")
    draft.make_room(size + sum(map(name_size, target)))


def _set(draft: Draft, target: tuple[str, ...], value: Node, size: int) -> None:
    if target:
        place = _place(draft, target)
        _check(draft, target, value, size)
        place.put(value)
        return
    fields = _as_fields(value)
    _check(draft, (), value, size)
    draft.fields.clear()
    draft.fields.update(fields)


def _merge(draft: Draft, target: tuple[str, ...], value: Node, size: int) -> None:
    fields = _as_fields(value)
    if not target:
        _check(draft, (), value, size)
        draft.fields.update(fields)
        return
    place = _place(draft, target)
    found = place.found
    into = {} if found is None else fields_of(found)
    if into is None:
        assert found is not None
        raise Misfit(f"`{'.'.join(target)}` is {kind(found)}, not an object to merge into.")
    _check(draft, target, value, size)
    into.update(fields)
    place.put(into)


def _as_fields(value: Node) -> Fields:
    fields = fields_of(value)
    if fields is None:
        raise Misfit(f"The value is {kind(value)}, not an object.")
    return fields


def _append(draft: Draft, operation: Append | AppendUnique, value: Node, size: int) -> None:
    target, unique = operation.target, isinstance(operation, AppendUnique)
    place = _list_place(draft, target)
    found = place.found
    items = [] if found is None else items_of(found)
    if items is None:
        assert found is not None
        raise Misfit(f"`{'.'.join(target)}` is {kind(found)}, not a list.")
    if unique:
        items = _known(items)
    if isinstance(items, _Items):
        form = canonical(value)
        if unique and form in items.known:
            return
        _check(draft, (*target, ""), value, size)
        items.known.add(form)
    else:
        _check(draft, (*target, ""), value, size)
    items.append(value)
    place.put(items)


def _list_place(draft: Draft, target: tuple[str, ...]) -> _Place:
    if not target:
        raise Misfit("The whole state is an object, not a list; name a field of it.")
    return _place(draft, target)


def _known(items: list[Node]) -> _Items:
    if isinstance(items, _Items):
        return items
    known = _Items(items)
    known.known = {canonical(item) for item in items}
    return known


def _remove(draft: Draft, operation: Remove, view: View) -> None:
    if operation.where is not None:
        _remove_items(draft, operation.target, operation.where, view)
    elif operation.target:
        place = _place(draft, operation.target)
        if place.found is not None:
            place.remove()
    else:
        draft.fields.clear()


def _remove_items(draft: Draft, target: tuple[str, ...], where: Predicate, view: View) -> None:
    place = _list_place(draft, target)
    found = place.found
    if found is None:
        return
    items = items_of(found)
    if items is None:
        raise Misfit(f"`{'.'.join(target)}` is {kind(found)}, not a list.")
    kept: list[Node] = []
    for item in items:
        view.item = item
        if not holds(where, view):
            kept.append(item)
    if len(kept) < len(items):
        place.put(kept)


def _add(draft: Draft, operation: Increment | Decrement, value: Node) -> None:
    target = operation.target
    if not target:
        raise Misfit("The whole state is an object, not a number; name a field of it.")
    place = _place(draft, target)
    found = place.found
    number = Decimal(0) if found is None else number_of(found)
    if number is None:
        assert found is not None
        raise Misfit(f"`{'.'.join(target)}` is {kind(found)}, not a number.")
    by = number_of(value)
    if by is None:
        raise Misfit(f"The value to add is {kind(value)}, not a number.")
    total = sum_of(number, by if isinstance(operation, Increment) else by.copy_negate())
    if total is None:
        raise Misfit(f"The sum has more than {NUMBER_DIGITS_MAX} digits.")
    _check(draft, target, total, length(total))
    place.put(total)
