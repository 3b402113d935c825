"""Prepares the database: versioned SQL files in order, then the identity of the instance.

Owns `schema_version`, the first rows of `instance` and `partition_log`. A released file is never edited: what
it made stands in databases out there, so its digest is kept and compared.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from uuid import uuid4

from gateway.catalog.database import connect, statement
from gateway.catalog.model import CatalogError
from gateway.partitions import PARTITION_RULE
from gateway.postgres.connection_errors import UNANSWERED

_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_LOCK = "SELECT pg_advisory_lock(hashtextextended('sluice.migrate', 0))"


class NotPrepared(CatalogError):
    """The database is not at the version that this release works with."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.sql.encode()).digest()


async def migrate(postgres_url: str, partitions: int) -> list[str]:
    """Brings the database to this release's version; the names of what was applied, none when it was there.

    Any number may run at once: they wait for each other under an advisory lock, which ends with the
    connection. Each file is applied whole or not at all. Raises CatalogError where Postgres refuses, where a
    released file was edited, where the database is newer, and where it has another number of partitions.
    """
    conn = await connect(postgres_url)
    try:
        return await _migrate(conn, partitions)
    except UNANSWERED as error:
        raise CatalogError(f"the database can't be prepared: {error}") from error
    finally:
        await conn.close()


async def require_prepared(conn: Any) -> None:
    """Raises NotPrepared, which says what to run, unless the database is at this release's version."""
    applied: dict[int, Any] = {}
    if await conn.fetchval("SELECT to_regclass('schema_version') IS NOT NULL"):
        applied = await _applied(conn)
    try:
        pending = _pending(applied)
    except CatalogError as error:
        raise NotPrepared(str(error)) from None
    if pending or not await conn.fetchval("SELECT EXISTS (SELECT FROM instance)"):
        raise NotPrepared("the database is not prepared for this release: run `sluice migrate`")
    rule = await conn.fetchval("SELECT partition_rule FROM instance")
    if rule != PARTITION_RULE:
        raise NotPrepared(
            f"the database assigns tenants to partitions by the rule {rule}, this release by {PARTITION_RULE}"
        )


@cache  # each pool of a gateway that starts compares them
def released() -> tuple[Migration, ...]:
    """Every migration of this release, in order."""
    found = [
        Migration(int(match[1]), match[0].removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in (files("gateway.postgres") / "migrations").iterdir()
        if (match := _FILE.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.version)
    assert [migration.version for migration in found] == list(range(1, len(found) + 1)), "versions have a gap"
    return tuple(found)


async def _migrate(conn: Any, partitions: int) -> list[str]:
    await conn.execute(_LOCK)
    await conn.execute(statement("create_schema_version"))
    applied = await _applied(conn)
    pending = _pending(applied)
    if applied:
        await _same_partitions(conn, partitions)
    for migration in pending:
        await _apply(conn, migration)
    await _first_rows(conn, partitions)
    return [migration.name for migration in pending]


async def _applied(conn: Any) -> dict[int, Any]:
    rows = await conn.fetch("SELECT version, name, digest FROM schema_version")
    return {row["version"]: row for row in rows}


def _pending(applied: dict[int, Any]) -> list[Migration]:
    known = released()
    newest = max(applied, default=0)
    if newest > len(known):
        raise CatalogError(
            f"the database is at version {newest}, this release knows {len(known)}: "
            "use the release that prepared it"
        )
    for migration in known:
        row = applied.get(migration.version)
        if row is not None and (row["digest"] != migration.digest or row["name"] != migration.name):
            raise CatalogError(
                f"migration {migration.name} differs from {row['name']} as it was applied: "
                "a released file is never edited; restore it and write the change as a new one"
            )
    return [migration for migration in known if migration.version not in applied]


async def _apply(conn: Any, migration: Migration) -> None:
    async with conn.transaction():
        await conn.execute(migration.sql)
        await conn.execute(
            "INSERT INTO schema_version (version, name, digest) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.digest,
        )


async def _first_rows(conn: Any, partitions: int) -> None:
    async with conn.transaction():
        if not await conn.fetchval("SELECT EXISTS (SELECT FROM instance)"):
            await conn.execute(statement("create_instance"), uuid4(), partitions, PARTITION_RULE)
            await conn.execute(statement("create_partitions"), partitions)


async def _same_partitions(conn: Any, partitions: int) -> None:
    stored = await conn.fetchval("SELECT partitions FROM instance")
    if stored is not None and stored != partitions:
        raise CatalogError(
            f"the database is prepared for {stored} partitions, not {partitions}, and that never changes: "
            f"set SLUICE_PARTITIONS={stored}"
        )
