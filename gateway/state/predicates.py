"""Tests of the handler language: which items `where` picks.

Where spec/handlers.py leaves a choice: a comparison with an absent optional path is false, whatever it
compares by, so that what is absent never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any, Final, assert_never

from gateway.state.templates import View, found_at, value_of
from gateway.state.values import Node, plain, spelled
from spec import handlers
from spec.handlers import Compare, Comparison, Constant, Exists, Path, Predicate, Root, Template
from spec.tables import complete


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value to compare."""

    value: object
    form: str
    items: frozenset[str] | None  # their forms, if it is a list

    @classmethod
    def of(cls, node: Node) -> _Operand:
        value = plain(node)
        items = frozenset(map(spelled, value)) if isinstance(value, list) else None
        return cls(value, spelled(value), items)


@dataclass(frozen=True, slots=True)
class Where:
    """A test and what it compares with every item: what does not lead into the item is computed once."""

    view: View
    _fixed: dict[int, _Operand | None] = field(default_factory=dict)  # by the id of the template

    def holds(self, predicate: Predicate, item: Node) -> bool:
        """Raises Misfit: a value to compare is longer than any state."""
        self.view.item = item
        return self._holds(predicate)

    def _holds(self, predicate: Predicate) -> bool:
        match predicate:
            case Compare(by, left, right):
                one, other = self._operand(left), self._operand(right)
                return one is not None and other is not None and _COMPARE[by](one, other)
            case Exists(path):
                return found_at(path, self.view) is not None
            case handlers.All(parts):
                return all(map(self._holds, parts))
            case handlers.Any(parts):
                return any(map(self._holds, parts))
            case handlers.Not(part):
                return not self._holds(part)
            case _:
                assert_never(predicate)

    def _operand(self, template: Template) -> _Operand | None:
        fixed = (
            template.root is not Root.ITEM if isinstance(template, Path) else isinstance(template, Constant)
        )
        if not fixed:
            return self._made(template)
        if id(template) not in self._fixed:
            self._fixed[id(template)] = self._made(template)
        return self._fixed[id(template)]

    def _made(self, template: Template) -> _Operand | None:
        """None for an absent optional path."""
        self.view.size = 0
        value = value_of(template, self.view)
        return None if value is None else _Operand.of(value)


def _equals(one: _Operand, other: _Operand) -> bool:
    return one.form == other.form


def _is_in(one: _Operand, other: _Operand) -> bool:
    return other.items is not None and one.form in other.items


def _in_order(by: Callable[[Any, Any], bool]) -> Callable[[_Operand, _Operand], bool]:
    """Among texts, by code points, or among numbers; anything else is in no order."""

    def compare(one: _Operand, other: _Operand) -> bool:
        texts = isinstance(one.value, str) and isinstance(other.value, str)
        return (texts or (_is_number(one.value) and _is_number(other.value))) and by(one.value, other.value)

    return compare


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


_COMPARE: Final[Mapping[Comparison, Callable[[_Operand, _Operand], bool]]] = complete(
    tuple(Comparison),
    {
        Comparison.EQUALS: _equals,
        Comparison.NOT_EQUALS: lambda one, other: not _equals(one, other),
        Comparison.GT: _in_order(gt),
        Comparison.GTE: _in_order(ge),
        Comparison.LT: _in_order(lt),
        Comparison.LTE: _in_order(le),
        Comparison.IN: _is_in,
        Comparison.NOT_IN: lambda one, other: not _is_in(one, other),
    },
)
