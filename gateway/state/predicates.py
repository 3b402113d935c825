"""Tests of the handler language: which items `where` picks, what `if` and rules ask.

Where spec/handlers.py leaves a choice: a comparison with an absent optional path is false, whatever it
compares by, so that what is absent never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final, assert_never

import msgspec
from msgspec import Raw

from gateway.state.budget import SPELLED_BYTES, Misfit
from gateway.state.templates import View, found_at, value_of
from gateway.state.values import Node, encode, fields_of, items_of, length, plain, raw, spelled
from spec import handlers
from spec.handlers import (
    EACH,
    Compare,
    Comparison,
    Constant,
    Exists,
    ListTemplate,
    MergeTemplate,
    ObjectTemplate,
    Path,
    Predicate,
    Root,
    Scalar,
    Step,
    Template,
)
from spec.tables import complete

COMPARED_BYTES_MAX: Final = 256 * 1024
"""Longest value that is compared: as long as the data of an event are by default."""

COMPARED_BYTES: Final = 512
"""Reading so much into what can be compared takes as long as a test."""


def spelling_at(item: Node, path: tuple[Step, ...]) -> str | None:
    """One spelling for equal values; of what stands at the path in the item, None where nothing does. The
    path has no `[*]`. Raises Misfit: it is too long to be compared."""
    node: Node | None = item
    for step in path:
        if isinstance(step, str):
            fields = None if node is None else fields_of(node)
            node = None if fields is None else fields.get(step)
        else:
            assert isinstance(step, int)
            items = None if node is None else items_of(node)
            node = items[step] if items is not None and -len(items) <= step < len(items) else None
    return None if node is None else spelled(_plain(node))


def _plain(node: Node) -> object:
    text = raw(node)
    if length(text) > COMPARED_BYTES_MAX:
        raise Misfit(f"A value of {length(text)} bytes is too long to be compared.")
    return plain(text)


_SINGLE: Final = (Compare, Exists)


def parts_of(predicate: Predicate) -> int:
    """How many tests it is made of."""
    if isinstance(predicate, _SINGLE):
        return 1
    if isinstance(predicate, handlers.Not):
        return 1 + parts_of(predicate.part)
    return 1 + sum(map(parts_of, predicate.parts))


@dataclass(frozen=True, slots=True)
class Named:
    """The items in which one of these spellings stands at the path."""

    path: tuple[Step, ...]
    spellings: frozenset[str | None]


class Operand(msgspec.Struct, gc=False):
    """A value to compare."""

    value: object
    _form: str | None = None
    _items: frozenset[str] | None = None

    @classmethod
    def of(cls, node: Node) -> Operand:
        return cls(_plain(node))

    @property
    def form(self) -> str:
        """One spelling for equal values; made where it is asked for, since an order needs none."""
        if self._form is None:
            self._form = spelled(self.value)
        return self._form

    @property
    def items(self) -> frozenset[str] | None:
        """The forms of its items, if it is a list."""
        if self._items is None and isinstance(self.value, list):
            self._items = frozenset(map(spelled, self.value))
        return self._items


@lru_cache(maxsize=1024)
def _constant(kind: type, value: Scalar) -> tuple[int, Operand]:
    """The length of a constant as JSON, and its operand. `kind` is its type: 1 equals True."""
    text = Raw(encode(value))
    return length(text), Operand.of(text)


_CONSTANT_CHARS_MAX: Final = 256
"""Longer texts are not remembered."""


def _is_short(value: Scalar) -> bool:
    return not isinstance(value, str) or len(value) <= _CONSTANT_CHARS_MAX


class Where:
    """A test and what it compares with every item: what does not lead into the item is computed once."""

    __slots__ = ("_fixed", "_is_fixed", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self._fixed: dict[int, Operand | None] = {}  # by the id of the template
        self._is_fixed: dict[int, bool] = {}

    def named_by(self, predicate: Predicate) -> Named | None:
        """What it names, where it is one field of the item that equals a value which is the same for all:
        such items can be looked up. Raises Misfit."""
        if not isinstance(predicate, Compare) or predicate.by is not Comparison.EQUALS:
            return None
        for field_of, wanted in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
            if isinstance(field_of, Path) and _is_of_item(field_of) and _is_fixed(wanted):
                operand = self._operand(wanted)
                if operand is None:
                    return Named(field_of.fields, frozenset())
                absent = not field_of.optional and operand.form == _NULL_FORM
                return Named(field_of.fields, frozenset((operand.form, None) if absent else (operand.form,)))
        return None

    def holds(self, predicate: Predicate, item: Node) -> bool:
        """Raises Misfit: a value to compare is longer than any state."""
        self.view.roots[Root.ITEM] = item
        return self.true(predicate)

    def true(self, predicate: Predicate) -> bool:
        """The same of a test that is of no item."""
        if isinstance(predicate, Compare):  # not by `match`, which takes as long as a short comparison
            one, other = self._operand(predicate.left), self._operand(predicate.right)
            return one is not None and other is not None and _COMPARE[predicate.by](one, other)
        if isinstance(predicate, Exists):
            return found_at(predicate.path, self.view) is not None
        if isinstance(predicate, handlers.Not):
            return not self.true(predicate.part)
        if isinstance(predicate, handlers.All):
            return all(map(self.true, predicate.parts))
        if isinstance(predicate, handlers.Any):
            return any(map(self.true, predicate.parts))
        assert_never(predicate)

    def _operand(self, template: Template) -> Operand | None:
        if isinstance(template, Path) and template.root is Root.ITEM:
            return self._made(template)  # as nearly always
        if id(template) in self._fixed:
            return self._fixed[id(template)]
        known = self._is_fixed.get(id(template))
        if known is None:
            known = self._is_fixed[id(template)] = _is_fixed(template)
        made = self._made(template)
        if known:
            self._fixed[id(template)] = made
        return made

    def _made(self, template: Template) -> Operand | None:
        """None for an absent optional path. What is longer than a few fields counts as more than one test."""
        view = self.view
        view.size, view.parts = view.bound, 0
        if isinstance(template, Constant) and _is_short(template.value):
            kind: type = type(template.value)
            size, operand = _constant(kind, template.value)
            view.size += size
            return operand
        value = value_of(template, view)
        size = view.size - view.bound
        if view.parts or size >= COMPARED_BYTES:
            view.budget.look(size // COMPARED_BYTES + view.parts)
        if size >= _LONG_BYTES:
            view.budget.work(size // SPELLED_BYTES)
        return None if value is None else Operand.of(value)


_LONG_BYTES: Final = 64
"""What is shorter, as an identifier is, is compared within the time of its test."""

_NULL_FORM: Final = spelled(None)


def _is_of_item(path: Path) -> bool:
    return path.root is Root.ITEM and EACH not in path.fields


def _is_fixed(template: Template) -> bool:
    """Whether it is the same for all items."""
    match template:
        case Path(root):
            return root is not Root.ITEM
        case Constant():
            return True
        case ObjectTemplate(fields):
            return all(_is_fixed(part) for _, part in fields)
        case ListTemplate(parts) | MergeTemplate(parts):
            return all(map(_is_fixed, parts))
        case _:
            assert_never(template)


def _equals(one: Operand, other: Operand) -> bool:
    return one.form == other.form


def _is_in(one: Operand, other: Operand) -> bool:
    return other.items is not None and one.form in other.items


def _in_order(by: Callable[[Any, Any], bool]) -> Callable[[Operand, Operand], bool]:
    """Among texts, by code points, or among numbers; anything else is in no order."""

    def compare(one: Operand, other: Operand) -> bool:
        texts = isinstance(one.value, str) and isinstance(other.value, str)
        return (texts or (_is_number(one.value) and _is_number(other.value))) and by(one.value, other.value)

    return compare


_NUMBERS: Final = (int, Decimal)


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


_COMPARE: Final[Mapping[Comparison, Callable[[Operand, Operand], bool]]] = complete(
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
