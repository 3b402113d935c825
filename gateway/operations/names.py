"""What commands do with names: look up, list, import, export, retire, rebuild their tables.

What changes names appends events, so it opens a log of its own beside the gateways', and goes through it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from gateway.aliases import transfer
from gateway.aliases.public_to_hash import CanNotMigrate, Migration
from gateway.aliases.resolver import look_up
from gateway.aliases.store import Found, Rebuilt, Snapshot, Store
from gateway.aliases.writer import ASSIGNING, IMPORTING, NotWritten, Plan, Writer, Written
from gateway.catalog import specs, tenants
from gateway.config import Config
from gateway.log.limits import limits_of
from gateway.log.log import Log
from gateway.log.redis.cluster import open_redis
from gateway.names.aliases import SIGIL, Alias, Malformed, parse_alias
from gateway.names.changes import Change, Retire, named
from gateway.operations.audit import Watcher
from gateway.operations.place import OperationFailed, Place
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse_deployed

_REDIS_CONNECTIONS_MAX = 64
_STOP_S = 5.0
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Imported:
    """Of one file: how many names are new, and how many were so already."""

    new: int
    known: int


async def tenant_of(pool: asyncpg.Pool, name: str) -> UUID:
    """Raises CatalogError where there is none."""
    return (await tenants.named(pool, name)).id


async def deployed_spec(pool: asyncpg.Pool, tenant: UUID) -> Spec:
    """By which names are checked; the secrets that it names need not be set here. Raises OperationFailed."""
    stored = await specs.stored(pool, tenant)
    if stored is None:
        raise OperationFailed("the tenant has no spec yet: `sluice spec deploy FILE`")
    spec = parse_deployed(stored.document)
    if isinstance(spec, Faults):
        raise OperationFailed(f"the deployed spec can't be read here: {spec[0].error}")
    return spec


async def resolve(pool: asyncpg.Pool, tenant: UUID, text: str) -> list[Found]:
    """What an alias, or an abbreviation of one, names; several where it is ambiguous. Raises OperationFailed
    for what is no alias."""
    store = Store(pool)
    await store.sync(tenant.bytes)
    return await look_up(store, tenant.bytes, _alias(text), None, exact=False)


async def every(pool: asyncpg.Pool, tenant: UUID, aggregate_type: str | None = None) -> AsyncIterator[Found]:
    """All names of a tenant, or those of one type, in the order in which people count."""
    store = Store(pool)
    await store.sync(tenant.bytes)
    async for page in store.every(tenant.bytes, _PAGE, aggregate_type):
        for found in page:
            yield found


async def bring_in(
    place: Place, config: Config, tenant: UUID, lines: Iterable[bytes], watcher: Watcher
) -> Imported:
    """The names of a file, all or none. Raises transfer.CannotImport and OperationFailed."""
    spec = await deployed_spec(place.pool, tenant)
    wanted = transfer.read(lines, spec)
    watcher.begin(len(wanted))

    async def plan(at: Snapshot) -> Sequence[Change]:
        return await transfer.plan(at, wanted, watcher.advance)

    written = await _write(place, config, tenant, plan, IMPORTING)
    new = len(written.changes[0].names) if written.changes else 0
    return Imported(new, len(wanted) - new)


async def public_to_hash(
    place: Place, config: Config, tenant: UUID, *, dry_run: bool
) -> tuple[Migration, int]:
    """A hash id beside each public id, all or none: every pair there is then, and how many of the names are
    new. A dry run says the same and writes nothing. Raises OperationFailed."""
    spec = await deployed_spec(place.pool, tenant)
    if spec.hash_ids is None:
        raise OperationFailed("the spec declares no `hash_ids`: add their prefix and types, and deploy it")
    migration, store = Migration(spec.hash_ids), Store(place.pool)
    try:
        if dry_run:
            await store.sync(tenant.bytes)
            async with store.snapshot(tenant.bytes) as at:
                changes = await migration.plan(at)
        else:
            changes = (await _write(place, config, tenant, migration.plan)).changes
    except CanNotMigrate as fault:
        raise OperationFailed(str(fault)) from fault
    return migration, sum(len(change.names) for change in changes)


async def retire(place: Place, config: Config, tenant: UUID, text: str, *, restore: bool) -> Alias:
    """The alias, which is not shown any more, or again. Raises OperationFailed."""
    alias = _alias(text)
    if alias.prefix is None:
        raise OperationFailed(f"{text} is not an exact alias: write it with its prefix")
    name = named(alias)

    async def plan(at: Snapshot) -> Sequence[Change]:
        holder = (await at.holders([name])).get(name)
        if holder is None:
            raise OperationFailed(f"there is no alias {alias.text}")
        return () if holder.retired != restore else (Retire((name,), restore),)

    await _write(place, config, tenant, plan)
    return alias


async def rebuild(pool: asyncpg.Pool, tenant: UUID) -> Rebuilt:
    """The tables of a tenant's names, made again from its events; gateways may go on meanwhile."""
    return await Store(pool).rebuild(tenant.bytes)


async def _write(
    place: Place, config: Config, tenant: UUID, plan: Plan, actor_id: str = ASSIGNING
) -> Written:
    async with _log(place, config) as log:
        writer = Writer(log, Store(place.pool))
        try:
            return await writer.write(tenant.bytes, plan, actor_id=actor_id)
        except NotWritten as trouble:
            raise OperationFailed(f"{trouble}; the outcome is unknown, so run it again") from trouble


@asynccontextmanager
async def _log(place: Place, config: Config) -> AsyncIterator[Log]:
    redis = open_redis(config.redis_url, config.redis_timeout_s, _REDIS_CONNECTIONS_MAX)
    log = Log(redis, place.pool, place.postgres_url, place.instance, limits_of(config))
    await log.start()
    try:
        yield log
    finally:
        await log.stop(_STOP_S)
        await redis.aclose()


def _alias(text: str) -> Alias:
    alias = parse_alias(text.removeprefix(SIGIL))
    if isinstance(alias, Malformed):
        raise OperationFailed(alias.reason)
    return alias
