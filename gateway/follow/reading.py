"""Rows as readers get them: pages, one row, changes since a place; each from one snapshot of one build.

Owns: what "as of a position" means. A page and the position that it is told with are one statement's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from gateway.follow.database import connection, fetch, statement
from gateway.follow.model import Build, Row, build_of, row_of
from gateway.follow.query import COUNTED_MAX, PAGE_BYTES, Query, Sql, Test
from gateway.postgres.shares import Shares
from gateway.relay.position import Place

TYPED_ROWS: Final = 5000
"""Rows whose values say what type a column has."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A row with its key, the place of the last event that changed it, and the values of the fields asked
    for."""

    key: str
    place: Place
    row: Row
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """`place` is the build's. `more`: there are rows behind these. `count` is None where none was asked
    for."""

    rows: Sequence[Stored]
    place: Place
    more: bool = False
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows that changed, each with whether it is there and passes a test; `place` is the build's. `more`:
    there may be rows behind these."""

    rows: Sequence[tuple[Stored, bool]]
    place: Place
    more: bool


class Reading:
    """Every call raises PostgresTrouble. Tenants share the pool: to count many rows takes long."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._shares = Shares(pool)

    async def serving(self, tenant: bytes, kind: str, name: str) -> Build | None:
        """The build that serves; None where none does yet."""
        rows = await fetch(self._shares.of(tenant), "serving", UUID(tenant), kind, name)
        return build_of(rows[0]) if rows else None

    async def builds(self, tenant: bytes) -> list[Build]:
        return [build_of(row) for row in await fetch(self._shares.of(tenant), "every", UUID(tenant))]

    async def behind(self, build: Build) -> int:
        """The number of the tenant's events that it has not folded."""
        tenant = build.tenant
        (row,) = await fetch(self._shares.of(tenant), "behind", UUID(tenant), build.p, build.place.seq)
        return int(row["events"])

    async def reached(self, build: Build, after: int) -> tuple[Place, bool] | None:
        """Where a build stands, and whether all the tenant's events up to the seq `after` are in it; None
        where it no longer serves."""
        rows = await fetch(self._shares.of(build.tenant), "reached", build.id, after)
        return (Place(rows[0]["seq"], rows[0]["mark"]), rows[0]["there"]) if rows else None

    async def page(self, build: Build, query: Query) -> Rows | None:
        """None where the build no longer serves."""
        sql = Sql(build.fields, build.id, query.limit + 1, PAGE_BYTES)
        test = sql.test(query.test)
        counted = "NULL::bigint"
        if query.count:
            counted = _filled("count_of_rows", test=test, most=str(COUNTED_MAX + 1))
        where = test + sql.there(query.sort)
        if query.cursor is not None:
            where += " AND " + sql.behind(query.sort, query.cursor)
        columns = "".join([f", {each}" for each in {sql.column(each.field): None for each in query.sort}])
        text = _filled(
            "page_of_rows", counted=counted, columns=columns, where=where, order=sql.order(query.sort)
        )
        async with connection(self._shares.of(build.tenant)) as conn:
            rows = await conn.fetch(text, *sql.args)
        if not rows:
            return None
        columns_of = [sql.column(each.field) for each in query.sort]
        found = [] if rows[0]["key"] is None else [_stored(row, columns_of) for row in rows]
        return _bounded(found, rows[0], query.limit)

    async def row(self, build: Build, key: str) -> Rows | None:
        """One row, or none; None where the build no longer serves."""
        rows = await fetch(self._shares.of(build.tenant), "row", build.id, key)
        if not rows:
            return None
        first = rows[0]
        found = [] if first["key"] is None or first["data"] is None else [_stored(first, ())]
        return Rows(found, Place(first["seq_of_all"], first["mark_of_all"]))

    async def types(self, build: Build) -> dict[str, str]:
        """The JSON types of fields whose values are all of one, among some thousand rows."""
        found: dict[str, str] = {}
        for field in build.fields:
            path = field.split(".")
            rows = await fetch(self._shares.of(build.tenant), "types_of", build.id, path, TYPED_ROWS)
            if len(rows) == 1:
                found[field] = rows[0]["kind"]
        return found

    async def changed(
        self, build: Build, after: int, key: str, test: Test, only: str | None, limit: int
    ) -> Changed | None:
        """Rows whose last change lies behind the seq `after`, or at it and behind `key`, in that order; each
        with whether it is there and passes; of one key if `only` says which. None where the build no longer
        serves."""
        sql = Sql(build.fields, build.id, after, key, limit, PAGE_BYTES)
        passes = sql.test(test)
        where = "true"
        if only is not None:
            sql.args.append(only)
            where = f"key = ${len(sql.args)}::text"
        text = _filled("changed_rows", test=passes, where=where)
        async with connection(self._shares.of(build.tenant)) as conn:
            rows = await conn.fetch(text, *sql.args)
        if not rows:
            return None
        first = rows[0]
        changed = [] if first["key"] is None else [row for row in rows if not row["cut"]]
        found = [(_stored(row, ()), bool(row["passes"])) for row in changed]
        more = bool(changed) and (len(changed) == limit or len(changed) < len(rows))
        return Changed(found, Place(first["seq_of_all"], first["mark_of_all"]), more)


def _filled(name: str, **parts: str) -> str:
    """A statement with its conditions, which query.py makes, in their places."""
    text = statement(name)
    for place, part in parts.items():
        text = text.replace(f"<{place}>", part)
    return text


def _stored(row: Any, columns: Sequence[str]) -> Stored:
    return Stored(
        row["key"], Place(row["seq"], row["mark"]), row_of(row), tuple(row[column] for column in columns)
    )


def _bounded(found: list[Stored], first: Any, limit: int) -> Rows:
    """As many as a page has, in number and bytes, and one at least."""
    size, end = 0, 0
    for each in found[:limit]:
        if each.row.data is None:
            break
        size += len(each.row.data)
        if end and size > PAGE_BYTES:
            break
        end += 1
    return Rows(
        found[:end],
        Place(first["seq_of_all"], first["mark_of_all"]),
        more=end < len(found),
        count=first["count"],
    )
