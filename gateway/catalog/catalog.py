"""The catalog in memory: the principal of each key, the spec of each tenant. Postgres' clock keeps it true.

Owns the cache and its freshness: `refresh` is called once a second, follows the clock, and drops or reloads
what changed. A gateway cut off from Postgres for `STALE_S` honours no key any more, since it can't know which
were revoked. Must not know of HTTP; tells absence (None) from not knowing (`CatalogUnavailable`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from gateway.catalog import tickets
from gateway.catalog.database import Database, answering, statement
from gateway.catalog.declared import DeclaredSpecs
from gateway.catalog.key_look_ups import ANSWER_S, KeyLookUps
from gateway.catalog.known_keys import Known, KnownKeys
from gateway.catalog.model import (
    REPORT_S,
    STALE_S,
    CatalogUnavailable,
    Deployed,
    Principal,
    Scope,
    Tenant,
    tenant_of,
)
from gateway.catalog.narrowness import read_only
from gateway.catalog.secrets import Secrets, SecretsOf
from gateway.names import tokens
from spec.errors import Faults

UNKNOWN_S = 1.0  # a wrong key asks Postgres once a second at most
KEYS_MAX = 10_000  # living keys in memory, some 600 bytes each; others are looked up again
UNKNOWN_MAX = 10_000  # wrong keys in memory
USED_S = 60.0  # last_used_at is for finding forgotten keys: a minute is exact enough

_NOTHING = Secrets(MappingProxyType({}))


class _Changes(NamedTuple):
    """Rows of the catalog, as read at one revision of its clock."""

    revision: int
    keys: list[Any]
    specs: list[Any]
    closing: list[Any]
    resting: list[Any]
    gone: list[Any]


def _nothing_under_way() -> float:
    return float("inf")


class Catalog:
    """One a gateway. `pool` is its own (two connections are plenty): behind slow reads it would go stale.
    `key_pool` looks up keys that are not known yet, and should be another: behind a flood of them too.
    `secrets_of` has the secrets that specs name; `clock` counts seconds and never goes back.
    `under_way_since` tells by the same clock when the oldest append that is not settled was admitted."""

    def __init__(
        self,
        pool: Database,
        secrets_of: SecretsOf = _NOTHING.of,
        *,
        key_pool: Database | None = None,
        clock: Callable[[], float] = time.monotonic,
        under_way_since: Callable[[], float] = _nothing_under_way,
    ) -> None:
        self._pool = pool
        self._key_pool = key_pool or pool
        self._look_ups = KeyLookUps(self._key_pool)
        self._clock = clock
        self._under_way_since = under_way_since
        self._gateway = uuid4()
        self._known = KnownKeys()
        self._keys = self._known.of
        self._unknown: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[Principal | None]] = {}  # keys that are being looked up
        self._declared = DeclaredSpecs(secrets_of)
        self._named: dict[str, Tenant] = {}  # those that have a spec
        self._handles: set[str] = set()  # theirs
        self._resting: frozenset[UUID] = frozenset()
        self._serving: dict[UUID, Deployed] = {}  # as declared, but without what is being removed
        self._unreadable = self._declared.unreadable
        self._revision = -1
        self._stale_at = float("-inf")
        self._followed: deque[tuple[int, float]] = deque()  # revisions, and since when each is acted on
        self._settled = -1  # the last of them under which all is settled that was admitted before
        self._reported = (-1, float("-inf"))
        self._refreshing = asyncio.Lock()
        self._last_try: tuple[float, CatalogUnavailable | None] = (float("-inf"), None)

    async def start(self) -> None:
        """Loads every spec; keys are looked up when they are first seen. Raises CatalogUnavailable."""
        await self.refresh()

    def principal(self, token: str) -> Principal | None:
        """Who this key is, from memory only. None: not known here and now, so ask `authenticate`."""
        key = self._keys.get(token)
        if key is None:
            return None
        now = self._clock()
        if now >= self._stale_at or now >= key.until:
            return None
        key.used = True
        return key.principal

    def last_known(self, token: str) -> Principal | None:
        """Who this key was when Postgres last confirmed it, however long ago; None: it is not known here, or
        has expired. Where `fresh` is false it may be revoked by now: it opens no data."""
        key = self._keys.get(token)
        return None if key is None or self._clock() >= key.until else key.principal

    def deployed(self, tenant_id: UUID) -> Deployed | None:
        """The spec by which this tenant's requests are checked; None where it has none yet."""
        return self._serving.get(tenant_id)

    def tenant(self, name: str) -> Tenant | None:
        """The tenant of this name, from memory only; None where there is none with a spec."""
        return self._named.get(name)

    def resting(self, tenant_id: UUID) -> bool:
        """Whether this tenant is suspended, or going."""
        return bool(self._resting) and tenant_id in self._resting

    def serves(self, tenant_id: UUID) -> bool:
        """Whether requests of this tenant are answered by its spec here: it neither rests nor is unserved."""
        if not self._resting and not self._unreadable:  # as mostly
            return True
        return not self.resting(tenant_id) and not self.unserved(tenant_id)

    @property
    def at_rest(self) -> frozenset[bytes]:
        """The tenants that are suspended, or going, by the bytes of their ids."""
        return frozenset([each.bytes for each in self._resting])

    @property
    def any_resting(self) -> bool:
        return bool(self._resting)

    @property
    def serving(self) -> Mapping[UUID, Deployed]:
        """The spec of every tenant that has one; another object after each change."""
        return self._serving

    @property
    def fresh(self) -> bool:
        """Whether what is known here is young enough to act on."""
        return self._clock() < self._stale_at

    def stale_s(self) -> float:
        """Seconds since Postgres last confirmed what is known here; infinite before `start`."""
        return self._clock() - (self._stale_at - STALE_S)

    @property
    def unreadable(self) -> Mapping[UUID, tuple[int, Faults]]:
        """Deployed revisions that this gateway can't read, or not all of, by tenant: a secret that they name
        is not set here, or a newer release deployed them. Sources of webhooks that can't be read are closed;
        where it is anything else, the tenant keeps the last revision that could be read."""
        return MappingProxyType(self._unreadable)

    def unserved(self, tenant_id: UUID) -> bool:
        """Whether this tenant has a spec, but none that could be read here: what it declares is not known."""
        return bool(self._unreadable) and tenant_id in self._unreadable and tenant_id not in self._serving

    def would_ask(self, token: str) -> tokens.Token | None:
        """The key, if `authenticate` would ask Postgres for it: this could be one, memory tells neither way,
        and it is not being asked for already."""
        parsed = tokens.parse(token)
        if parsed is None or token in self._asking or self.principal(token) is not None:
            return None
        return parsed if self._clock() >= self._unknown.get(token, float("-inf")) else None

    def has_tenant(self, handle: str) -> bool:
        """Whether a tenant with a spec has this handle, from memory only."""
        return handle in self._handles

    async def authenticate(self, token: str) -> Principal | None:
        """Who this key is, asking Postgres where memory doesn't tell. None: never minted, revoked or expired.

        Raises CatalogUnavailable where Postgres does not answer.
        """
        known = self.principal(token)
        if known is not None or tokens.parse(token) is None:
            return known
        asking = self._asking.get(token)
        if asking is None:  # many connections of one client begin at once: they share what is found
            asking = self._asking[token] = asyncio.create_task(self._ask(token))
            asking.add_done_callback(lambda asked: self._asked(token, asked))
        return await asyncio.shield(asking)

    def _asked(self, token: str, asked: asyncio.Task[Principal | None]) -> None:
        del self._asking[token]
        if not asked.cancelled():
            asked.exception()  # its caller may have gone

    async def _ask(self, token: str) -> Principal | None:
        if not self.fresh:
            await self.refresh()
        while self._clock() >= self._unknown.get(token, float("-inf")):
            asked_at = self._clock()
            row = await self._look_ups.find(tokens.digest(token))
            if row is None:
                self._put_unknown(token, asked_at + UNKNOWN_S)
                break
            if row["revision"] > self._revision:  # a new key may be of a tenant whose spec is new too
                await self.refresh()
            if row["revision"] == self._revision:
                return self._remember(token, row, asked_at)
            # The clock moved while we asked, and if that revoked the key, our cache was not told: ask again.
        return None

    async def redeem(self, ticket: str) -> tuple[str, Principal] | None:
        """The path that a ticket is for, and the principal of its key, as a reader. This uses the ticket up.
        None where there is no such ticket, or its key has ended. Raises CatalogUnavailable."""
        async with self._connection(self._key_pool) as conn:
            row = await tickets.redeem(conn, ticket)
        return None if row is None else (row["path"], replace(_principal_of(row), scope=Scope.READ))

    async def living(self, handles: Collection[str]) -> frozenset[str]:
        """Which of these keys are alive, and no suspended tenant's. Raises CatalogUnavailable."""
        async with self._connection(self._key_pool) as conn:
            rows = await conn.fetch(statement("living_keys"), list(handles))
        return frozenset([row["handle"] for row in rows])

    async def refresh(self) -> None:
        """Follows the clock: forgets keys that changed, loads specs that changed. Call it once a second.

        Raises CatalogUnavailable; what is known stays known until it is stale. A caller that waits while
        another one tries shares its outcome, if that try began after the call.
        """
        asked_at = self._clock()
        async with self._refreshing:
            began_at, error = self._last_try
            if began_at <= asked_at:
                began_at, error = self._last_try = await self._try_refresh()
        if error is not None:
            raise error

    async def close(self) -> None:
        """Writes what was used since, and that this gateway is gone: others need not wait for it."""
        async with self._connection() as conn:
            await self._note_use(conn, float("inf"))
            await conn.execute("DELETE FROM catalog_reader WHERE gateway = $1", self._gateway)

    async def _try_refresh(self) -> tuple[float, CatalogUnavailable | None]:
        began_at = self._clock()
        followed = self._revision
        try:
            async with self._connection() as conn:
                revision = await conn.fetchval("SELECT revision FROM catalog_clock")
                differs = revision != followed or self._serving != self._declared.of
                changes = await self._changes(conn) if differs else None
            # Not within the answer's time: thousands of specs take seconds to compile.
            if changes is not None:
                await self._follow(changes)
            self._stale_at = began_at + STALE_S
            since = self._under_way_since()
            while self._followed and self._followed[0][0] <= followed and self._followed[0][1] < since:
                self._settled, _ = self._followed.popleft()
            async with self._connection() as conn:
                # What is closed for appends is looked at then: the last ones have landed by now.
                await self._report(conn, self._settled, began_at)
                await self._note_use(conn, began_at)
        except CatalogUnavailable as error:
            return began_at, error
        return began_at, None

    async def _changes(self, conn: Any) -> _Changes:
        """What changed since the revision that is known here, in one snapshot."""
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            revision = await conn.fetchval("SELECT revision FROM catalog_clock")
            if revision is None or revision < self._revision:  # restored from a backup: nothing holds
                self._known.clear()
                self._declared.clear()
                self._named.clear()
                self._handles.clear()
                self._followed.clear()
                self._revision = self._settled = -1
            keys = await conn.fetch("SELECT handle FROM api_key WHERE changed > $1", self._revision)
            specs = await conn.fetch(statement("changed_specs"), self._revision)
            closing = await conn.fetch("SELECT tenant, document FROM spec_closing WHERE expires_at > now()")
            resting = await conn.fetch(statement("resting_tenants"))
            gone = await conn.fetch(statement("gone_tenants"), [*self._declared.of, *self._unreadable])
        return _Changes(-1 if revision is None else revision, keys, specs, closing, resting, gone)

    async def _follow(self, changes: _Changes) -> None:
        """Keys first, then what is declared; of this, all counts at once. Keys again, before the revision
        counts: a look-up that saw one as it was may have returned while specs were read."""
        handles = {row["handle"] for row in changes.keys}
        self._forget(handles)
        self._resting = frozenset([_uuid(row["id"]) for row in changes.resting])
        self._forget_tenants({_uuid(row["tenant"]) for row in changes.gone})
        self._serving = await self._declared.follow(changes.specs, changes.closing)
        for row in changes.specs:
            self._named[row["name"]] = Tenant(_uuid(row["tenant"]), row["name"], row["handle"])
            self._handles.add(row["handle"])
        self._forget(handles)
        if changes.revision != self._revision:
            self._followed.append((changes.revision, self._clock()))
        self._revision = changes.revision

    def _forget_tenants(self, gone: set[UUID]) -> None:
        """Those that are deleted: they rest no longer, and what they declared is done by no process."""
        for tenant in [each for each in self._named.values() if each.id in gone]:
            del self._named[tenant.name]
            self._handles.discard(tenant.handle)
        self._declared.forget(gone)

    def _remember(self, token: str, row: Any, asked_at: float) -> Principal:
        principal = _principal_of(row)
        remaining_s = row["remaining_s"]
        until = float("inf") if remaining_s is None else asked_at + remaining_s
        self._known.put(token, Known(principal, until), KEYS_MAX)
        return principal

    def _put_unknown(self, token: str, until: float) -> None:
        if len(self._unknown) >= UNKNOWN_MAX and token not in self._unknown:
            del self._unknown[next(iter(self._unknown))]
        self._unknown[token] = until

    def _forget(self, handles: set[str]) -> None:
        for token in [token for token, key in self._keys.items() if key.principal.handle in handles]:
            self._known.forget(token)

    async def _report(self, conn: Any, revision: int, now: float) -> None:
        reported, reported_at = self._reported
        if revision != reported or now - reported_at >= REPORT_S:
            await conn.execute(statement("report_reader"), self._gateway, revision)
            self._reported = (revision, now)

    async def _note_use(self, conn: Any, now: float) -> None:
        due = [key for key in self._keys.values() if key.used and now - key.noted_at >= USED_S]
        if due:
            await conn.execute(statement("note_use"), [key.principal.handle for key in due], USED_S)
        for key in due:
            key.used, key.noted_at = False, now

    @asynccontextmanager
    async def _connection(self, pool: Database | None = None) -> AsyncIterator[Any]:
        """A connection for `ANSWER_S` in all. Whatever Postgres fails with becomes CatalogUnavailable."""
        with answering():
            try:
                pool = pool or self._pool
                async with asyncio.timeout(ANSWER_S), pool.acquire(timeout=ANSWER_S) as conn:
                    yield conn
            except TimeoutError:
                raise CatalogUnavailable(f"Postgres gave no answer within {ANSWER_S:g} s") from None


def _principal_of(row: Any) -> Principal:
    tenant = Tenant(_uuid(row["tenant_id"]), row["tenant"], row["tenant_handle"])
    only = None if row["narrowed_to"] is None else read_only(row["narrowed_to"])
    assert not isinstance(only, str), only  # as it was made
    return Principal(tenant, Scope[row["scope"].upper()], row["handle"], only)


def _uuid(value: Any) -> UUID:
    """asyncpg's own UUIDs compare equal, but hash at a fifth of the speed. The same object each time: it is
    found in a dictionary without being compared."""
    return tenant_of(value.bytes)
