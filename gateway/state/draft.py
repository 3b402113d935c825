"""A state that is being changed: the places of its fields, and its limits.

Nothing is in place before an operation is known to fit, so that one that does not leaves every byte alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.state.templates import STATE_BYTES_MAX, Misfit, name_size
from gateway.state.values import Fields, Node, encode, fields_of, kind, nests_within

STATE_DEPTH_MAX: Final = 128
"""Levels of a state: twice those of an event's data, and what the strictest of the common readers take. A
handler that sets a field to `@` deepens the state with each event."""

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

    def put(self, node: Node) -> None:
        self._open()
        self.holder[self.name] = node

    def remove(self) -> None:
        self._open()
        del self.holder[self.name]

    def _open(self) -> None:
        for holder, name, fields in self.way:
            holder[name] = fields


@dataclass(slots=True)
class Draft:
    """`size_at_most` bounds the length of the state as JSON from above."""

    fields: Fields
    size_at_most: int

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
        size += sum(map(name_size, target))
        if not self.surely_holds(size):
            # Measured when in doubt, so that the answer depends on the state and not on the way to it.
            self.size_at_most = len(encode(self.fields))
            if not self.surely_holds(size):
                raise Misfit(f"The state would be longer than {STATE_BYTES_MAX} bytes; store less in it.")
        if not nests_within(value, STATE_DEPTH_MAX - len(target)):
            raise Misfit(f"The state would be nested deeper than {STATE_DEPTH_MAX} levels.")

    def surely_holds(self, size: int) -> bool:
        """Makes room for `size` bytes if that is possible without a measurement."""
        if self.size_at_most + size > STATE_BYTES_MAX:
            return False
        self.size_at_most += size
        return True
