"""What a join selects of the states that a row is made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from msgspec import Raw

from gateway.follow.sort_values import at
from gateway.state.budget import SPELLED_BYTES
from gateway.state.predicates import COMPARED_BYTES, spelling_at
from gateway.state.templates import COPIED_BYTES, View, found_at, name_size, value_of
from gateway.state.values import Fields, Node, items_of, length, raw
from spec.handlers import Constant, ListTemplate, MergeTemplate, ObjectTemplate, Path, Template
from spec.joins import FOUND, LookupOf, MapOf, ObjectOf, Selected

_NULL: Final = Raw(b"null")
_FIELDS_A_LOOK: Final = 8
"""What takes about as long as to test an item: to select so many fields."""


def selected(of: Selected, view: View) -> Node:
    """What is absent is null. All of a row together is no longer than a value may be. Raises Misfit, and
    TakesLong."""
    match of:
        case ObjectOf(fields):
            view.budget.look(1 + len(fields) // _FIELDS_A_LOOK)
            made: Fields = {}
            for name, each in fields:
                view.size += name_size(name)
                made[name] = selected(each, view)
            return made
        case MapOf(path, name, to):
            return _mapped(path, name, to, view)
        case LookupOf():
            return _looked_up(of, view)
        case Path() | Constant() | ObjectTemplate() | ListTemplate() | MergeTemplate():
            value = _value(of, view)
            return _NULL if value is None else raw(value)
        case _:
            assert_never(of)


def _value(template: Template, view: View) -> Node | None:
    """Counted with what the row has already."""
    view.bound, view.parts = view.size, 0
    value = value_of(template, view)
    view.pay()
    return value


def _mapped(path: Path, name: str, to: Selected, view: View) -> Node:
    outer = view.roots.get(name)
    made: list[Node] = []
    for item in _items(path, view):
        view.roots[name] = item
        made.append(raw(selected(to, view)))
    if outer is None:
        view.roots.pop(name, None)
    else:
        view.roots[name] = outer
    return made


def _looked_up(lookup: LookupOf, view: View) -> Node:
    before, wanted = view.size, []
    for path, template in lookup.where:
        value = _value(template, view)
        wanted.append((path, None if value is None else _spelling(value, (), view)))
    view.size = before
    for item in _items(lookup.path, view, 1 + len(wanted)):
        if all(_spelling(item, path, view) == spelling for path, spelling in wanted):
            view.roots[FOUND] = item
            found = _value(lookup.select, view)
            return _NULL if found is None else found
    return _NULL


def _spelling(item: Node, path: Sequence[str], view: View) -> str | None:
    """The spelling of the value at the path in the item. Raises Misfit, and TakesLong."""
    found = at({"": item}, ("", *path))
    if found is None:
        return None
    size = length(raw(found))
    if size >= SPELLED_BYTES:
        view.budget.look(size // COMPARED_BYTES)
        view.budget.work(size // SPELLED_BYTES)
    return spelling_at(found, ())


def _items(path: Path, view: View, times: int = 1) -> list[Node]:
    """Of the list there, each to be read so many times; none where there is no list. Raises Misfit, and
    TakesLong."""
    found = found_at(path, view)
    if found is None:
        return []
    view.budget.look(times * (length(found) // COPIED_BYTES))
    items = items_of(found) or []
    view.budget.look(len(items))
    return items
