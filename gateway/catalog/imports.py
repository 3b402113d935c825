"""What was imported, in Postgres: which aggregate each external ref is, and what its last record says.

Owns the table `imported`. A ref moves when its record is renamed; so these are no source ids, which stand for
one key for good. Must not know how a record is matched (gateway/names/imported.py) or appended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid5

from gateway.catalog.database import Database, answering, connection, statement
from gateway.names.imported import Row, Said, Step, plan


class Import:
    """One import into the aggregates of a type; its requests share `id`. Every method raises
    CatalogUnavailable where Postgres does not answer, and may be called again then."""

    def __init__(self, database: Database, tenant: UUID, aggregate_type: str, id: UUID) -> None:
        self._database = database
        self._of = (tenant, aggregate_type)
        self._id, self._bare = id, uuid5(id, "content")

    async def stand(self, refs: Sequence[str]) -> None:
        """These refs are among the import's: none of their aggregates is another record's."""
        async with self._locked() as conn:
            await conn.execute(statement("imported_marked"), *self._of, self._id, refs)

    async def match(
        self, said: Sequence[Said], standing: Sequence[str], mint: Callable[[], str], *, keep: bool
    ) -> list[Step | None]:
        """What `plan` says of these records, stored if it is to be kept: one import at a time does that.
        `standing` are refs of the request that no record of it leads to any more."""
        refs = sorted({*standing, *[each.ref for each in said if each.ref is not None]})
        contents = Counter([each.content for each in said])
        async with self._locked(keep=keep) as conn:
            await conn.execute(statement("imported_marked"), *self._of, self._id, refs)
            asked = (self._id, refs, list(contents), list(contents.values()), self._bare)
            rows = [Row(*row) for row in await conn.fetch(statement("imported_found"), *self._of, *asked)]
            steps = plan(said, rows, mint)
            changed = _changed(steps, rows)
            if changed and keep:
                columns = [[getattr(row, name) for row in changed] for name in _KEPT]
                marks = [self._id if row.taken else self._bare for row in changed]
                await conn.execute(statement("imported_kept"), *self._of, *columns, marks)
        return steps

    async def current(self, rows: Sequence[Row]) -> set[str]:
        """The keys of those that no later record has changed."""
        async with self._connection() as conn:
            keys = [row.key for row in rows]
            counts = dict(await conn.fetch(statement("imported_counts"), *self._of, keys))
        return {row.key for row in rows if counts.get(row.key) == row.times}

    async def appended(self, rows: Sequence[Row]) -> None:
        """The events of these are there."""
        async with self._locked() as conn:
            columns = [row.key for row in rows], [row.times for row in rows]
            await conn.execute(statement("imported_appended"), *self._of, *columns)

    @asynccontextmanager
    async def _locked(self, *, keep: bool = True) -> AsyncIterator[Any]:
        async with self._connection() as conn:
            transaction = conn.transaction()
            await transaction.start()
            try:
                await conn.execute(statement("imported_locked"), *self._of)
                yield conn
            except BaseException:
                await transaction.rollback()
                raise
            await (transaction.commit() if keep else transaction.rollback())

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        with answering():
            async with connection(self._database) as conn:
                yield conn


_KEPT = ("key", "ref", "content", "times", "appended")


def _changed(steps: Sequence[Step | None], rows: Sequence[Row]) -> list[Row]:
    """The rows to store, each once: where an event is owed, as they are before it."""
    stored = {row.key: row for row in rows}
    found: dict[str, Row] = {}
    for step in steps:
        if step is not None and (step.owed or step.row.key not in found):
            found[step.row.key] = step.row
    return [row for row in found.values() if stored.get(row.key) != row]
