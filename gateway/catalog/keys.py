"""API keys: minted, listed, rotated, revoked. The key itself is shown once; its SHA-256 is all that is kept.

A key is named by its handle. Rotation keeps two alive at a time, the old one and its successor, until the old
one is revoked or its grace ends. Every gateway follows within seconds (`catalog.STALE_S`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gateway.catalog.database import Database, change, connection, statement
from gateway.catalog.model import CatalogError, Scope, Tenant
from gateway.catalog.narrowness import Only
from gateway.catalog.tenants import HANDLE_ATTEMPTS_MAX
from gateway.names import tokens

NAME_CHARS_MAX = 100  # a label for people, shown in lists
MADE_MAX = 1_000
"""Living keys that one key has made over HTTP: each is a row, and half a kilobyte in a gateway's memory."""
LIVING_MAX = 10_000
"""Of a tenant, where keys make further ones over HTTP: those that a key made make others, too."""
ENDED_KEPT = 1_000
"""Keys of a tenant that ended, of which lists still tell; beyond them the oldest are deleted."""
ENDED_MAX = 20_000
"""Then no further ones are made before some can be deleted (migration 48)."""
FORGOTTEN_AT_ONCE = 100
PAGE_MAX = 1_000
LIFETIME_MAX = timedelta(days=36_500)  # further on, dates end


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_LIFETIME = re.compile(r"([0-9]{1,10})([smhdwy])")


def lifetime_of(text: str) -> timedelta | None:
    """Of `90s`, `15m`, `1h`, `7d`, `4w` or `1y`; None for anything else, or more than a hundred years."""
    found = _LIFETIME.fullmatch(text)
    seconds = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    return timedelta(seconds=seconds) if 0 < seconds <= LIFETIME_MAX.total_seconds() else None


@dataclass(frozen=True, slots=True)
class Minted:
    """A key just made. `text` is the secret: it exists nowhere else."""

    text: str = field(repr=False)
    handle: str
    tenant: str
    scope: Scope
    name: str
    expires_at: datetime | None
    only: tuple[str, ...] | None = None


class NotRotated(CatalogError):
    """The key is there, and gets no successor as it stands."""


class TooManyKeys(CatalogError):
    """A key, or its tenant, has made all the living ones that it may."""


class MakerEnded(CatalogError):
    """The key that is to make another one has ended, which its gateway did not know yet."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A key as lists show it: times in UTC, None for never. `status` is live, expired or revoked."""

    handle: str
    tenant: str
    name: str
    scope: Scope
    status: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    rotated_from: str | None
    only: tuple[str, ...] | None = None
    made_by: str | None = None


async def create(
    database: Database,
    tenant: Tenant,
    scope: Scope,
    *,
    name: str = "",
    expires_in: timedelta | None = None,
    only: Only | None = None,
    made_by: str | None = None,
    entropy: tokens.Entropy = secrets.token_bytes,
) -> Minted:
    """A new key of this tenant, narrowed to `only`. One that is `made_by` another ends when that one does.
    Raises CatalogError where the name or the time can't be, TooManyKeys and MakerEnded."""
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise CatalogError(f"a key's name has at most {NAME_CHARS_MAX} characters, all printable")
    if expires_in is not None and not timedelta(0) < expires_in <= LIFETIME_MAX:
        raise CatalogError("a key expires after more than 0 seconds and within a hundred years")
    if only is not None and scope > Scope.WRITE:
        raise CatalogError(f"a key of scope {scope.text} can't be narrowed: take read or write")
    origin = _Origin(None, only.names if only else None, made_by)
    async with change(database) as (conn, revision):
        await _require_living(conn, made_by)
        if made_by is not None:
            if await conn.fetchval(statement("made_keys"), made_by) >= MADE_MAX:
                raise TooManyKeys(
                    f"this key has created {MADE_MAX} keys that are valid: revoke some, or let them expire"
                )
            await _make_room(conn, tenant)
        return await _insert(conn, tenant, scope, name, expires_in, origin, revision, entropy)


async def first(
    conn: Any, tenant: Tenant, revision: int, *, entropy: tokens.Entropy = secrets.token_bytes
) -> Minted:
    """The first key of a tenant that is made within the same `change`."""
    origin = _Origin(None, None, None)
    return await _insert(conn, tenant, Scope.ADMIN, "first key", None, origin, revision, entropy)


async def rotate(
    database: Database,
    handle: str,
    *,
    grace: timedelta | None = None,
    made_by: str | None = None,
    entropy: tokens.Entropy = secrets.token_bytes,
) -> Minted:
    """A successor with the same tenant, scope and name; the old key ends after `grace`, or when revoked. The
    successor ends with the key `made_by`; without one, with the key that made the old one.

    Raises CatalogError where there is no such key, and NotRotated unless it is live, and where it has a
    living predecessor or successor: two at a time, so that it stays clear of which one is in use. Raises
    TooManyKeys and MakerEnded.
    """
    if grace is not None and not timedelta(0) <= grace <= LIFETIME_MAX:
        raise CatalogError("the grace of a rotated key is not negative, and at most a hundred years")
    async with change(database) as (conn, revision):
        await _require_living(conn, made_by)
        old = await _one(conn, handle)
        if old["status"] != "live":
            raise NotRotated(f"key {handle} is {old['status']}: create a new one instead")
        other = await conn.fetchval(statement("living_relative"), handle)
        if other is not None:
            raise NotRotated(
                f"keys {handle} and {other} are both valid: revoke the one that is no longer used"
            )
        tenant = Tenant(old["tenant_id"], old["tenant"], old["tenant_handle"])
        if made_by is not None:
            await _make_room(conn, tenant)
        lifetime = old["expires_at"] - old["created_at"] if old["expires_at"] else None
        narrowed = None if old["narrowed_to"] is None else tuple(old["narrowed_to"])
        origin = _Origin(handle, narrowed, made_by or old["made_by"])
        minted = await _insert(conn, tenant, _scope(old), old["name"], lifetime, origin, revision, entropy)
        if grace is not None:
            await conn.execute(statement("end_key"), handle, grace, revision)
        return minted


async def revoke(database: Database, handle: str, tenant: Tenant | None = None) -> None:
    """Ends a key now, of this tenant if one is given, and the keys that it made; one that is revoked already
    stays as it is. Raises CatalogError where there is none."""
    async with change(database) as (conn, revision):
        key = await _one(conn, handle)
        if tenant is not None and key["tenant_id"] != tenant.id:
            raise CatalogError(f"there is no key {handle!r}")
        await conn.execute(statement("revoke_key"), handle, revision)


async def scope_of(database: Database, handle: str, tenant: Tenant) -> Scope:
    """Of a key of this tenant. Raises CatalogError where there is none."""
    async with connection(database) as conn:
        key = await _one(conn, handle)
    if key["tenant_id"] != tenant.id:
        raise CatalogError(f"there is no key {handle!r}")
    return _scope(key)


async def every(database: Database, tenant: Tenant | None = None) -> list[Listed]:
    """All keys, or a tenant's, in the order of tenants and creation."""
    async with connection(database) as conn:
        return _listed(await conn.fetch(statement("list_keys"), None, tenant.id if tenant else None))


async def page(database: Database, tenant: Tenant, after: str | None, limit: int) -> list[Listed]:
    """A tenant's keys behind the one with the handle `after`, in the order of creation."""
    async with connection(database) as conn:
        return _listed(await conn.fetch(statement("page_of_keys"), tenant.id, after, limit))


def _listed(rows: Iterable[Any]) -> list[Listed]:
    return [
        Listed(
            row["handle"],
            row["tenant"],
            row["name"],
            _scope(row),
            row["status"],
            row["created_at"],
            row["expires_at"],
            row["last_used_at"],
            row["revoked_at"],
            row["rotated_from"],
            None if row["narrowed_to"] is None else tuple(row["narrowed_to"]),
            row["made_by"],
        )
        for row in rows
    ]


async def _require_living(conn: Any, made_by: str | None) -> None:
    """Raises MakerEnded: what it made has ended with it, and what it would make would not."""
    if made_by is not None and not await conn.fetch(statement("living_keys"), [made_by]):
        raise MakerEnded(f"key {made_by} has ended")


async def _make_room(conn: Any, tenant: Tenant) -> None:
    """For a key more of a tenant. Raises TooManyKeys."""
    alive, ended = await conn.fetchrow(statement("crowd_of_keys"), tenant.id)
    if alive >= LIVING_MAX:
        raise TooManyKeys(
            f"this tenant has {LIVING_MAX} keys that are valid: revoke some, or let them expire"
        )
    if ended >= ENDED_MAX:
        raise TooManyKeys(f"{ended} keys of this tenant ended in the last minutes: try again later")
    if ended > ENDED_KEPT:
        await conn.execute(statement("forget_keys"), tenant.id, FORGOTTEN_AT_ONCE)


async def _one(conn: Any, handle: str) -> Any:
    row = await conn.fetchrow(statement("list_keys"), handle, None)
    if row is None:
        raise CatalogError(f"there is no key {handle!r}: `sluice keys list` shows their handles")
    return row


@dataclass(frozen=True, slots=True)
class _Origin:
    """The key that a new one replaces, what it is narrowed to, and the key that made it."""

    rotated_from: str | None
    only: tuple[str, ...] | None
    made_by: str | None


async def _insert(
    conn: Any,
    tenant: Tenant,
    scope: Scope,
    name: str,
    expires_in: timedelta | None,
    origin: _Origin,
    revision: int,
    entropy: tokens.Entropy,
) -> Minted:
    """Never overwrites: a handle that is taken is drawn again."""
    text = tokens.mint(tenant.handle, entropy)
    digest = tokens.digest(text)
    for _ in range(HANDLE_ATTEMPTS_MAX):
        handle = tokens.new_handle(entropy)
        row = await conn.fetchrow(
            statement("create_key"),
            handle,
            tenant.id,
            name,
            scope.text,
            digest,
            expires_in,
            origin.rotated_from,
            revision,
            origin.only,
            origin.made_by,
        )
        if row is not None:
            return Minted(text, handle, tenant.name, scope, name, row["expires_at"], origin.only)
    raise CatalogError(
        f"no unique handle after {HANDLE_ATTEMPTS_MAX} attempts: is the source of randomness broken?"
    )


def _scope(row: Any) -> Scope:
    return Scope[row["scope"].upper()]
