"""Reads a handler from JSON: one operation or a list of them, each `{"name": {"target": …, "value": …}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeGuard, assert_never, get_args

from spec import handlers
from spec.errors import Report, below, proposal, shown
from spec.handlers import Comparison, Handler, Operation, Predicate, Root, Template
from spec.tables import complete
from spec.templates import Scope, read_number, read_object, read_path, read_target, read_template

Arguments = dict[str, object]

_COMPARISONS = frozenset(str(comparison) for comparison in Comparison)
_OF_LISTS: Mapping[str, type[handlers.All | handlers.Any]] = {"and": handlers.All, "or": handlers.Any}
_PREDICATES = _COMPARISONS | _OF_LISTS.keys() | {"exists", "not"}
_NEVER = handlers.Any(())

Name = Literal["set", "merge", "append", "append_unique", "remove", "increment", "decrement"]
"""The operations, as handlers name them."""

NAMES: Final[tuple[Name, ...]] = get_args(Name)

_ARGUMENTS: Mapping[Name, tuple[frozenset[str], frozenset[str]]] = complete(
    NAMES,
    {
        # operation: required arguments, optional ones
        "set": (frozenset({"target", "value"}), frozenset()),
        "merge": (frozenset({"target", "value"}), frozenset()),
        "append": (frozenset({"target", "value"}), frozenset()),
        "append_unique": (frozenset({"target", "value"}), frozenset()),
        "remove": (frozenset({"target"}), frozenset({"where"})),
        "increment": (frozenset({"target"}), frozenset({"value"})),
        "decrement": (frozenset({"target"}), frozenset({"value"})),
    },
)


def _is_operation(name: str) -> TypeGuard[Name]:
    return name in _ARGUMENTS


def read_handler(value: object, pointer: str, scope: Scope, report: Report) -> Handler:
    """The handler that `value` is; operations at fault are left out, with faults in `report`."""
    if isinstance(value, dict):
        operations = [_read_operation(value, pointer, scope, report)]
    elif isinstance(value, list):
        operations = [_read_operation(v, below(pointer, i), scope, report) for i, v in enumerate(value)]
    else:
        why = "`handler` must be an operation or a list of operations; `[]` changes nothing."
        report.add("wrong_type", pointer, why)
        return ()
    return tuple(operation for operation in operations if operation is not None)


def _read_operation(value: object, pointer: str, scope: Scope, report: Report) -> Operation | None:
    if not isinstance(value, dict) or len(value) != 1:
        why = 'An operation is an object of one key, as in {"set": {"target": "status", "value": "paid"}}.'
        report.add("invalid_operation", pointer, why)
        return None
    [(name, arguments)] = value.items()
    place = below(pointer, name)
    if not _is_operation(name):
        report.add("unknown_operation", place, f"There is no {shown(name)}. {proposal(name, _ARGUMENTS)}")
        return None
    if not isinstance(arguments, dict):
        report.add("wrong_type", place, f"`{name}` takes an object with a `target`.")
        return None
    faults_before = len(report)
    _check_arguments(name, arguments, place, report)
    operation = _read_arguments(name, arguments, place, scope, report)
    return operation if len(report) == faults_before else None


def _check_arguments(name: Name, arguments: Arguments, pointer: str, report: Report) -> None:
    required, optional = _ARGUMENTS[name]
    for key in sorted(required - arguments.keys()):
        report.add("missing_key", pointer, f"`{name}` needs a `{key}`.")
    for key in arguments:
        if key not in required | optional:
            why = f"`{name}` takes no {shown(key)}. {proposal(key, required | optional)}"
            report.add("unknown_key", below(pointer, key), why)


def _read_arguments(
    name: Name, arguments: Arguments, pointer: str, scope: Scope, report: Report
) -> Operation | None:
    """Reads every argument that is there, so that each fault is found."""
    target: tuple[str, ...] | None = ()
    if "target" in arguments:
        target = read_target(arguments["target"], below(pointer, "target"), report)
        if target == () and (name not in ("set", "merge", "remove") or "where" in arguments):
            why = f"`{name}` can't change the whole state, which is an object; name a field of it."
            report.add("invalid_target", below(pointer, "target"), why)
    where = _read_where(arguments, pointer, scope, report)
    value = _read_value(name, target, arguments, pointer, scope, report)
    return None if target is None else _made(name, target, value, where)


def _read_value(
    name: Name,
    target: tuple[str, ...] | None,
    arguments: Arguments,
    pointer: str,
    scope: Scope,
    report: Report,
) -> Template:
    place = below(pointer, "value")
    match name:
        case "increment" | "decrement":
            return read_number(arguments.get("value", 1), place, scope, report)
        case _ if "value" not in arguments or name == "remove":
            return handlers.Constant(None)  # a missing one has its fault
        case "merge":
            return read_object(arguments["value"], place, scope, report)
        case "set" if target == ():
            return read_object(arguments["value"], place, scope, report)
    return read_template(arguments["value"], place, scope, report)


def _made(name: Name, target: tuple[str, ...], value: Template, where: Predicate | None) -> Operation:
    match name:
        case "set":
            return handlers.Set(target, value)
        case "merge":
            return handlers.Merge(target, value)
        case "append":
            return handlers.Append(target, value)
        case "append_unique":
            return handlers.AppendUnique(target, value)
        case "remove":
            return handlers.Remove(target, where)
        case "increment":
            return handlers.Increment(target, value)
        case "decrement":
            return handlers.Decrement(target, value)
        case _:
            assert_never(name)


def _read_where(arguments: Arguments, pointer: str, scope: Scope, report: Report) -> Predicate | None:
    if "where" not in arguments:
        return None
    tested = replace(scope, at=Root.ITEM)
    return read_predicate(arguments["where"], below(pointer, "where"), tested, report)


def read_predicate(value: object, pointer: str, scope: Scope, report: Report) -> Predicate:
    """The test that `value` is; what is at fault in it never holds, with faults in `report`."""
    if isinstance(value, dict) and value and all(_is_field_of_item(*entry) for entry in value.items()):
        return _read_fields(value, pointer, scope, report)
    if not isinstance(value, dict) or len(value) != 1:
        why = 'A test is an object of one key, as in {"equals": ["@.sku", "$.data.sku"]}.'
        report.add("invalid_operation", pointer, why)
        return _NEVER
    [(name, operand)] = value.items()
    place = below(pointer, name)
    if name not in _PREDICATES:
        report.add("unknown_operation", place, f"There is no {shown(name)}. {proposal(name, _PREDICATES)}")
        return _NEVER
    if name == "exists":
        return handlers.Exists(read_path(operand, place, scope, report))
    if name == "not":
        return handlers.Not(read_predicate(operand, place, scope, report))
    if name in _COMPARISONS:
        return _read_comparison(Comparison(name), operand, place, scope, report)
    if not isinstance(operand, list):
        report.add("wrong_type", place, f"`{name}` takes a list of tests.")
        return _NEVER
    parts = tuple(read_predicate(part, below(place, i), scope, report) for i, part in enumerate(operand))
    return _OF_LISTS[name](parts)


def _is_field_of_item(name: str, operand: object) -> bool:
    """Whether the entry reads as `field of `@`: value it must have` rather than as a named test."""
    return name.startswith("@.") or (name not in _PREDICATES and not isinstance(operand, list | dict))


def _read_fields(value: Arguments, pointer: str, scope: Scope, report: Report) -> Predicate:
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
        return _NEVER
    left, right = (read_template(side, below(pointer, i), scope, report) for i, side in enumerate(operand))
    return handlers.Compare(by, left, right)
