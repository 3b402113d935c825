"""Value templates of the handler language, evaluated against one event and the state so far.

Where spec/handlers.py leaves a choice: `$.metadata` is the object that a read shows, with null for what the
event does not have; but a path to that, such as `$.metadata.target?`, finds it absent. Lists have no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, assert_never
from uuid import UUID

from msgspec import Raw

from gateway.events import Event, Recorded
from gateway.state.budget import NESTED_BYTES, Budget, TooLong
from gateway.state.values import Fields, Node, decode_raw, encode, fields_of, items_of, length, raw, read
from gateway.stored_extra import split
from spec.handlers import (
    EACH,
    Constant,
    ListTemplate,
    MergeTemplate,
    ObjectTemplate,
    Path,
    Root,
    Step,
    Template,
)

COPIED_BYTES: Final = 1 << 12
"""What reads or copies so much counts as if it tested an item."""
_PARTS: Final = 8  # what evaluates so many templates does too
_MANY_PARTS: Final = 512


@dataclass(slots=True)
class View:
    """What paths see of one event: each root that is no part of it by its name, `$.data` among them, which
    upcasters change, and `text`, the data as they were stored."""

    recorded: Recorded
    text: bytes | None
    roots: dict[str, Node]
    budget: Budget = field(default_factory=Budget)
    bound: int = 0  # bytes of what names are bound to, at most
    size: int = 0  # of what is being made, and of that, likewise
    parts: int = 0  # how many templates that took

    @classmethod
    def of(cls, recorded: Recorded, data: Node, state: Fields, budget: Budget) -> View:
        """What a handler sees, whose `@` is `state`."""
        return cls(recorded, recorded.event.payload, {Root.DATA: data, Root.STATE: state}, budget)

    def counted(self, value: Raw) -> Raw:
        """Raises TooLong."""
        self.size += len(memoryview(value))
        if self.size > 2 * self.budget.bytes_max:
            raise TooLong(f"The value would be longer than {2 * self.budget.bytes_max} bytes.")
        return value

    def begin(self) -> None:
        self.size, self.parts = self.bound, 0

    def pay(self) -> int:
        """The size of what was made since `begin`, which is counted. Raises Exhausted or TakesLong."""
        size = self.size - self.bound
        if size >= NESTED_BYTES:
            self.budget.work(size // NESTED_BYTES)
        if size >= COPIED_BYTES or self.parts >= _PARTS:
            self.budget.look(size // COPIED_BYTES + self.parts // _PARTS)
        return size

    def takes(self, parts: int) -> None:
        """So many templates are evaluated now. Raises TakesLong, before many are."""
        self.parts += parts
        if parts >= _MANY_PARTS:
            self.budget.work(parts // _PARTS)

    def within(self, roots: Mapping[str, Node | None]) -> View:
        """The same view with other roots; None takes one away."""
        made = {**self.roots, **roots}
        kept = {name: node for name, node in made.items() if node is not None}
        return View(self.recorded, self.text, kept, self.budget, self.bound)


def value_of(template: Template, view: View) -> Node | None:
    """A value that shares nothing with the state; None if it is an absent optional path. Raises Misfit."""
    if isinstance(template, Path):  # not by `match`, which takes as long as the rest of a short path
        found = found_at(template, view)
        if found is not None:
            return view.counted(found)
        return None if template.optional else view.counted(_NULL)
    if isinstance(template, ObjectTemplate):
        return _object(template.fields, view)
    if isinstance(template, Constant):
        return view.counted(Raw(encode(template.value)))
    if isinstance(template, ListTemplate):
        view.size += len(template.items) + 2
        view.takes(len(template.items))
        made = (value_of(item, view) for item in template.items)
        return [item for item in made if item is not None]
    if isinstance(template, MergeTemplate):
        return _merged(template.parts, view)
    assert_never(template)


_NULL: Final = Raw(b"null")


@lru_cache(maxsize=1024)
def name_size(name: str) -> int:
    """Bytes that a field adds to its value, at most, or to an object that is made on the way to it: quotes,
    colon, comma and braces; a character may be escaped into six."""
    return (1 if name.isalnum() and name.isascii() else 6) * len(name) + 6


def _object(fields: tuple[tuple[str, Template], ...], view: View) -> Fields:
    view.size += 2
    view.takes(len(fields))
    made: Fields = {}
    for name, template in fields:
        part = value_of(template, view)
        if part is not None:
            view.size += name_size(name)
            made[name] = part
    return made


def _merged(parts: tuple[Template, ...], view: View) -> Fields:
    view.size += 2
    view.takes(len(parts))
    merged: Fields = {}
    for template in parts:
        part = value_of(template, view)
        fields = None if part is None else fields_of(part)
        if fields is not None:
            merged.update(fields)
    return merged


def found_at(path: Path, view: View) -> Raw | None:
    """What stands at the path, if anything does."""
    if path.root is Root.DATA and not path.fields and view.text is not None:
        return decode_raw(view.text)
    node, fields = view.roots.get(path.root), path.fields
    if node is None:
        node = _made_root(path, view)
    if EACH in fields:
        node = None if node is None else _all_at(node, path, view)
    else:
        for step in fields:
            if node is None:
                break
            if isinstance(node, dict):
                node = node.get(step) if isinstance(step, str) else None
            else:
                node = _at(node, step, path, view)
    return node if node is None or isinstance(node, Raw) else raw(node)


def _at(node: Node, step: Step, path: Path, view: View) -> Node | None:
    """What stands one step on."""
    if isinstance(node, Raw) and length(node) >= COPIED_BYTES:
        _opens(length(node), path, view)
    if isinstance(step, str):
        fields = fields_of(node)
        return None if fields is None else fields.get(step)
    items = items_of(node)
    assert isinstance(step, int)
    return items[step] if items is not None and -len(items) <= step < len(items) else None


def _all_at(node: Node, path: Path, view: View) -> list[Node] | None:
    """One flat list of what stands at a path with `[*]`; None where the first is asked of no list."""
    nodes, listed = [node], False
    for step in path.fields:
        if step is EACH:
            lists = [items_of(each) for each in nodes]
            if not listed and lists in ([], [None]):
                return None
            nodes, listed = [item for items in lists for item in items or ()], True
        else:
            found = [_at(each, step, path, view) for each in nodes]
            nodes = [each for each in found if each is not None]
        _opens(len(nodes) * COPIED_BYTES, path, view)
    return nodes


def _opens(size: int, path: Path, view: View) -> None:
    """Counts what is opened. Of the state it is none of the event's own: what of it is open already depends
    on where folding began."""
    count = view.budget.work if path.root in (Root.STATE, Root.ITEM) else view.budget.look
    count(size // COPIED_BYTES)


def _made_root(path: Path, view: View) -> Node | None:
    """One that is no value of the view."""
    match path.root:
        case Root.KEY:
            return Raw(encode(view.recorded.stream.key))
        case Root.TYPE:
            return Raw(encode(view.recorded.event.type))
        case Root.METADATA:
            return _metadata(view.recorded.event, path.fields)
    return None


def _party(party_type: str | None, identifier: str | None) -> Raw | None:
    return None if party_type is None else Raw(encode({"type": party_type, "id": identifier}))


def _uuid(value: bytes | None) -> Raw | None:
    return None if value is None else Raw(encode(UUID(bytes=value)))


def _extra(text: bytes | None) -> Raw | None:
    return None if text is None or read(text) is None else decode_raw(text)


_METADATA: Final[Mapping[str, Callable[[Event], Raw | None]]] = {
    "actor": lambda event: _party(event.actor_type, event.actor_id),
    "target": lambda event: _party(event.target_type, event.target_id),
    "timestamp": lambda event: Raw(b"%d.%03d" % divmod(event.recorded_at_ms, 1000)),
    "correlation_id": lambda event: _uuid(event.correlation_id),
    "causation_id": lambda event: _uuid(event.causation_id),
    "extra": lambda event: _extra(split(event.extra)[0]),
}
"""Fields in the order and form in which a read shows them (docs/http-api.md); None for what there is not."""


def _metadata(event: Event, fields: tuple[Step, ...]) -> Fields:
    """What a path of these fields needs."""
    if not fields:
        made = {name: of(event) for name, of in _METADATA.items()}
        return {name: _NULL if part is None else part for name, part in made.items()}
    name = fields[0]
    part = _METADATA[name](event) if isinstance(name, str) and name in _METADATA else None
    return {} if part is None or not isinstance(name, str) else {name: part}
