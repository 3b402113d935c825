"""Tests of the handler language: which items `where` picks.

Where spec/handlers.py leaves a choice: a comparison with an absent optional path is false, whatever it
compares by, so that what is absent never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from gateway.state.templates import View, found_at, value_of
from gateway.state.values import canonical
from spec import handlers
from spec.handlers import Compare, Comparison, Exists, Path, Predicate, Root, Template


def holds(predicate: Predicate, view: View) -> bool:
    """Raises Misfit: a value to compare is longer than any state."""
    match predicate:
        case Compare(by, left, right):
            one, other = _operand(left, view), _operand(right, view)
            return one is not _ABSENT and other is not _ABSENT and _COMPARE[by](one, other)
        case Exists(path):
            return found_at(path, view) is not None
        case handlers.All(parts):
            return all(holds(part, view) for part in parts)
        case handlers.Any(parts):
            return any(holds(part, view) for part in parts)
    return not holds(predicate.part, view)


_ABSENT: Final[Hashable] = object()


def _operand(template: Template, view: View) -> Hashable:
    """The canonical form, or _ABSENT. A path that does not lead into the item is followed once."""
    fixed = isinstance(template, Path) and template.root is not Root.ITEM
    if fixed and id(template) in view.operands:
        return view.operands[id(template)]
    view.size = 0
    value = value_of(template, view)
    operand = _ABSENT if value is None else canonical(value)
    if fixed:
        view.operands[id(template)] = operand
    return operand


def _is_in(one: Hashable, other: Hashable) -> bool:
    return isinstance(other, tuple) and one in other


def _in_order(by: Callable[[Any, Any], bool]) -> Callable[[Hashable, Hashable], bool]:
    """Among texts, by code points, or among numbers; anything else is in no order."""

    def compare(one: Hashable, other: Hashable) -> bool:
        texts = isinstance(one, str) and isinstance(other, str)
        numbers = isinstance(one, int | Decimal) and isinstance(other, int | Decimal)
        return (texts or numbers) and by(one, other)

    return compare


_COMPARE: Final[Mapping[Comparison, Callable[[Hashable, Hashable], bool]]] = {
    Comparison.EQUALS: eq,
    Comparison.NOT_EQUALS: ne,
    Comparison.GT: _in_order(gt),
    Comparison.GTE: _in_order(ge),
    Comparison.LT: _in_order(lt),
    Comparison.LTE: _in_order(le),
    Comparison.IN: _is_in,
    Comparison.NOT_IN: lambda one, other: not _is_in(one, other),
}
