"""Reads tests from JSON: `{"equals": [a, b]}` and its kind, or fields and the values that they must have."""

from __future__ import annotations

from collections.abc import Mapping

from spec import handlers
from spec.errors import Report, below, proposal, shown
from spec.handlers import Comparison, Predicate
from spec.templates import Scope, read_path, read_template

_COMPARISONS = frozenset(str(comparison) for comparison in Comparison)
_OF_LISTS: Mapping[str, type[handlers.All | handlers.Any]] = {"and": handlers.All, "or": handlers.Any}
_PREDICATES = _COMPARISONS | _OF_LISTS.keys() | {"exists", "not"}
NEVER = handlers.Any(())
"""What stands where a test is at fault or missing."""


def read_predicate(value: object, pointer: str, scope: Scope, report: Report) -> Predicate:
    """The test that `value` is; what is at fault in it never holds, with faults in `report`."""
    if isinstance(value, dict) and value and all(_is_field_of_item(*entry) for entry in value.items()):
        return _read_fields(value, pointer, scope, report)
    if not isinstance(value, dict) or len(value) != 1:
        why = 'A test is an object of one key, as in {"equals": ["@.sku", "$.data.sku"]}.'
        report.add("invalid_operation", pointer, why)
        return NEVER
    [(name, operand)] = value.items()
    place = below(pointer, name)
    if name not in _PREDICATES:
        report.add("unknown_operation", place, f"There is no {shown(name)}. {proposal(name, _PREDICATES)}")
        return NEVER
    if name == "exists":
        return handlers.Exists(read_path(operand, place, scope, report))
    if name == "not":
        return handlers.Not(read_predicate(operand, place, scope, report))
    if name in _COMPARISONS:
        return _read_comparison(Comparison(name), operand, place, scope, report)
    if not isinstance(operand, list):
        report.add("wrong_type", place, f"`{name}` takes a list of tests.")
        return NEVER
    parts = tuple(read_predicate(part, below(place, i), scope, report) for i, part in enumerate(operand))
    return _OF_LISTS[name](parts)


def _is_field_of_item(name: str, operand: object) -> bool:
    """Whether the entry reads as `field of `@`: value it must have` rather than as a named test."""
    return name.startswith("@.") or (name not in _PREDICATES and not isinstance(operand, list | dict))


def _read_fields(value: dict[str, object], pointer: str, scope: Scope, report: Report) -> Predicate:
    """`{"@.sku": "$.data.sku"}`, the `@.` optional: every field named equals its value."""
    parts = []
    for name, operand in value.items():
        place = below(pointer, name)
        field = read_path(name if name.startswith("@.") else f"@.{name}", place, scope, report)
        wanted = read_template(operand, place, scope, report)
        parts.append(handlers.Compare(Comparison.EQUALS, field, wanted))
    return parts[0] if len(parts) == 1 else handlers.All(tuple(parts))


def _read_comparison(
    by: Comparison, operand: object, pointer: str, scope: Scope, report: Report
) -> Predicate:
    if not isinstance(operand, list) or len(operand) != 2:
        report.add("wrong_type", pointer, f"`{by}` takes a list of two values to compare.")
        return NEVER
    left, right = (read_template(side, below(pointer, i), scope, report) for i, side in enumerate(operand))
    return handlers.Compare(by, left, right)
