"""The tables of names in Postgres: look-ups, and what the events of a tenant's stream make of them.

Owns the projection: it is a function of the events only, in their order, so that whichever process applies
them, and however often the tables are made again, they come out the same. Decides nothing: an event stands
already when it is applied. Every method raises PostgresTrouble where Postgres can't answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.events import Stream
from gateway.json_values import decode_data
from gateway.log.read.ranges import VERSION_MAX
from gateway.names.aliases import Alias, Kind
from gateway.names.changes import RETIRED, Given, Named, named
from gateway.postgres.connection_errors import mapped_to
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.postgres.statements import statement_of

statement: Final = partial(statement_of, "aliases")

_EVENTS_AT_ONCE: Final = 100
ACQUIRE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """An alias and the aggregate that it names, permanently."""

    alias: Alias
    aggregate_type: str
    key: str
    retired: bool


@dataclass(frozen=True, slots=True)
class NumberedAndHashed:
    """A public id, whose it is, and the oldest hash id that this aggregate has, if any."""

    public: Alias
    hash: Alias | None
    aggregate_type: str
    key: str


@dataclass(frozen=True, slots=True)
class Scan:
    """`seq`: up to there every aggregate has its names, by what `declared` says; the partition stands at
    `head`. `spec_rev` is the newest revision by which that was done."""

    head: int
    seq: int
    declared: str
    spec_rev: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Of one tenant: how many names there are, and whether the tables came out as they had been."""

    names: int
    unchanged: bool


class Snapshot:
    """The tables as they were after `version` events, for as long as it is open: what is decided on it holds
    if the next event is appended under that version."""

    def __init__(self, connection: Any, tenant: bytes, version: int) -> None:
        self.tenant = tenant
        self.version = version
        self._connection = connection
        self._uuid = UUID(bytes=tenant)

    async def greatest(self, key: str) -> int:
        """The greatest number of a key of public ids; 0: none yet."""
        return int(await self._connection.fetchval(statement("counter"), self._uuid, key) or 0)

    async def scanned(self, p: int) -> Scan:
        """`p` is the tenant's partition."""
        return Scan(*await self._connection.fetchrow(statement("scanned"), self._uuid, p))

    async def created(self, after: int, types: Iterable[str], most: int) -> Sequence[Any]:
        """Aggregates of these types whose first event stands after a seq, in order: rows of seq, type, key,
        and the kinds of the names that it has, None for none."""
        rows: Sequence[Any] = await self._connection.fetch(
            statement("created"), self._uuid, after, list(types), most
        )
        return rows

    async def first_data(self, aggregates: Sequence[tuple[str, str]]) -> dict[tuple[str, str], object]:
        """The data of the creating events of aggregates (type, key)."""
        columns = [aggregate_type for aggregate_type, _ in aggregates], [key for _, key in aggregates]
        rows = await self._connection.fetch(statement("first_data"), self._uuid, *columns)
        return {
            (row["aggregate_type"], row["aggregate_id"]): decode_data(row["payload"] or b"null")
            for row in rows
        }

    async def project_keys(self, projects: Sequence[str]) -> dict[str, str]:
        """The keys of those projects that have claimed one."""
        rows = await self._connection.fetch(statement("project_keys"), self._uuid, projects)
        return {row["aggregate_id"]: row["key"] for row in rows}

    async def public_ids_of(self, aggregates: Sequence[tuple[str, str]]) -> dict[tuple[str, str, str], str]:
        """The numbers that these aggregates (type, key) have, by type, key and key of the public ids."""
        columns = [aggregate_type for aggregate_type, _ in aggregates], [key for _, key in aggregates]
        rows = await self._connection.fetch(statement("public_ids_of"), self._uuid, *columns)
        return {(row["aggregate_type"], row["aggregate_id"], row["prefix"]): row["body"] for row in rows}

    async def holders(self, names: Sequence[Given | Named]) -> dict[Named, Found]:
        """Who has these names already, by name; free ones are not there."""
        columns = _columns(names, "prefix", "body", "path")
        rows = await self._connection.fetch(statement("holders"), self._uuid, *columns)
        return {named(found.alias): found for found in map(_found, rows)}

    async def taken(self, prefix: str, bodies: Sequence[str]) -> set[str]:
        """Which of these bodies, without a path, an aggregate has behind the prefix."""
        rows = await self._connection.fetch(statement("taken"), self._uuid, prefix, bodies)
        return {row["body"] for row in rows}

    async def public_and_hash(self) -> list[NumberedAndHashed]:
        """Every public id in the order in which people count."""
        rows = await self._connection.fetch(statement("public_and_hash"), self._uuid)
        return [_numbered_and_hashed(row) for row in rows]

    async def greatest_child(self, name: Named) -> int:
        """The greatest number that a name beside this one has, which is a child's."""
        beside = name.path[: name.path.rindex(".") + 1]
        found = await self._connection.fetchval(
            statement("greatest_child"), self._uuid, name.prefix, name.body, beside
        )
        return int(found)


class Store:
    """`shares`: what clients ask for takes a tenant's share of the pool."""

    def __init__(self, pool: asyncpg.Pool, shares: Shares | None = None) -> None:
        self._pool = pool
        self._shares = shares or Shares(pool)

    async def exact(self, tenant: bytes, alias: Alias, aggregate_type: str | None) -> list[Found]:
        """What the alias names, of the type if one is given. Several only where its prefix was left out."""
        async with self._connection(tenant) as conn:
            rows = await conn.fetch(
                statement("find_alias"),
                UUID(bytes=tenant), alias.kind, alias.prefix, alias.body, alias.path, aggregate_type,
            )  # fmt: skip
        return [_found(row) for row in rows]

    async def abbreviated(
        self, tenant: bytes, alias: Alias, aggregate_type: str | None, most: int
    ) -> list[Found]:
        """The hash ids that it may be short for, sorted, at most so many."""
        after = alias.body[:-1] + chr(ord(alias.body[-1]) + 1)
        async with self._connection(tenant) as conn:
            rows = await conn.fetch(
                statement("find_abbreviated"),
                UUID(bytes=tenant), alias.prefix, alias.body, after, alias.path, aggregate_type, most,
            )  # fmt: skip
        return [_found(row) for row in rows]

    async def aliases_of(self, stream: Stream) -> list[Found]:
        """Of one aggregate, oldest first."""
        names = stream.aggregate_type, stream.key
        async with self._connection(stream.tenant) as conn:
            rows = await conn.fetch(statement("aliases_of"), UUID(bytes=stream.tenant), *names)
        return [Found(_alias(row), *names, row["retired"]) for row in rows]

    async def aliases_of_each(
        self, tenant: bytes, aggregates: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[str, ...]]:
        """Of many aggregates (type, key), those that are shown, oldest first; of one without any, nothing."""
        columns = [aggregate_type for aggregate_type, _ in aggregates], [key for _, key in aggregates]
        async with self._connection(tenant) as conn:
            rows = await conn.fetch(statement("aliases_of_each"), UUID(bytes=tenant), *columns)
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for row in rows:
            each = row["aggregate_type"], row["aggregate_id"]
            found[each] = (*found.get(each, ()), _alias(row).text)
        return found

    async def children_of(self, tenant: bytes, parent: Alias, after: int, most: int) -> list[Found]:
        """The children of the aggregate that has this hash id, by their numbers, behind number `after`."""
        async with self._connection(tenant) as conn:
            rows = await conn.fetch(
                statement("children_of"),
                UUID(bytes=tenant), parent.prefix, parent.body, f"{parent.path}.", after, most,
            )  # fmt: skip
        return [_found(row) for row in rows]

    async def hash_id_of_key(self, tenant: bytes, key: str, types: Iterable[str]) -> Found | None:
        """The oldest one that the key has as an aggregate of one of these types."""
        async with self._connection(tenant) as conn:
            row = await conn.fetchrow(statement("hash_id_of_key"), UUID(bytes=tenant), list(types), key)
        return None if row is None else _found(row)

    async def every(
        self, tenant: bytes, most: int, aggregate_type: str | None = None
    ) -> AsyncIterator[list[Found]]:
        """All names of a tenant, or those of one type, in the order in which people count, `most` at a
        time; as they are when it begins, however long it takes. They are sorted once."""
        async with self._connection() as conn, conn.transaction(readonly=True):
            cursor = await conn.cursor(statement("list_aliases"), UUID(bytes=tenant), aggregate_type)
            while rows := await cursor.fetch(most):
                yield [_found(row) for row in rows]

    async def sync(self, tenant: bytes) -> int:
        """Applies every committed event that is not in the tables yet; how many are."""
        async with self._connection() as conn:
            standing = await conn.fetchrow(statement("standing"), UUID(bytes=tenant))
            applied: int = standing["applied"]
            before = -1
            while before < applied < standing["length"]:  # a tenant that is deleted may have none left
                before, applied = applied, await self._apply_some(conn, UUID(bytes=tenant))
            return applied

    async def _apply_some(self, conn: Any, tenant: UUID) -> int:
        async with conn.transaction():
            return await _apply_after(conn, tenant, await _lock_position(conn, tenant))

    @asynccontextmanager
    async def snapshot(self, tenant: bytes) -> AsyncIterator[Snapshot]:
        async with (
            self._connection() as conn,
            conn.transaction(isolation="repeatable_read", readonly=True),
        ):
            standing = await conn.fetchrow(statement("standing"), UUID(bytes=tenant))
            yield Snapshot(conn, tenant, standing["applied"])

    async def begun(self, after: Mapping[UUID, int]) -> set[UUID]:
        """The tenants that have new aggregates after these seqs."""
        async with self._connection() as conn:
            rows = await conn.fetch(statement("begun"), list(after), list(after.values()))
        return {UUID(bytes=row["tenant"].bytes) for row in rows}

    async def note_scan(self, tenant: bytes, seq: int, declared: str, spec_rev: int) -> None:
        """Up to `seq` every aggregate has its names. An older revision has no say."""
        async with self._connection() as conn:
            await conn.execute(statement("note_scan"), UUID(bytes=tenant), seq, declared, spec_rev)

    async def rebuild(self, tenant: bytes) -> Rebuilt:
        """Makes the tables of a tenant again from its events; gateways may go on meanwhile. Only who owns the
        tables may do it."""
        owner = UUID(bytes=tenant)
        async with self._connection() as conn, conn.transaction():
            stood = await _lock_position(conn, owner)
            before = await conn.fetchrow(statement("digest"), owner)
            for table in ("aliases", "counters"):
                await conn.execute(statement(f"clear_{table}"), owner)
            await _apply_to(conn, owner, 0, stood)
            after = await conn.fetchrow(statement("digest"), owner)
            await _apply_to(conn, owner, stood, VERSION_MAX)
            whole = await conn.fetchrow(statement("digest"), owner)
        return Rebuilt(whole["names"], tuple(before) == tuple(after))

    @asynccontextmanager
    async def _connection(self, tenant: bytes | None = None) -> AsyncIterator[Any]:
        """The tenant's share, or of the pool."""
        pool = self._pool if tenant is None else self._shares.of(tenant)
        with mapped_to(PostgresTrouble, "names: "):
            async with pool.acquire(timeout=ACQUIRE_S) as conn:
                yield conn


async def _lock_position(conn: Any, tenant: UUID) -> int:
    """How many events are in the tables; no other process applies any until the transaction ends."""
    applied: int | None = await conn.fetchval(statement("lock_position"), tenant)
    if applied is None:
        await conn.execute(statement("begin_position"), tenant)
        applied = await conn.fetchval(statement("lock_position"), tenant)
        assert applied is not None
    return applied


async def _apply_to(conn: Any, tenant: UUID, applied: int, last: int) -> None:
    """Applies the events after `applied`, to `last` at most."""
    while applied < last:
        most = min(_EVENTS_AT_ONCE, last - applied)
        reached = await _apply_after(conn, tenant, applied, most)
        if reached == applied:
            return
        applied = reached


async def _apply_after(conn: Any, tenant: UUID, applied: int, most: int = _EVENTS_AT_ONCE) -> int:
    """Applies the next events; how many are in the tables then."""
    rows = await conn.fetch(statement("unapplied"), tenant, applied, most)
    for event_type, alike in groupby(rows, itemgetter("type")):
        versions = [row["version"] for row in alike]
        applied = versions[-1]
        await _apply(conn, tenant, versions, event_type)
    if rows:
        await conn.execute(statement("move_position"), tenant, applied)
    return applied


async def _apply(conn: Any, tenant: UUID, versions: Sequence[int], event_type: str) -> None:
    """Applies events of one type that follow each other. The names go from table to table in Postgres:
    through here they would cost a gateway more than all else that is done for them. Raises ValueError for an
    event that this release does not know: a newer one wrote it, and to pass over it would make other tables
    than it does."""
    match event_type:
        case "_names_given" | "_names_imported":
            new = await conn.fetch(statement("give"), tenant, versions[0], versions[-1])
            if new:
                keys, numbers = [row["prefix"] for row in new], [row["number"] for row in new]
                await conn.execute(statement("begin_counters"), tenant, keys, numbers)
        case "_names_retired" | "_names_restored":
            for version in versions:
                await conn.execute(statement("retire"), tenant, version, event_type == RETIRED)
        case _:
            raise ValueError(f"this release does not know the event {event_type}; use the one that wrote it")


def _columns(names: Sequence[Given | Named], *fields: str) -> list[list[Any]]:
    return [[getattr(name, field) for name in names] for field in fields]


def _found(row: Any) -> Found:
    return Found(_alias(row), row["aggregate_type"], row["aggregate_id"], row["retired"])


def _numbered_and_hashed(row: Any) -> NumberedAndHashed:
    hashed = None
    if row["hash_prefix"] is not None:
        hashed = Alias(Kind.HASH, row["hash_prefix"], row["hash_body"], row["hash_path"])
    public = Alias(Kind.PUBLIC, row["prefix"], row["body"])
    return NumberedAndHashed(public, hashed, row["aggregate_type"], row["aggregate_id"])


def _alias(row: Any) -> Alias:
    return Alias(Kind(row["kind"]), row["prefix"], row["body"], row["path"])
