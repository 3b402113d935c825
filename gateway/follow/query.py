"""A query of rows: tests of fields, an order, a page; and its SQL. Pure.

Owns: how tests and cursors become conditions on the columns of a build. No text of a request reaches the SQL:
fields are columns by their number, values are arguments.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

COUNTED_MAX: Final = 10_000
"""Rows are counted up to here: a greater number costs a scan, and the exact one is not needed."""

SORTS_MAX: Final = 3
LIMIT_MAX: Final = 1000
LIMIT_DEFAULT: Final = 50
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a page's data; rows beyond it are for the next page."""


@dataclass(frozen=True, slots=True)
class IsOneOf:
    field: str
    values: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Within:
    """From `low` up to before `high`."""

    field: str
    low: bytes
    high: bytes


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    part: Test


Test = IsOneOf | Within | AllOf | AnyOf | NoneOf
EVERY: Final = AllOf(())


@dataclass(frozen=True, slots=True)
class Sort:
    field: str
    falling: bool = False

    @property
    def text(self) -> str:
        return "-" + self.field if self.falling else self.field


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """Behind the row with these values in the order `sort`."""

    format: int
    sort: tuple[str, ...]
    values: tuple[bytes, ...]
    key: str


Keep = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Query:
    """`keep` are the fields of the data to send, each as the names that lead to it; None for all of them."""

    test: Test = EVERY
    sort: tuple[Sort, ...] = ()
    limit: int = LIMIT_DEFAULT
    cursor: Cursor | None = None
    keep: Keep | None = None
    count: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """What a build must have columns of to answer it."""
        return frozenset((*(each.field for each in self.sort), *_fields(self.test)))


def _fields(test: Test) -> Iterator[str]:
    match test:
        case IsOneOf(field, _) | Within(field, _, _):
            yield field
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _fields(part)
        case NoneOf(part):
            yield from _fields(part)


def encode_cursor(sort: Sequence[Sort], values: Sequence[bytes], key: str) -> str:
    cursor = Cursor(1, tuple(each.text for each in sort), tuple(values), key)
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str, sort: Sequence[Sort]) -> Cursor | None:
    """None where the text is no cursor, or one of another order."""
    try:
        cursor = msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        return None
    fits = cursor.format == 1 and cursor.sort == tuple(each.text for each in sort)
    return cursor if fits and len(cursor.values) == len(sort) and "\0" not in cursor.key else None


class Sql:
    """Of one query on a build with these `fields`; `args` are its arguments, behind those given."""

    def __init__(self, fields: Sequence[str], *args: object) -> None:
        self._columns = {field: f"f{n}" for n, field in enumerate(fields, 1)}
        self.args: list[object] = list(args)

    def column(self, field: str) -> str:
        return self._columns[field]

    def _arg(self, value: object, kind: str = "bytea") -> str:
        self.args.append(value)
        return f"${len(self.args)}::{kind}"

    def test(self, test: Test) -> str:
        match test:
            case IsOneOf(field, values):
                column = self.column(field)
                if len(values) == 1:
                    return f"{column} = {self._arg(next(iter(values)))}"
                return f"{column} = ANY({self._arg(sorted(values), 'bytea[]')})"
            case Within(field, low, high):
                column = self.column(field)
                return f"({column} >= {self._arg(low)} AND {column} < {self._arg(high)})"
            case AllOf(parts):
                return self._joined(" AND ", parts, "true")
            case AnyOf(parts):
                return self._joined(" OR ", parts, "false")
            case NoneOf(part):
                return f"NOT ({self.test(part)})"
            case _:
                assert_never(test)

    def _joined(self, word: str, parts: Sequence[Test], empty: str) -> str:
        return f"({word.join(map(self.test, parts))})" if parts else empty

    def order(self, sort: Sequence[Sort]) -> str:
        return ", ".join(
            [f"{self.column(each.field)}{' DESC' if each.falling else ''}" for each in sort] + ["key"]
        )

    def there(self, sort: Sequence[Sort]) -> str:
        """What is true of every row, and lets an index of the first field be used."""
        return f" AND {self.column(sort[0].field)} IS NOT NULL" if sort else ""

    def behind(self, sort: Sequence[Sort], cursor: Cursor) -> str:
        """What comes behind a cursor in the order."""
        key = self._arg(cursor.key, "text")
        condition = f"key > {key}"
        for each, value in reversed(list(zip(sort, cursor.values, strict=True))):
            column, placed = self.column(each.field), self._arg(value)
            sign = "<" if each.falling else ">"
            # The first part is implied by the second, and says where an index begins.
            further = f"{column} {sign} {placed} OR ({column} = {placed} AND {condition})"
            condition = f"({column} {sign}= {placed} AND ({further}))"
        return condition
