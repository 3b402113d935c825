"""The builds: those that specs declare, and what operators change about them.

Owns: the rows of `follower` but for their places. A changed definition is a new build beside the one that
serves; one that is no longer declared is dropped, its rows by the runner, in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.follow.database import connection, fetch, statement
from gateway.follow.definitions import Definition, definitions
from gateway.follow.model import Build, build_of
from gateway.relay.outbox import Outbox
from spec.errors import Faults
from spec.parse import parse_deployed

logger = logging.getLogger("sluice.follow")

SPECS_AT_ONCE: Final = 20
UNREADABLE_MAX: Final = 10_000
NO_TENANT: Final = UUID(int=0)


class Declarations:
    """Every call raises PostgresTrouble where Postgres does not answer."""

    def __init__(self, pool: asyncpg.Pool, outbox: Outbox) -> None:
        self._pool = pool
        self._outbox = outbox
        self._unreadable: set[tuple[str, int]] = set()
        self._after = NO_TENANT

    async def declare(self, tenant: UUID | None = None) -> bool:
        """Brings what deployed specs declare into the table, of all tenants or of one; whether there may be
        more. Of all tenants, so many at a call, and the next ones at the next."""
        after = self._after if tenant is None else NO_TENANT
        rows = await fetch(self._pool, "undeclared", tenant, after, SPECS_AT_ONCE)
        if tenant is None:
            self._after = rows[-1]["tenant"] if len(rows) == SPECS_AT_ONCE else NO_TENANT
        for row in rows:
            of, revision = UUID(bytes=row["tenant"].bytes), row["revision"]
            if (str(of), revision) in self._unreadable:
                continue
            spec = await asyncio.to_thread(parse_deployed, row["document"])
            if isinstance(spec, Faults):
                self._note_unreadable(of, revision, f"{spec[0].pointer}: {spec[0].error}")
                continue
            try:
                declared = await asyncio.to_thread(lambda: list(definitions(spec, row["document"])))  # noqa: B023
            except Exception as bug:  # with this tenant's; all others are declared
                logger.exception("task_restarted")
                self._note_unreadable(of, revision, f"a bug: {type(bug).__name__}")
                continue
            await self._declare(of, revision, declared)
        return len(rows) == SPECS_AT_ONCE

    def _note_unreadable(self, tenant: UUID, revision: int, why: str) -> None:
        if len(self._unreadable) >= UNREADABLE_MAX:
            self._unreadable.clear()
        self._unreadable.add((str(tenant), revision))
        told = f"Revision {revision} of the spec can't be read here: {why}"
        logger.error("follower_unusable", extra={"tenant": str(tenant), "follower": "*", "reason": told})

    async def _declare(self, tenant: UUID, revision: int, declared: Sequence[Definition]) -> None:
        async with connection(self._pool) as conn, conn.transaction():
            if await conn.fetchval(statement("lock"), tenant) >= revision:
                return
            builds = await _builds(conn, tenant)
            wanted: dict[tuple[str, str], Definition] = {(each.kind, each.name): each for each in declared}
            await _drop(
                conn, [each for each in builds if not _is_of(each, wanted.get((each.kind, each.name)))]
            )
            for each in declared:
                there = [build for build in builds if _is_of(build, each)]
                current = [build for build in there if build.digest == each.digest]
                if not current:
                    await self._make(conn, tenant, revision, each)
            await conn.execute(statement("note_spec"), tenant, revision)

    async def _make(self, conn: Any, tenant: UUID, revision: int, each: Definition) -> None:
        p = self._outbox.partition(tenant.bytes)
        await conn.execute(
            statement("create"), tenant, each.kind, each.name, revision, each.digest, list(each.fields), p
        )

    async def every(self, tenant: UUID) -> list[Build]:
        await self.declare(tenant)
        return [build_of(row) for row in await fetch(self._pool, "every", tenant)]

    async def set_paused(self, tenant: UUID, kind: str, name: str, paused: bool) -> bool:
        """Whether there is one."""
        await self.declare(tenant)
        async with connection(self._pool) as conn, conn.transaction():
            await conn.execute(statement("lock"), tenant)
            return bool(await conn.fetch(statement("set_paused"), tenant, kind, name, paused))

    async def rebuild(self, tenant: UUID, kind: str, name: str) -> bool:
        """A build of the present definition from the beginning; one that is under way begins again."""
        await self.declare(tenant)
        async with connection(self._pool) as conn, conn.transaction():
            await conn.execute(statement("lock"), tenant)
            builds = [each for each in await _builds(conn, tenant) if (each.kind, each.name) == (kind, name)]
            if not builds:
                return False
            newest = max(builds, key=lambda each: each.id)
            await _drop(conn, [each for each in builds if each.state == "building"])
            definition = Definition(newest.kind, newest.name, newest.fields, newest.digest)  # type: ignore[arg-type]
            await self._make(conn, tenant, newest.spec_rev, definition)
        return True

    async def drop(self, tenant: UUID, kind: str, name: str) -> bool:
        """Ends a build that is under way beside the one that serves; without one, all rows: until a rebuild,
        or another definition, there are none."""
        await self.declare(tenant)
        async with connection(self._pool) as conn, conn.transaction():
            await conn.execute(statement("lock"), tenant)
            builds = [each for each in await _builds(conn, tenant) if (each.kind, each.name) == (kind, name)]
            if not builds:
                return False
            building = [each for each in builds if each.state == "building"]
            newest = max(builds, key=lambda each: each.id)
            if building and len(building) < len(builds):
                await _drop(conn, building)
            elif newest.state != "off":
                await _drop(conn, builds)
                definition = Definition(newest.kind, newest.name, newest.fields, newest.digest)  # type: ignore[arg-type]
                await self._make(conn, tenant, newest.spec_rev, definition)
                made = [
                    each for each in await _builds(conn, tenant) if (each.kind, each.name) == (kind, name)
                ]
                await conn.execute(statement("set_state"), [each.id for each in made], "off")
        return True

    async def begin_again(self, tenant: UUID) -> None:
        """Every build that has rows from the beginning: Postgres has lost commits, so they are of another
        history."""
        async with connection(self._pool) as conn, conn.transaction():
            await conn.execute(statement("lock"), tenant)
            builds = [each for each in await _builds(conn, tenant) if each.state != "off"]
            await _drop(conn, builds)
            for each in builds:
                definition = Definition(each.kind, each.name, each.fields, each.digest)  # type: ignore[arg-type]
                await self._make(conn, tenant, each.spec_rev, definition)


def _is_of(build: Build, declared: Definition | None) -> bool:
    """Whether a build stays: it serves until another of its name does, or is what is declared."""
    if declared is None or (build.kind, build.name) != (declared.kind, declared.name):
        return False
    return build.state == "serving" or build.digest == declared.digest


async def _builds(conn: Any, tenant: UUID) -> list[Build]:
    return [build_of(row) for row in await conn.fetch(statement("every"), tenant)]


async def _drop(conn: Any, builds: Iterable[Build]) -> None:
    ids = [each.id for each in builds]
    if ids:
        await conn.execute(statement("set_state"), ids, "dropped")
