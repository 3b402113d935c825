"""What an event implies: evaluated on the event and on its aggregate's state after it. Pure.

Owns: conditions, lists, ids and data of `emit`, as values. Must not know: whether what they give can be
appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.events import Recorded
from gateway.state.budget import Budget, Misfit
from gateway.state.predicates import Where
from gateway.state.templates import View, value_of
from gateway.state.values import Node, decode_fields, encode, items_of, kind, opened, plain
from spec.handlers import Root, Template
from spec.implications import Emit, EmitEach, Implication, Schedule

_DATA: Final = Root.DATA
_STATE: Final = Root.STATE
_NO_STATE: Final = b"{}"


class Emitted(msgspec.Struct, frozen=True, gc=False):
    """`id` is as the template gives it, None for a new aggregate; `data` is JSON; `path` leads to it."""

    emit: Emit
    id: str | None
    data: bytes
    path: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """`path` leads to what gives no value, or none that fits; `identifies`: as an identifier."""

    path: str
    error: str
    identifies: bool = False


def view_of(recorded: Recorded, state_json: bytes, budget: Budget | None = None) -> View:
    """What conditions and templates see: the event, and the state after it as `@`. The looks of the budget
    are this event's from here on."""
    budget = budget or Budget()
    budget.looks = 0
    text = recorded.event.payload
    state = {} if state_json == _NO_STATE else decode_fields(state_json)
    return View(recorded, text, {_DATA: opened(text or b"null"), _STATE: state}, budget)


def emitted(view: View, implications: Sequence[Implication], most: int) -> list[Emitted] | Unfit:
    """In the order of the implications, and of the items; at most one more than `most`."""
    found: list[Emitted] = []
    for n, each in enumerate(implications):
        if isinstance(each.what, Schedule):
            continue
        path = f"implications[{n}]"
        try:
            if each.condition is not None and not Where(view).true(each.condition):
                continue
            if isinstance(each.what, Emit):
                found.append(_one(each.what, view, path))
            else:
                for number, seen in enumerate(_items(each.what, view)):
                    found.append(_one(each.what.emit, seen, f"{path}[{number}]"))
                    if len(found) > most:
                        break
            if len(found) > most:
                break
        except Misfit as misfit:
            return Unfit(path, str(misfit))
        except _Fault as fault:
            return fault.unfit
    return found


class _Fault(Exception):
    def __init__(self, path: str, error: str, *, identifies: bool = False) -> None:
        self.unfit = Unfit(path, error, identifies)


def _items(what: EmitEach, view: View) -> Iterator[View]:
    """What is seen with each of them. Raises Misfit."""
    source = value_of(what.source, view)
    if source is None:  # absent, at a path that says so: it implies nothing
        return
    items = items_of(source)
    if items is None:
        raise Misfit(f"`in` gives {kind(source)}, not a list.")
    for item in items:
        yield view.within({what.name: item})


def _one(emit: Emit, view: View, path: str) -> Emitted:
    """Raises _Fault."""
    identifier = None
    if emit.id is not None:
        identifier = text_at(emit.id, view, f"{path}.id")
    try:
        data = value_of(emit.data, view)
    except Misfit as misfit:
        raise _Fault(f"{path}.data", str(misfit)) from misfit
    return Emitted(emit, identifier, b"{}" if data is None else encode(data), path)


def emit_at(emit: Emit, view: View, path: str) -> Emitted | Unfit:
    """One, as a timer or a step of a saga emits it; what it copies counts."""
    view.begin()
    try:
        made = _one(emit, view, path)
        view.pay()
    except _Fault as fault:
        return fault.unfit
    except Misfit as misfit:
        return Unfit(path, str(misfit))
    return made


def text_at(template: Template, view: View, path: str) -> str:
    """Raises _Fault where it gives no string."""
    try:
        found: Node | None = value_of(template, view)
    except Misfit as misfit:
        raise _Fault(path, str(misfit)) from misfit
    value = None if found is None else plain(found)
    if not isinstance(value, str):
        given = "nothing" if found is None else kind(found)
        raise _Fault(path, f"`id` gives {given}, not a string, so there is no identifier.", identifies=True)
    return value


def text_of(template: Template, view: View, path: str) -> str | Unfit:
    """An identifier as text."""
    try:
        return text_at(template, view, path)
    except _Fault as fault:
        return fault.unfit
