"""The transaction for all that a page of events does to builds: rows, places, and which build serves.

Owns: the compare-and-swap of places, so that of two workers of one tenant one moves them. Must not know: when
which builds are folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.follow.database import connection, statement
from gateway.follow.events import Page
from gateway.follow.model import MISFITS_SHOWN, Build, Changes, Misfit
from gateway.follow.output import Output
from gateway.follow.put import put, put_sources
from gateway.follow.row_cache import RowCache
from gateway.relay.position import Place

_RATE_KEPT: Final = 0.7  # of the rate before, in the moving average


class Overtaken(Exception):
    """Another process, or an operator, has changed a build: all of them have to be read again."""


@dataclass(slots=True)
class Followed:
    """A build that this worker moves; `place` may lie before what `build` says: behind other tenants'
    events."""

    build: Build
    output: Output
    rows: RowCache
    place: Place
    rate: float = 0.0
    began_at: float = 0.0


async def commit(
    pool: asyncpg.Pool,
    changes: Sequence[tuple[Followed, Changes]],
    page: Page,
    serving: Sequence[Followed],
    began: float,
) -> None:
    """What the page changes in each build. `serving`: those that serve from here on; `began`: when the page
    was begun, by the loop's clock. Raises Overtaken, PostgresTrouble."""
    async with connection(pool) as conn, conn.transaction():
        # Rows and place are lost together, if at all, and folded again: no commit here waits for the
        # disk (`move` says so).
        moves = {}
        if serving:
            await conn.execute(statement("lock_builds"), UUID(serving[0].build.tenant))
        for each, change in sorted(changes, key=lambda pair: pair[0].build.id):
            if change.rest is None:
                moves[each.build.id] = await _move(conn, each, page, change, began)
                await _put(conn, each, change)
            else:  # which may take minutes: meanwhile people may pause the build, or drop it
                whole = await _put_parts(conn, each, change, change.rest)
                moves[each.build.id] = await _move(conn, each, page, whole, began)
        for each in serving:
            await _serve(conn, each.build, page.reached)
    for each, _ in changes:
        each.build = replace(each.build, place=page.reached, moves=moves[each.build.id])


async def _move(conn: Any, each: Followed, page: Page, change: Changes, began: float) -> int:
    """Raises Overtaken."""
    build = each.build
    took = max(asyncio.get_running_loop().time() - began, 1e-6)
    each.rate = _RATE_KEPT * each.rate + (1 - _RATE_KEPT) * len(page.events) / took
    last = _last(build.last_misfits, change.last_misfits)
    if last is not None:
        each.build = build = replace(build, last_misfits=last)
    moves = await conn.fetchval(
        statement("move"), build.id, build.moves, page.reached.seq, page.reached.mark, change.rows,
        change.misfits, last, each.rate,
    )  # fmt: skip
    if moves is None:
        raise Overtaken
    return int(moves)


async def _put(conn: Any, each: Followed, change: Changes) -> None:
    await put(conn, each.build, change)
    await put_sources(conn, each.build, change)


async def _put_parts(conn: Any, each: Followed, first: Changes, rest: AsyncIterator[Changes]) -> Changes:
    """Writes all that there is to change, in parts; what it is together, without its rows."""
    await _put(conn, each, first)
    rows, misfits, last = first.rows, first.misfits, list(first.last_misfits)
    async for part in rest:
        each.rows.write({put.key: put.row for put in part.puts})
        await _put(conn, each, part)
        rows, misfits = rows + part.rows, misfits + part.misfits
        last = [*last, *part.last_misfits][-MISFITS_SHOWN:]
    each.rows.write({})
    return Changes((), rows, misfits, last)


async def _serve(conn: Any, build: Build, reached: Place) -> None:
    """Raises Overtaken, also where another process has moved what served meanwhile beyond `reached`."""
    before = await conn.fetch(statement("serve"), UUID(build.tenant), build.kind, build.name)
    if any(row["seq"] > reached.seq for row in before):
        raise Overtaken
    if await conn.execute(statement("serve_now"), build.id, bool(before)) != "UPDATE 1":
        raise Overtaken


def _last(before: bytes, more: Sequence[Misfit]) -> bytes | None:
    """The last misfits as JSON; None where there are no new ones."""
    if not more:
        return None
    known = msgspec.json.decode(before, type=list[Misfit])
    return msgspec.json.encode([*known, *more][-MISFITS_SHOWN:])
