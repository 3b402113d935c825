"""Reads a handler from JSON: one operation or a list of them, each `{"name": {"target": …, "value": …}}`, or
one that holds others: `{"if": …, "then": …}`, `{"let": …, "do": …}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeGuard, assert_never, get_args

from spec import handlers
from spec.errors import Report, below, proposal, shown
from spec.handlers import KEY_BYTES_MAX, Handler, Operation, Predicate, Root, Template
from spec.predicates import NEVER, read_predicate
from spec.tables import complete
from spec.templates import Scope, read_key, read_number, read_object, read_target, read_template

Arguments = dict[str, object]

Name = Literal[
    "set",
    "merge",
    "append",
    "append_unique",
    "remove",
    "increment",
    "decrement",
    "filter",
    "map",
    "update_where",
    "upsert",
    "set_at",
    "merge_at",
    "remove_at",
    "increment_at",
]
"""The operations that handlers name, with an object of arguments."""

NAMES: Final[tuple[Name, ...]] = get_args(Name)
CONTROL: Final = ("conditional", "let")
"""The operations that hold others, each written in a way of its own."""

_ARGUMENTS: Mapping[Name, tuple[frozenset[str], frozenset[str]]] = complete(
    NAMES,
    {
        # operation: required arguments, optional ones
        "set": (frozenset({"target", "value"}), frozenset()),
        "merge": (frozenset({"target", "value"}), frozenset()),
        "append": (frozenset({"target", "value"}), frozenset()),
        "append_unique": (frozenset({"target", "value"}), frozenset({"key"})),
        "remove": (frozenset({"target"}), frozenset({"where"})),
        "increment": (frozenset({"target"}), frozenset({"value", "by"})),
        "decrement": (frozenset({"target"}), frozenset({"value", "by"})),
        "filter": (frozenset({"target", "where"}), frozenset()),
        "map": (frozenset({"target"}), frozenset({"value", "do"})),
        "update_where": (frozenset({"target", "where"}), frozenset({"value", "do"})),
        "upsert": (frozenset({"target", "key", "value"}), frozenset()),
        "set_at": (frozenset({"target", "key", "value"}), frozenset()),
        "merge_at": (frozenset({"target", "key", "value"}), frozenset()),
        "remove_at": (frozenset({"target", "key"}), frozenset()),
        "increment_at": (frozenset({"target", "key"}), frozenset({"value", "by"})),
    },
)
_OF_OBJECTS: Final = frozenset({"set", "merge", "remove", "set_at", "merge_at", "remove_at", "increment_at"})
"""What can change the whole state, which is an object."""

_LET_NAME = re.compile("[a-z_]{1,32}")
_TAKEN_NAMES = frozenset({"data", "metadata", "key", "type"})


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the arguments of one operation read as; what it does not take has a value that means nothing."""

    target: tuple[str, ...]
    value: Template | None
    where: Predicate
    field: str
    key: Template
    do: Handler


def _is_operation(name: str) -> TypeGuard[Name]:
    return name in _ARGUMENTS


def read_handler(value: object, pointer: str, scope: Scope, report: Report) -> Handler:
    """The handler that `value` is; operations at fault are left out, with faults in `report`."""
    if isinstance(value, dict):
        operations = [_read_operation(value, pointer, scope, report)]
    elif isinstance(value, list):
        operations = [_read_operation(v, below(pointer, i), scope, report) for i, v in enumerate(value)]
    else:
        what = pointer.rsplit("/", 1)[-1]
        why = f"`{what}` must be an operation or a list of operations; `[]` changes nothing."
        report.add("wrong_type", pointer, why)
        return ()
    return tuple(operation for operation in operations if operation is not None)


def _read_operation(value: object, pointer: str, scope: Scope, report: Report) -> Operation | None:
    if isinstance(value, dict) and "let" in value:
        return _read_let(value, pointer, scope, report)
    if isinstance(value, dict) and "if" in value:
        return _read_conditional(value, pointer, scope, report)
    if not isinstance(value, dict) or len(value) != 1:
        why = 'An operation is an object of one key, as in {"set": {"target": "status", "value": "paid"}}.'
        report.add("invalid_operation", pointer, why)
        return None
    [(name, arguments)] = value.items()
    place = below(pointer, name)
    if not _is_operation(name) and name != "conditional":
        near = proposal(name, [*NAMES, *CONTROL])
        report.add("unknown_operation", place, f"There is no {shown(name)}. {near}")
        return None
    if not isinstance(arguments, dict):
        takes = "a `target`" if _is_operation(name) else "an `if` and a `then`"
        report.add("wrong_type", place, f"`{name}` takes an object with {takes}.")
        return None
    if not _is_operation(name):
        return _read_conditional(arguments, place, scope, report)
    faults_before = len(report)
    _check_arguments(name, arguments, *_ARGUMENTS[name], place, report)
    _check_choices(name, arguments, place, report)
    operation = _read_arguments(name, arguments, place, scope, report)
    return operation if len(report) == faults_before else None


def _check_arguments(
    name: str,
    arguments: Arguments,
    required: frozenset[str],
    optional: frozenset[str],
    pointer: str,
    report: Report,
) -> None:
    for key in sorted(required - arguments.keys()):
        report.add("missing_key", pointer, f"`{name}` needs {_an(key)}.")
    for key in arguments:
        if key not in required | optional:
            why = f"`{name}` takes no {shown(key)}. {proposal(key, required | optional)}"
            report.add("unknown_key", below(pointer, key), why)


def _an(key: str) -> str:
    return f"an `{key}`" if key.startswith("i") else f"a `{key}`"


def _check_choices(name: Name, arguments: Arguments, pointer: str, report: Report) -> None:
    """What one argument says by itself: the value that is added, and what becomes of items."""
    if "by" in arguments and "value" in arguments:
        report.add("invalid_operation", pointer, "`by` and `value` say the same; give one of them.")
    if name in ("map", "update_where"):
        given = arguments.keys() & {"value", "do"}
        if len(given) == 2:
            report.add("invalid_operation", pointer, "`value` and `do` exclude each other; give one of them.")
        elif not given:
            report.add("missing_key", pointer, f"`{name}` needs a `value` or a `do`.")


def _read_arguments(
    name: Name, arguments: Arguments, pointer: str, scope: Scope, report: Report
) -> Operation | None:
    """Reads every argument that is there, so that each fault is found."""
    target: tuple[str, ...] | None = ()
    if "target" in arguments:
        target = read_target(arguments["target"], below(pointer, "target"), report)
        if target == () and (name not in _OF_OBJECTS or "where" in arguments):
            why = f"`{name}` can't change the whole state, which is an object; name a field of it."
            report.add("invalid_target", below(pointer, "target"), why)
    where: Predicate = NEVER
    if "where" in arguments:
        tested = replace(scope, at=Root.ITEM)
        where = read_predicate(arguments["where"], below(pointer, "where"), tested, report)
    value = _read_value(name, target, arguments, pointer, scope, report)
    field, key = _read_key(name, arguments, pointer, scope, report)
    do: Handler = ()
    if "do" in arguments and name in ("map", "update_where"):
        do = read_handler(arguments["do"], below(pointer, "do"), replace(scope, at=Root.STATE), report)
    return None if target is None else _made(name, _Parts(target, value, where, field, key, do))


def _read_value(
    name: Name,
    target: tuple[str, ...] | None,
    arguments: Arguments,
    pointer: str,
    scope: Scope,
    report: Report,
) -> Template | None:
    place = below(pointer, "value")
    match name:
        case "increment" | "decrement" | "increment_at" if "by" in arguments:
            return read_number(arguments["by"], below(pointer, "by"), scope, report)
        case "increment" | "decrement" | "increment_at":
            return read_number(arguments.get("value", 1), place, scope, report)
        case _ if "value" not in arguments or "value" not in _ARGUMENTS[name][0] | _ARGUMENTS[name][1]:
            return None  # a missing one has its fault
        case "map":
            return read_template(arguments["value"], place, replace(scope, at=Root.ITEM), report)
        case "update_where":
            return read_object(arguments["value"], place, replace(scope, at=Root.ITEM), report)
        case "merge" | "merge_at" | "upsert":
            return read_object(arguments["value"], place, scope, report)
        case "set" if target == ():
            return read_object(arguments["value"], place, scope, report)
        case "append_unique" if "key" in arguments:
            return read_object(arguments["value"], place, scope, report)
    return read_template(arguments["value"], place, scope, report)


def _read_key(
    name: Name, arguments: Arguments, pointer: str, scope: Scope, report: Report
) -> tuple[str, Template]:
    """The name of a field by which items are matched, or the template of one that is changed."""
    nothing = "", handlers.Constant(None)
    place = below(pointer, "key")
    match name, arguments.get("key"):
        case (("set_at" | "merge_at" | "remove_at" | "increment_at"), key) if "key" in arguments:
            return "", read_key(key, place, scope, report)
        case (("upsert" | "append_unique"), str(key)) if _is_field_name(key):
            return key, nothing[1]
        case (("upsert" | "append_unique"), _) if "key" in arguments:
            why = f'`key` names a field of the items, as in "sku": a string of 1 to {KEY_BYTES_MAX} bytes.'
            report.add("invalid_value", place, why)
    return nothing


def _is_field_name(key: str) -> bool:
    return 1 <= len(key.encode()) <= KEY_BYTES_MAX and not key.startswith(("$", "@"))


def _made(name: Name, parts: _Parts) -> Operation:
    target, value, where, key = parts.target, parts.value, parts.where, parts.key
    given = handlers.Constant(None) if value is None else value  # None is at fault where one is needed
    match name:
        case "set":
            return handlers.Set(target, given)
        case "merge":
            return handlers.Merge(target, given)
        case "append":
            return handlers.Append(target, given)
        case "append_unique":
            return handlers.AppendUnique(target, given, parts.field or None)
        case "remove":
            return handlers.Remove(target, None if where is NEVER else where)
        case "increment":
            return handlers.Increment(target, given)
        case "decrement":
            return handlers.Decrement(target, given)
        case "filter":
            return handlers.Filter(target, where)
        case "map":
            return handlers.Map(target, value, parts.do)
        case "update_where":
            return handlers.UpdateWhere(target, where, value, parts.do)
        case "upsert":
            return handlers.Upsert(target, parts.field, given)
        case "set_at":
            return handlers.SetAt(target, key, given)
        case "merge_at":
            return handlers.MergeAt(target, key, given)
        case "remove_at":
            return handlers.RemoveAt(target, key)
        case "increment_at":
            return handlers.IncrementAt(target, key, given)
        case _:
            assert_never(name)


# ---- what holds other operations ----


def _read_conditional(value: Arguments, pointer: str, scope: Scope, report: Report) -> Operation | None:
    """`{"if": test, "then": [operation, …], "else": [operation, …]}`."""
    faults_before = len(report)
    name = "if" if "if" in value else "conditional"
    _check_arguments(name, value, frozenset({"if", "then"}), frozenset({"else"}), pointer, report)
    test: Predicate = NEVER
    if "if" in value:
        test = read_predicate(value["if"], below(pointer, "if"), scope, report)
    then, otherwise = (
        read_handler(value[key], below(pointer, key), scope, report) if key in value else ()
        for key in ("then", "else")
    )
    return handlers.Conditional(test, then, otherwise) if len(report) == faults_before else None


def _read_let(value: Arguments, pointer: str, scope: Scope, report: Report) -> Operation | None:
    """`{"let": {"name": value, …}, "do": [operation, …]}`."""
    faults_before = len(report)
    _check_arguments("let", value, frozenset({"let", "do"}), frozenset(), pointer, report)
    place, bound = below(pointer, "let"), value["let"]
    if not isinstance(bound, dict):
        report.add("wrong_type", place, '`let` takes an object of names, as in {"total": "$.data.total"}.')
        bound = {}
    names = []
    for name, template in bound.items():
        _check_name(name, below(place, name), report)
        names.append((f"${name}", read_template(template, below(place, name), scope, report)))
        scope = replace(scope, names=scope.names | {f"${name}"})
    do = read_handler(value["do"], below(pointer, "do"), scope, report) if "do" in value else ()
    return handlers.Let(tuple(names), do) if len(report) == faults_before else None


def _check_name(name: str, pointer: str, report: Report) -> None:
    if name in _TAKEN_NAMES:
        report.add("reserved_name", pointer, f"`$.{name}` is the event's own; choose another name.")
    elif not _LET_NAME.fullmatch(name):
        why = f"{shown(name)} is not a valid name for `let`: 1 to 32 of a to z and _."
        report.add("invalid_name", pointer, why)
