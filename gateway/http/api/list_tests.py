"""Tests of a list's rows, as the body of a QUERY spells them (`where`).

Owns: which tests a list can answer, and the order of values. Must not know: query parameters, how rows are
kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.errors import Refusal
from gateway.follow import sort_values
from gateway.follow.query import AllOf, AnyOf, IsOneOf, NoneOf, Test, Within
from gateway.http.request import Refused
from spec import handlers
from spec.errors import Report, nearest
from spec.handlers import Compare, Comparison, Exists, Path, Predicate, Root
from spec.predicates import read_predicate
from spec.templates import Scope

IN_MAX: Final = 100
"""Values of an `in`: a URL holds no more, and each is a look into an index."""
TESTS_MAX: Final = 100
"""Objects of a `where`: each test is one, and becomes a condition of a statement of Postgres."""
TEXT_BYTES_MAX: Final = 1000
"""Of a string that is compared: rows are in order by so many bytes (gateway/follow/sort_values.py)."""


_TESTS_ARE: Final = (
    "A test is an object of one key that compares a field of rows with a value, as in "
    '{"equals": ["@.status", "paid"]} or {"exists": "@.status"}.'
)


def ordered(field: str, operator: str, value: bytes) -> Test:
    """Greater or less than a number, a string, or a boolean, among values of its kind."""
    low, high = sort_values.bounds(value)
    match operator:
        case "gt":
            return Within(field, value + b"\0", high)
        case "gte":
            return Within(field, value, high)
        case "lt":
            return Within(field, low, value)
    assert operator == "lte"
    return Within(field, low, value + b"\0")


def short(text: str, name: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise invalid(name[:100], "A string must be valid Unicode.") from None
    if size > TEXT_BYTES_MAX:
        raise invalid(name[:100], f"A string that is compared has at most {TEXT_BYTES_MAX} bytes.")
    return text


def read_where(value: object, by: Sequence[str]) -> Test:
    """Raises Refused."""
    if _has_more_objects(value, TESTS_MAX):
        why = f"`where` has at most {TESTS_MAX} tests; several values of a field are one `in`."
        raise invalid("where", why)
    report = Report()
    predicate = read_predicate(value, "/where", Scope(True, at=Root.ITEM), report)
    if len(report):
        fault = report.faults()[0]
        path = re.sub(r"/([0-9]+)(?=/|$)", r"[\1]", fault.pointer).strip("/").replace("/", ".")
        of_handlers = fault.code in ("invalid_operation", "invalid_path")  # whose words name `$.data`, too
        raise invalid(path, _TESTS_ARE if of_handlers else fault.error)
    return _test(predicate, by)


def _has_more_objects(value: object, most: int) -> bool:
    found, open_values = 0, [value]
    while open_values:
        match open_values.pop():
            case dict() as fields:
                found += 1
                if found > most:
                    return True
                open_values += fields.values()
            case list() as items:
                open_values += items
    return False


def _test(predicate: Predicate, by: Sequence[str]) -> Test:
    match predicate:
        case handlers.All(parts):
            return AllOf(tuple(_test(each, by) for each in parts))
        case handlers.Any(parts):
            return AnyOf(tuple(_test(each, by) for each in parts))
        case handlers.Not(part):
            return NoneOf(_test(part, by))
        case Exists(path):
            return NoneOf(IsOneOf(_field(path, by), frozenset((sort_values.ABSENT,))))
        case Compare(operator, left, right):
            return _comparison(operator, left, right, by)
    raise invalid("where", "This test cannot be used on a list.")


_MIRRORED: Final[Mapping[Comparison, Comparison]] = {
    Comparison.GT: Comparison.LT,
    Comparison.GTE: Comparison.LTE,
    Comparison.LT: Comparison.GT,
    Comparison.LTE: Comparison.GTE,
    Comparison.EQUALS: Comparison.EQUALS,
    Comparison.NOT_EQUALS: Comparison.NOT_EQUALS,
}


def _comparison(operator: Comparison, left: object, right: object, by: Sequence[str]) -> Test:
    if not isinstance(left, Path) and isinstance(right, Path) and operator in _MIRRORED:
        left, right, operator = right, left, _MIRRORED[operator]
    if not isinstance(left, Path) or isinstance(right, Path):
        raise invalid("where", "A test of a list compares a field, `@.name`, with a value.")
    field = _field(left, by)
    if operator in (Comparison.IN, Comparison.NOT_IN):
        if not isinstance(right, handlers.ListTemplate) or len(right.items) > IN_MAX:
            raise invalid("where", f"`{operator}` takes a field and a list of at most {IN_MAX} values.")
        values = frozenset().union(*(_values(each, left) for each in right.items))
    elif operator in (Comparison.EQUALS, Comparison.NOT_EQUALS):
        values = _values(right, left)
    else:
        return _in_order(operator, field, right)
    test: Test = IsOneOf(field, values)
    if operator in (Comparison.EQUALS, Comparison.IN):
        return test
    there = NoneOf(IsOneOf(field, frozenset((sort_values.ABSENT,))))
    return AllOf((there, NoneOf(test))) if left.optional else NoneOf(test)


def _in_order(operator: Comparison, field: str, right: object) -> Test:
    (value,) = _values(right, Path(Root.ITEM, optional=True))
    if value[:1] not in (sort_values.NUMBER, sort_values.TEXT):
        return AnyOf(())  # nothing else is in an order
    return ordered(field, str(operator), value)


def _values(template: object, path: Path) -> frozenset[bytes]:
    """What equals it: null does what is absent too, where the path is not optional."""
    value = _constant(template)
    if isinstance(value, str):
        short(value, "where")
    encoded = sort_values.of_value(value)
    if encoded == sort_values.NULL and not path.optional:
        return frozenset((encoded, sort_values.ABSENT))
    return frozenset((encoded,))


def _constant(template: object) -> object:
    match template:
        case handlers.Constant(value):
            return value
        case handlers.ListTemplate(items):
            return [_constant(each) for each in items]
        case handlers.ObjectTemplate(fields):
            return {name: _constant(each) for name, each in fields}
    raise invalid("where", "A test of a list compares a field with a value, not with a template.")


def _field(path: Path, by: Sequence[str]) -> str:
    if (
        path.root is not Root.ITEM
        or not path.fields
        or not all(isinstance(step, str) for step in path.fields)
    ):
        raise invalid("where", "A test of a list names fields of rows, as in `@.status`.")
    field = ".".join(map(str, path.fields))
    require_listed(field, by, "where")
    return field


def require_listed(field: str, by: Sequence[str], path: str) -> None:
    """Raises Refused (422) for a field that no list has an order of."""
    if field not in by:
        known = f"there are {', '.join(by)}" if by else "`by` names none"
        why = f"{field[:64]!r} is not listed{nearest(field, by)}; {known}."
        raise Refused(Refusal("not_listed", why, path, listed=tuple(by)))


def invalid(path: str | None, why: str) -> Refused:
    return Refused(Refusal("invalid_field", why, path))
