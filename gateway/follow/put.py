"""The rows of a batch as they are written, within a transaction of the worker (worker.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asyncpg.pgproto.pgproto import UUID

from gateway.follow.database import statement
from gateway.follow.model import Build, Changes, Put
from spec.lists import BY_MAX

ROWS_A_STATEMENT: Final = 1500
"""To encode so many takes the event loop about 7 ms: asyncpg looks at each item of each array."""


async def put(conn: Any, build: Build, change: Changes) -> None:
    """Writes the rows. Raises what asyncpg does."""
    for at in range(0, len(change.puts), ROWS_A_STATEMENT):
        await _put(conn, build, change.puts[at : at + ROWS_A_STATEMENT])


async def _put(conn: Any, build: Build, puts: Sequence[Put]) -> None:
    rows = [each.row for each in puts]
    used = len(build.fields)
    columns = [*zip(*[each.fields[:used] for each in puts], strict=True)]
    unused = [None] * (BY_MAX - used)  # an array without items: unnest fills it up
    await conn.execute(
        statement("put"), build.id, [each.key for each in puts], [each.place.seq for each in puts],
        [each.place.mark for each in puts], [row.length for row in rows], [row.created_at_ms for row in rows],
        [row.updated_at_ms for row in rows], [row.data for row in rows], *map(list, columns), *unused,
        UUID(build.tenant),
    )  # fmt: skip


async def put_sources(conn: Any, build: Build, change: Changes) -> None:
    """Notes what rows that are joined were put together from. Raises what asyncpg does."""
    if not change.sources:
        return
    await conn.execute(statement("forget_sources"), build.id, list(change.sources))
    rows = [(of, key, row) for row, sources in change.sources.items() for of, key in sources]
    for at in range(0, len(rows), ROWS_A_STATEMENT):
        columns = [list(each) for each in zip(*rows[at : at + ROWS_A_STATEMENT], strict=True)]
        await conn.execute(statement("note_sources"), build.id, UUID(build.tenant), *columns)
