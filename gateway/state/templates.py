"""Value templates of the handler language, evaluated against one event and the state so far.

Where spec/handlers.py leaves a choice: `$.metadata` is the object that a read shows, with null for what the
event does not have; but a path to that, such as `$.metadata.target?`, finds it absent. Lists have no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never
from uuid import UUID

from msgspec import Raw

from gateway.events import Event, Recorded
from gateway.state.values import Fields, Node, decode_raw, encode, fields_of, length, raw, read
from spec.handlers import Constant, ListTemplate, MergeTemplate, ObjectTemplate, Path, Root, Template

STATE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest state, as JSON: 16 times the longest data of an event, read and written in under 10 ms. A handler
that sets two fields to `@` doubles the state with each event; without a limit, thirty of them would take the
memory of the gateway."""


class Misfit(Exception):
    """The operation does not fit; the message is a sentence."""


@dataclass(slots=True)
class View:
    """What the paths of one operation see."""

    recorded: Recorded
    data: Node
    state: Fields
    item: Node | None = None  # that is tested
    size: int = 0  # of the value that is being made, in bytes at most

    def counted(self, value: Raw) -> Raw:
        """Raises Misfit: the value is longer than any state."""
        self.size += length(value)
        if self.size > STATE_BYTES_MAX:
            raise Misfit(f"The value would be longer than {STATE_BYTES_MAX} bytes.")
        return value


def value_of(template: Template, view: View) -> Node | None:
    """A value that shares nothing with the state; None if it is an absent optional path. Raises Misfit."""
    match template:
        case Path():
            found = found_at(template, view)
            if found is not None:
                return view.counted(found)
            return None if template.optional else view.counted(_NULL)
        case Constant(value):
            return view.counted(Raw(encode(value)))
        case ObjectTemplate(fields):
            return _object(fields, view)
        case ListTemplate(items):
            view.size += len(items) + 2
            made = (value_of(item, view) for item in items)
            return [item for item in made if item is not None]
        case MergeTemplate(parts):
            return _merged(parts, view)
        case _:
            assert_never(template)


_NULL: Final = Raw(b"null")


def name_size(name: str) -> int:
    """Bytes that a field adds to its value, at most: a character may be escaped into six."""
    return 6 * len(name) + 4


def _object(fields: tuple[tuple[str, Template], ...], view: View) -> Fields:
    view.size += 2
    made: Fields = {}
    for name, template in fields:
        part = value_of(template, view)
        if part is not None:
            view.size += name_size(name)
            made[name] = part
    return made


def _merged(parts: tuple[Template, ...], view: View) -> Fields:
    view.size += 2
    merged: Fields = {}
    for template in parts:
        part = value_of(template, view)
        fields = None if part is None else fields_of(part)
        if fields is not None:
            merged.update(fields)
    return merged


def found_at(path: Path, view: View) -> Raw | None:
    """What stands at the path, if anything does."""
    node = _root(path, view)
    if path.root is Root.DATA and not path.fields:
        payload = view.recorded.event.payload
        assert payload is not None  # an erased event is not folded
        return decode_raw(payload)
    for name in path.fields:
        fields = None if node is None else fields_of(node)
        node = None if fields is None else fields.get(name)
    return None if node is None else raw(node)


def _root(path: Path, view: View) -> Node | None:
    match path.root:
        case Root.DATA:
            return view.data
        case Root.STATE:
            return view.state
        case Root.ITEM:
            return view.item
        case Root.KEY:
            return Raw(encode(view.recorded.stream.key))
        case Root.TYPE:
            return Raw(encode(view.recorded.event.type))
    return _metadata(view.recorded.event, path.fields)


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
    "extra": lambda event: _extra(event.extra),
}
"""Fields in the order and form in which a read shows them (docs/http-api.md); None for what there is not."""


def _metadata(event: Event, fields: tuple[str, ...]) -> Fields:
    """What a path of these fields needs."""
    if not fields:
        made = {name: of(event) for name, of in _METADATA.items()}
        return {name: _NULL if part is None else part for name, part in made.items()}
    part = _METADATA[fields[0]](event) if fields[0] in _METADATA else None
    return {} if part is None else {fields[0]: part}
