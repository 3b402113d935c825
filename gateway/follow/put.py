"""The rows of a batch as they are written, within a transaction of the worker (worker.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asyncpg.pgproto.pgproto import UUID

from gateway.follow.database import statement
from gateway.follow.model import Build, Changes, Put
from gateway.log.entries import numbers, spans
from spec.lists import BY_MAX

ROWS_A_STATEMENT: Final = 1500
BYTES_A_STATEMENT: Final = 4 * 1024 * 1024
"""To pack so many rows, or so many bytes and one row more, takes the event loop about 3 ms."""


async def put(conn: Any, build: Build, change: Changes) -> None:
    """Writes the rows. Raises what asyncpg does."""
    some: list[Put] = []
    size = 0
    for each in change.puts:
        some.append(each)
        size += len(each.row.data or b"")
        if len(some) == ROWS_A_STATEMENT or size > BYTES_A_STATEMENT:
            await _put(conn, build, some)
            some, size = [], 0
    if some:
        await _put(conn, build, some)


async def _put(conn: Any, build: Build, puts: Sequence[Put]) -> None:
    rows = [each.row for each in puts]
    cells: list[Sequence[bytes | None]] = [[each.key.encode() for each in puts], [row.data for row in rows]]
    cells += zip(*[each.fields[: len(build.fields)] for each in puts], strict=True)
    packed, places = _packed(cells)
    unused = [None] * (2 * (BY_MAX - len(build.fields)))
    await conn.execute(
        statement("put"), build.id, UUID(build.tenant), numbers([each.place.seq for each in puts]),
        numbers([row.length for row in rows]), numbers([row.created_at_ms for row in rows]),
        numbers([row.updated_at_ms for row in rows]), b"".join([each.place.mark for each in puts]), packed,
        *places, *unused,
    )  # fmt: skip


def _packed(columns: Sequence[Sequence[bytes | None]]) -> tuple[bytes, list[str]]:
    """All of it one behind the other, and of each column where its values begin and how long they are."""
    parts: list[bytes] = []
    places = []
    begin = 1
    for column in columns:
        begins, lengths, begin = spans(column, begin)
        parts += [each or b"" for each in column]
        places += [begins, lengths]
    return b"".join(parts), places


async def put_sources(conn: Any, build: Build, change: Changes) -> None:
    """Notes what rows that are joined were put together from. Raises what asyncpg does."""
    if not change.sources:
        return
    await conn.execute(statement("forget_sources"), build.id, list(change.sources))
    rows = [(of, key, row) for row, sources in change.sources.items() for of, key in sources]
    for at in range(0, len(rows), ROWS_A_STATEMENT):
        columns = [list(each) for each in zip(*rows[at : at + ROWS_A_STATEMENT], strict=True)]
        await conn.execute(statement("note_sources"), build.id, UUID(build.tenant), *columns)
