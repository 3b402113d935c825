"""A state that is being changed: the places of its fields, and its limits.

Nothing is in place before an operation is known to fit, so that one that does not leaves every byte as it
was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.state.budget import Misfit, TooLarge
from gateway.state.templates import name_size
from gateway.state.values import Fields, Node, encode, fields_of, kind, nests_within

STATE_DEPTH_MAX: Final = 128
"""Levels of a state: twice those of an event's data, and what the strictest of the common readers take. A
handler that sets a field to `@` deepens the state with each event."""

FIELDS_MAX: Final = 25_000
ITEMS_MAX: Final = 50_000
"""Fields of an object and items of a list that operations add to: opening one takes under 10 ms."""

_OPENED_MAX: Final = 8
"""Lists that are remembered open although nothing in them was changed yet."""

Target = tuple[str, ...]


@dataclass(slots=True)
class Place:
    """The field that a target names. `way` are objects that must be put in place with it: made, or opened."""

    holder: Fields
    name: str
    way: list[tuple[Fields, str, Fields]]

    @property
    def found(self) -> Node | None:
        return self.holder.get(self.name)

    def room(self) -> None:
        """Raises Misfit if the field is a new one of an object that is full."""
        if len(self.holder) >= FIELDS_MAX and self.name not in self.holder:
            raise full()

    def put(self, node: Node) -> None:
        """After `room`."""
        self._open()
        self.holder[self.name] = node

    def remove(self) -> None:
        self._open()
        del self.holder[self.name]

    def _open(self) -> None:
        for holder, name, fields in self.way:
            holder[name] = fields


def full() -> Misfit:
    return Misfit(f"An object of the state would have more than {FIELDS_MAX} fields.")


@dataclass(slots=True)
class Draft:
    """`size_at_most` bounds the length of the state as JSON from above, `bytes_max` is what it may be, once
    the event is folded; meanwhile it may be twice as long. `levels` are those that its fields may have.

    What an item of a list is changed into is a draft too, of the item only."""

    fields: Fields
    size_at_most: int
    bytes_max: int
    levels: int = field(default_factory=lambda: STATE_DEPTH_MAX)
    _opened: dict[int, tuple[Node, list[Node]]] = field(default_factory=dict)

    def opened(self, found: Node, open_it: Callable[[Node], list[Node] | None]) -> list[Node] | None:
        """The items of a list, opened once however many operations look into it before one changes it."""
        known = self._opened.get(id(found))
        if known is not None and known[0] is found:
            return known[1]
        items = open_it(found)
        if items is not None and items is not found:
            if len(self._opened) >= _OPENED_MAX:
                self._opened.clear()
            self._opened[id(found)] = found, items
        return items

    def place(self, target: Target) -> Place:
        """Raises Misfit if something else than objects is in the way. `target` is not ()."""
        holder = self.fields
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
        return Place(holder, target[-1], way)

    def check(self, target: Target, value: Node, size: int) -> None:
        """Raises Misfit unless the state may take `value`, of at most `size` bytes, at `target`."""
        self.grow(size + sum(map(name_size, target)))
        self.check_levels(target, value)

    def check_levels(self, target: Target, value: Node) -> None:
        if not nests_within(value, self.levels - len(target)):
            raise Misfit(f"The state would be nested deeper than {STATE_DEPTH_MAX} levels.")

    def grow(self, size: int) -> None:
        """Raises TooLarge. Measured when in doubt, so that the answer depends on the state and not on the way
        to it."""
        self.size_at_most += size
        if self.size_at_most > 2 * self.bytes_max:
            self.size_at_most = len(encode(self.fields)) + size
            if self.size_at_most > 2 * self.bytes_max:
                raise TooLarge(f"The state would be longer than {2 * self.bytes_max} bytes.")

    def is_too_large(self) -> bool:
        """Whether it is longer than it may be."""
        if self.size_at_most > self.bytes_max:
            self.size_at_most = len(encode(self.fields))
        return self.size_at_most > self.bytes_max

    def surely_takes(self, fields: Fields, size: int) -> bool:
        """Makes room for fields that are merged into the whole, if that is possible without a measurement."""
        if len(self.fields) + len(fields) > FIELDS_MAX or self.size_at_most + size > self.bytes_max:
            return False
        self.size_at_most += size
        return True
