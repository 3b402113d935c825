"""What a request asks of a list: its query parameters, or the body of a QUERY, as a `Query`.

Owns: how filters, orders and pages are spelled. Must not know: how rows are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from gateway.admit.strict_json import DEPTH_MAX
from gateway.errors import Refusal
from gateway.follow import sort_values
from gateway.follow.query import (
    EVERY,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    SORTS_MAX,
    AllOf,
    Cursor,
    IsOneOf,
    NoneOf,
    Query,
    Sort,
    Test,
    Within,
    decode_cursor,
)
from gateway.http.api.list_tests import (
    IN_MAX,
    TEXT_BYTES_MAX,
    invalid,
    ordered,
    read_where,
    require_listed,
    short,
)
from gateway.http.json_body import require_known
from gateway.http.request import Refused
from gateway.relay.position import Position, decode
from spec.errors import nearest

WAIT_DEFAULT_S: Final = 2
WAIT_MAX_S: Final = 30
FILTERS_MAX: Final = 32
FIELDS_MAX: Final = 100

_FILTER = re.compile(r"filter\[([^\[\]]+)\](?:\[([a-z]+)\])?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "prefix", "exists")
_PLAIN = frozenset(("sort", "limit", "cursor", "fields", "count", "after", "wait"))
_BODY = frozenset(("where", "sort", "limit", "cursor", "fields", "count", "after", "wait"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, the position that the answer must cover, if one was given, and how long to wait for it."""

    query: Query
    after: Position | None = None
    wait_s: float = WAIT_DEFAULT_S


# ---- parameters ----


def read_parameters(raw: bytes, by: Sequence[str]) -> Asked:
    """Raises Refused: 422 at the parameter's name, 400 for an invalid position."""
    found = _pairs(raw)
    tests = [_filter(name, value, by) for name, value in found.items() if name.startswith("filter")]
    if len(tests) > FILTERS_MAX:
        raise invalid("filter", f"A query has at most {FILTERS_MAX} filters.")
    plain: dict[str, object] = {name: value for name, value in found.items() if name in _PLAIN}
    for name in ("limit", "wait"):
        if name in plain:
            plain[name] = _whole(name, str(plain[name]))
    if "count" in plain:
        plain["count"] = _boolean("count", str(plain["count"]))
    for name in ("sort", "fields"):
        if name in plain:
            plain[name] = str(plain[name]).split(",")
    return _asked(AllOf(tuple(tests)) if tests else EVERY, plain, by)


def _pairs(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, raw.split(b"&")):
        raw_name, _, raw_value = pair.partition(b"=")
        name = _decoded(raw_name) if raw_name else None
        if name is None or (name not in _PLAIN and not name.startswith("filter")):
            continue
        if name in found:
            raise invalid(name[:100], f"The query parameter `{name[:100]}` is given twice; send it once.")
        value = _decoded(raw_value)
        if value is None:
            raise invalid(name[:100], f"`{name[:100]}` must be percent-encoded UTF-8 without U+0000.")
        found[name] = value
    return found


def _decoded(raw: bytes) -> str | None:
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _filter(name: str, value: str, by: Sequence[str]) -> Test:
    found = _FILTER.fullmatch(name)
    if found is None:
        raise invalid(name[:100], "A filter is `filter[field]=value` or `filter[field][operator]=value`.")
    field, operator = found[1], found[2] or "eq"
    if operator not in _OPERATORS:
        why = f"There is no {operator[:20]!r}{nearest(operator, _OPERATORS)}; known: {', '.join(_OPERATORS)}."
        raise invalid(name[:100], why)
    require_listed(field, by, name[:100])
    match operator:
        case "eq":
            return IsOneOf(field, frozenset((_value(value, name),)))
        case "ne":
            return NoneOf(IsOneOf(field, frozenset((_value(value, name),))))
        case "in":
            return IsOneOf(field, frozenset(_value(each, name) for each in _items(value, name)))
        case "prefix":
            text = _quoted(value, name) if value.startswith('"') else value
            return Within(field, *sort_values.texts_from(short(text, name)))
        case "exists":
            there = NoneOf(IsOneOf(field, frozenset((sort_values.ABSENT,))))
            return there if _boolean(name, value) else NoneOf(there)
    return ordered(field, operator, _value(value, name))


def _value(text: str, name: str) -> bytes:
    """JSON where it is a number, `true`, `false` or a string in quotes, else a string."""
    if _NUMBER.fullmatch(text):
        return _number(text, name)
    if text in ("true", "false"):
        return sort_values.of_boolean(text == "true")
    return sort_values.of_text(short(_quoted(text, name) if text.startswith('"') else text, name))


def _number(text: str, name: str) -> bytes:
    if len(text) > TEXT_BYTES_MAX:
        raise invalid(name[:100], f"A number has at most {TEXT_BYTES_MAX} characters.")
    return sort_values.of_number_text(text)


def _quoted(text: str, name: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, str) or (not value.isprintable() and "\0" in value):
        return text  # only an opening quote is a string as it is
    return value


def _items(value: str, name: str) -> list[str]:
    """Values with commas between them; a comma within quotes is part of its text."""
    items = re.findall(r'("(?:[^"\\]|\\.)*"|[^,]*)(?:,|\Z)', value)
    items = items[: value.count(",") + 1] if items else [""]
    if items and len(items) > 1 and items[-1] == "" and not value.endswith(","):
        items.pop()
    if len(items) > IN_MAX:
        raise invalid(name[:100], f"`in` takes at most {IN_MAX} values.")
    return items


def _whole(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise invalid(name, f"`{name}` must be a whole number, in plain digits.")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid(name[:100], f"`{name[:100]}` must be true or false.")
    return text == "true"


# ---- bodies ----


def read_body_query(body: object, by: Sequence[str]) -> Asked:
    """Raises Refused."""
    if not isinstance(body, dict):
        raise invalid(None, "The body must be an object.")
    require_known(body, _BODY)
    given = {name: value for name, value in body.items() if value is not None}
    test = read_where(given.pop("where"), by) if "where" in given else EVERY
    for name in ("sort", "fields"):
        value = given.get(name)
        if isinstance(value, str):
            given[name] = value.split(",")
        elif value is not None and not (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        ):
            raise invalid(name, f"`{name}` is a list of names.")
    for name, kind, what in (("limit", int, "a whole number"), ("count", bool, "true or false"),
                             ("cursor", str, "a string"), ("after", str, "a string")):  # fmt: skip
        value = given.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise invalid(name, f"`{name}` must be {what}.")
    wait = given.get("wait")
    if wait is not None and (isinstance(wait, bool) or not isinstance(wait, int | float | Decimal)):
        raise invalid("wait", "`wait` must be a number.")
    return _asked(test, given, by)


# ---- both ----


def _asked(test: Test, given: Mapping[str, Any], by: Sequence[str]) -> Asked:
    sort = tuple(_sort(each, by) for each in given.get("sort", ()))
    if len(sort) > SORTS_MAX:
        raise invalid("sort", f"`sort` names at most {SORTS_MAX} fields.")
    if len({each.field for each in sort}) < len(sort):
        raise invalid("sort", "`sort` names a field twice.")
    limit = given.get("limit", LIMIT_DEFAULT)
    if not 1 <= limit <= LIMIT_MAX:
        raise invalid("limit", f"`limit` must be from 1 to {LIMIT_MAX}.")
    wait_s = given.get("wait", WAIT_DEFAULT_S)
    if not 0 <= wait_s <= WAIT_MAX_S:
        raise invalid("wait", f"`wait` must be from 0 to {WAIT_MAX_S} seconds.")
    after = given.get("after")
    return Asked(
        Query(test, sort, limit, _cursor(given.get("cursor"), sort), _keep(given.get("fields")),
              given.get("count", False)),
        None if after is None else position_of(after, "after"),
        float(wait_s),
    )  # fmt: skip


def _sort(text: str, by: Sequence[str]) -> Sort:
    field = text.removeprefix("-")
    require_listed(field, by, "sort")
    return Sort(field, text.startswith("-"))


def _cursor(text: str | None, sort: Sequence[Sort]) -> Cursor | None:
    if text is None:
        return None
    cursor = decode_cursor(text, sort) if re.fullmatch("[A-Za-z0-9_-]{1,8192}", text) else None
    if cursor is None:
        raise invalid(
            "cursor", "This cursor belongs to another list or order; send the `next` of the previous page."
        )
    return cursor


def _keep(fields: Sequence[str] | None) -> tuple[tuple[str, ...], ...] | None:
    if fields is None:
        return None
    if len(fields) > FIELDS_MAX or not all(fields):
        raise invalid("fields", f"`fields` is at most {FIELDS_MAX} names with commas between them.")
    if any(name.count(".") >= DEPTH_MAX for name in fields):
        raise invalid("fields", f"A name of `fields` leads at most {DEPTH_MAX} levels deep.")
    return tuple([tuple(name.split(".")) for name in fields])


def position_of(text: str, path: str) -> Position:
    position = decode(text)
    if position is None:
        raise Refused(Refusal("invalid_position", f"{text[:64]!r} is not a position of the feed.", path))
    return position
