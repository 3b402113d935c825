"""Source ids in Postgres: a foreign system's id for one of our aggregates, mapped to its key once for all.

Owns the tables behind the view `source_map`. Must not know where a source id came from (webhooks, an import)
or what type of aggregate the key is used with: put the type into the scope where one source names several.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from gateway.catalog.database import Database, answering, connection, statement
from gateway.catalog.model import CatalogError
from gateway.names.source_ids import SourceId, Unusable, derived_key, read
from gateway.stored_extra import SourceRef


@dataclass(frozen=True, slots=True)
class Mapping:
    """What a source id stands for; `aggregate_type` is None where nothing has said it yet."""

    key: str
    aggregate_type: str | None


@dataclass(frozen=True, slots=True)
class Sighted:
    """`key` is what the source id stands for; `first` for the one caller that stored it."""

    key: str
    first: bool


async def key_of(database: Database, tenant: UUID, sighted: SourceId, *, random: bool = False) -> Sighted:
    """The key of a source id; at first sight one is minted and stored.

    The minted one is a UUIDv5 over tenant and source id, so that two gateways and a replay into an empty
    database agree; with `random` a UUIDv4. What is stored wins. Any number may sight one id at once: one of
    them is `first`, all get its key. Idempotent. One round trip for an id that is known.
    Raises CatalogUnavailable where Postgres does not answer: then it is not known whether anything is stored.
    """
    async with _connection(database) as conn:
        known = await _find(conn, tenant, sighted)
        if known is not None:
            return Sighted(known, False)
        scope = await _scope(conn, tenant, sighted.source, sighted.scope)
        key = str(uuid4()) if random else _derived(tenant, sighted.source, scope, sighted.source_id)
        return await _store(conn, scope["id"], sighted.source_id, key)


async def keys_of(
    database: Database,
    tenant: UUID,
    source: str,
    scope: str,
    ids: Collection[str],
    aggregate_type: str | None = None,
) -> dict[str, str]:
    """The keys of source ids of one scope, as `key_of` gives each of them: in one round trip where all are
    known, and in a few where not, however many they are. New ones stand for aggregates of this type. Raises
    CatalogUnavailable."""
    async with _connection(database) as conn:
        found = dict(await conn.fetch(statement("find_source_keys"), tenant, source, scope, [*ids]))
        # All sort alike: two that store the same ids may wait for each other, but never in a circle.
        fresh = sorted(each for each in ids if each not in found)
        if fresh:
            within = await _scope(conn, tenant, source, scope)
            minted = [_derived(tenant, source, within, each) for each in fresh]
            made = await conn.fetch(
                statement("create_source_keys"), within["id"], fresh, minted, aggregate_type
            )
            found |= dict(made)
        lost = [each for each in fresh if each not in found]
        if lost:
            found |= dict(await conn.fetch(statement("mapped_source_keys"), within["id"], lost))
    return found


async def known_key(database: Database, tenant: UUID, sighted: SourceId) -> str | None:
    """The key that is stored for a source id; None where there is none, and nothing is minted.
    Raises CatalogUnavailable."""
    async with _connection(database) as conn:
        return await _find(conn, tenant, sighted)


def mapped_by(database: Database) -> Callable[[UUID, SourceRef], Awaitable[str | None]]:
    """`known_key` of what events say that they are records of."""

    async def mapped(tenant: UUID, ref: SourceRef) -> str | None:
        return await known_key(database, tenant, SourceId(ref.source, ref.scope, ref.source_id))

    return mapped


async def mappings(
    database: Database,
    tenant: UUID,
    wanted: Sequence[SourceId],
    *,
    mint: bool = False,
    aggregate_type: str | None = None,
) -> list[Mapping | None]:
    """What each source id stands for, in order; None for one that was never seen, unless they are minted
    then, as aggregates of this type. Any number may do so at once: all get the same keys. A mapping without
    a type gets this one. Raises CatalogUnavailable."""
    async with _connection(database) as conn:
        found = await _mapped(conn, tenant, wanted)
        lost = {each for n, each in enumerate(wanted) if found[n] is None}
        if lost and mint:
            # All sort alike: two that store the same ids may wait for each other, but never in a circle.
            for source, scope in sorted({(each.source, each.scope) for each in lost}):
                ids = [each.source_id for each in lost if (each.source, each.scope) == (source, scope)]
                await keys_of(conn, tenant, source, scope, ids, aggregate_type)
            found = await _mapped(conn, tenant, wanted)
        untyped = [wanted[n] for n, each in enumerate(found) if each and each.aggregate_type is None]
        if untyped and aggregate_type is not None:
            await conn.execute(statement("adopt_types"), tenant, *_columns(untyped), aggregate_type)
            found = await _mapped(conn, tenant, wanted)
    return found


async def export(
    database: Database, tenant: UUID, source: str, after: tuple[int, str], limit: int
) -> list[tuple[int, SourceId, Mapping]]:
    """A page of a source's ids with what they stand for, behind a scope's id and a source id, in a fixed
    order. Raises CatalogUnavailable."""
    async with _connection(database) as conn:
        rows = await conn.fetch(statement("export_sources"), tenant, source, *after, limit)
    return [
        (
            row["scope_id"],
            SourceId(source, row["scope"], row["source_id"]),
            Mapping(row["key"], row["aggregate_type"]),
        )
        for row in rows
    ]


async def link(
    database: Database, tenant: UUID, sighted: SourceId, key: str, aggregate_type: str | None = None
) -> Sighted:
    """Maps a source id to an aggregate, whether it has events or not; several may stand for one. A mapping
    that is there already stays as it is: the answer's key says which. Raises CatalogUnavailable."""
    async with _connection(database) as conn:
        scope = await _scope(conn, tenant, sighted.source, sighted.scope)
        return await _store(conn, scope["id"], sighted.source_id, key, aggregate_type)


async def source_ids_of(database: Database, tenant: UUID, key: str) -> tuple[SourceId, ...]:
    """What foreign systems call an aggregate, sorted. Raises CatalogUnavailable."""
    return tuple([each for each, _ in await mapped_to(database, tenant, key)])


async def mapped_to(database: Database, tenant: UUID, key: str) -> list[tuple[SourceId, str | None]]:
    """The same, each with the type of aggregate that it stands for, if that is known."""
    async with _connection(database) as conn:
        rows = await conn.fetch(statement("find_source_ids"), tenant, key)
    return [(SourceId(row["source"], row["scope"], row["source_id"]), row["aggregate_type"]) for row in rows]


async def rename_scope(database: Database, tenant: UUID, source: str, scope: str, name: str) -> None:
    """Gives a scope another name; all keys stay. A request with an id under the old name from now on begins
    a new scope. Raises CatalogError where there is no such scope or the name is taken or can't be."""
    match read(source, name, "-"):
        case Unusable(reason=why):
            raise CatalogError(why)
    async with connection(database) as conn:
        try:
            renamed = await conn.fetchval(statement("rename_source_scope"), tenant, source, scope, name)
        except asyncpg.UniqueViolationError:
            why = "two scopes are not made one, since ids in both may be equal"
            raise CatalogError(f"{source} has a scope {name!r} already: {why}") from None
    if not renamed:
        raise CatalogError(f"{source} has no scope {scope!r}: no id was ever seen in it")


def _columns(wanted: Sequence[SourceId]) -> tuple[list[str], list[str], list[str]]:
    return (
        [each.source for each in wanted],
        [each.scope for each in wanted],
        [each.source_id for each in wanted],
    )


async def _mapped(conn: Any, tenant: UUID, wanted: Sequence[SourceId]) -> list[Mapping | None]:
    found: list[Mapping | None] = [None] * len(wanted)
    for row in await conn.fetch(statement("find_mappings"), tenant, *_columns(wanted)):
        found[row["n"] - 1] = Mapping(row["key"], row["aggregate_type"])
    return found


async def _find(conn: Any, tenant: UUID, sighted: SourceId) -> str | None:
    found: str | None = await conn.fetchval(
        statement("find_source_key"), tenant, sighted.source, sighted.scope, sighted.source_id
    )
    return found


async def _scope(conn: Any, tenant: UUID, source: str, scope: str) -> Any:
    """The scope's row, made if need be. Statements by themselves: each sees what others have committed, as
    `ON CONFLICT DO NOTHING` and a SELECT in one statement would not. A concurrent renaming comes
    before or after, since what is found is named by an id that never changes."""
    while True:
        row = await conn.fetchrow(statement("find_source_scope"), tenant, source, scope)
        if row is not None:
            return row
        await conn.execute(statement("create_source_scope"), tenant, source, scope)


async def _store(
    conn: Any, scope_id: int, source_id: str, key: str, aggregate_type: str | None = None
) -> Sighted:
    if await conn.fetchval(statement("create_source_key"), scope_id, source_id, key, aggregate_type):
        return Sighted(key, True)
    return Sighted(await conn.fetchval(statement("mapped_source_key"), scope_id, source_id), False)


def _derived(tenant: UUID, source: str, scope: Any, source_id: str) -> str:
    return derived_key(tenant, source, scope["origin"], scope["incarnation"], source_id)


@asynccontextmanager
async def _connection(database: Database) -> AsyncIterator[Any]:
    with answering():
        async with connection(database) as conn:
            yield conn
