"""Subscriptions as their owners use them: put, shown, ended, paused, replayed. What a spec declares and what
was PUT stand in one table.

Owns: that no secret is ever shown, and which declarations are brought into the table. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from gateway.catalog import specs
from gateway.catalog.secrets import SecretsOf
from gateway.relay.database import Subscribed, connection, fetch, name_of, statement, subscribed
from gateway.relay.documents import start_of, with_secrets_of, without_nulls, without_secrets
from gateway.relay.outbox import LostPlace, Outbox
from gateway.relay.position import START, encode
from gateway.relay.standing import Standing, standings_of
from gateway.relay.subscription_rows import (
    NO_POSITION,
    SUBSCRIPTIONS_MAX,
    Declared,
    NoPosition,
    Put,
    SubscriptionRows,
    TooMany,
    Wanted,
)
from spec.errors import Fault, Faults, Report, below
from spec.model import Spec
from spec.parse import parse_deployed
from spec.subscriptions import (
    PermissiveEnviron,
    Subscription,
    check_declared,
    read_subscription,
)
from spec.webhooks.sources import RedactedEnviron

logger = logging.getLogger("sluice.relay")

SPECS_AT_ONCE: Final = 100
"""Specs whose subscriptions are declared at a call: each is parsed."""

UNREADABLE_MAX: Final = 10_000
"""Revisions that are remembered as such that can't be read; beyond it, all are read and told of again."""

NO_TENANT: Final = UUID(int=0)
_UNSEEN: Final = RedactedEnviron()

POSITION_LOST: Final = "position_lost"
"""The `why_code` of a subscription that LostPlace disabled: `sluice repair` finds it by this."""

PARKED_MAX: Final = 20_000
"""Aggregates of a subscription that are parked: a relay holds each, some 0.7 KB. With so many it is disabled,
and says so: a receiver that refuses thousands is not one bad event."""


class Subscriptions:
    """Every method raises PostgresTrouble. `secrets_of` has the secrets that documents name."""

    def __init__(
        self, pool: asyncpg.Pool, outbox: Outbox, secrets_of: SecretsOf, *, allow_private: bool
    ) -> None:
        self._pool = pool
        self._rows = SubscriptionRows(outbox)
        self._secrets_of, self._allow_private = secrets_of, allow_private
        self._declared_after = NO_TENANT
        self._unreadable: set[tuple[str, int]] = set()

    async def put(
        self, tenant: UUID, name: str, document: dict[str, Any]
    ) -> Put | Declared | TooMany | NoPosition | Faults:
        """Makes it, or changes it: its cursor and what waits stay, unless `start` is another than before. A
        secret that reads `***` is the one that it has."""
        while True:  # others may give it another secret meanwhile: each turn, one call is done
            done = await self._put(tenant, name, document)
            if done is not None:
                return done

    async def _put(
        self, tenant: UUID, name: str, document: dict[str, Any]
    ) -> Put | Declared | TooMany | NoPosition | Faults | None:
        """None where it was changed since its secrets were read."""
        before = await self.found(tenant, name)
        if before is not None and before.declared:
            return Declared()
        document = without_nulls(document)
        if before is not None:
            document = with_secrets_of(document, before.document)
        report = Report()
        environ = PermissiveEnviron(
            self._secrets_of(await name_of(self._pool, tenant.bytes)), self._allow_private
        )
        read = read_subscription(document, "", environ, report)
        if read is None:
            return report.faults()
        wanted = Wanted(name, False, read, document, None if before is None else before.document)
        try:
            async with connection(self._pool) as conn, conn.transaction():
                done = await self._rows.write(conn, tenant, wanted)
                if isinstance(done, Put):
                    (shown,) = await _every(conn, tenant, name)
                    return Put(done.created, shown)
                return done
        except LostPlace as lost:
            return NoPosition(str(lost))

    async def undeclared(self, tenant: UUID, document: dict[str, Any]) -> Faults | None:
        """The names of a document's filter that the tenant's spec does not declare. What else is wrong in it,
        `put` tells."""
        async with connection(self._pool) as conn:
            stored = await specs.stored(conn, tenant)
        spec = None if stored is None else await asyncio.to_thread(parse_deployed, stored.document)
        read, report = read_subscription(without_nulls(document), "", _UNSEEN, Report()), Report()
        if isinstance(spec, Spec) and read is not None:
            types = {name: each.events for name, each in spec.aggregate_types.items()}
            check_declared(read.filter, "/filter", types, spec.tag_prefixes, report)
        return report.faults() if len(report) else None

    async def shown(self, tenant: UUID, name: str) -> dict[str, Any] | None:
        """Document and standing, as they may be shown; None where there is none."""
        return next(iter(await self.every(tenant, name)), None)

    async def every(self, tenant: UUID, name: str | None = None) -> list[dict[str, Any]]:
        await self.declare(tenant)
        async with connection(self._pool) as conn:
            return await _every(conn, tenant, name)

    async def end(self, tenant: UUID, name: str) -> bool | Declared:
        """Whether there was one."""
        found = await self.found(tenant, name)
        if found is None or found.declared:
            return False if found is None else Declared()
        async with connection(self._pool) as conn:
            done = await conn.execute("DELETE FROM subscription WHERE id = $1 AND NOT declared", found.id)
        return bool(done == "DELETE 1")

    async def pause(self, tenant: UUID, name: str) -> bool:
        return await self._set_state(tenant, name, "paused")

    async def resume(self, tenant: UUID, name: str) -> bool:
        """Also one that was disabled."""
        return await self._set_state(tenant, name, "active")

    async def replay(self, tenant: UUID, name: str, event_id: UUID | None = None) -> int | None:
        """The number of parked events that are tried again, each with the later events of its aggregate;
        None: no such subscription."""
        found = await self.found(tenant, name)
        if found is None:
            return None
        async with connection(self._pool) as conn, conn.transaction():
            done: str = await conn.execute(statement("replay"), found.id, event_id)
            await self._touch(conn, found.id)
        return int(done.rpartition(" ")[2])

    async def skip(self, tenant: UUID, name: str, event_id: UUID) -> bool | None:
        """Skips a parked event: its aggregate continues after it. Returns whether it was parked; None: no
        such subscription."""
        found = await self.found(tenant, name)
        if found is None:
            return None
        async with connection(self._pool) as conn, conn.transaction():
            row = await conn.fetchrow(statement("parked"), found.id, event_id)
            if row is None:
                return False
            await conn.execute(statement("skip"), found.id, event_id)
            await conn.execute(statement("fails_no_longer"), found.id)
            await self._touch(conn, found.id)
        return True

    async def waiting(self, tenant: UUID, name: str, state: str | None, limit: int) -> list[Any] | None:
        """The waiting events, oldest first: those that are tried again or parked."""
        found = await self.found(tenant, name)
        if found is None:
            return None
        rows = await fetch(self._pool, "waiting", found.id, state, limit)
        return [
            {
                "event_id": str(row["event"]),
                "aggregate_type": row["aggregate_type"],
                "key": row["aggregate_id"],
                "version": row["version"],
                "state": row["state"],
                "attempts": row["attempts"],
                "since": row["since"].timestamp(),
                "due_at": None if row["state"] == "parked" else row["due_at"].timestamp(),
                "error": row["error"],
            }
            for row in rows
        ]

    async def attempts(
        self, tenant: UUID, name: str, event_id: UUID | None, limit: int
    ) -> list[dict[str, Any]] | None:
        """The attempts, newest first."""
        found = await self.found(tenant, name)
        if found is None:
            return None
        rows = await fetch(self._pool, "attempts", found.id, event_id, limit)
        return [
            {
                "event_id": str(row["event"]),
                "attempt": row["attempt"],
                "at": row["at"].timestamp(),
                "took_ms": row["took_ms"],
                "outcome": row["outcome"],
                "status": row["status"],
                "error": row["error"],
                "response": row["response"].decode("utf-8", "replace"),
            }
            for row in rows
        ]

    async def undeclarable(self, tenant: UUID, spec: Spec, pointer: str) -> Faults | None:
        """What keeps the subscriptions of a spec from being declared as things are, with pointers below the
        one given; None where nothing does."""
        report, part = Report(), below(pointer, "subscriptions")
        there = {each.name: each for each in map(subscribed, await fetch(self._pool, "every", tenant))}
        put = [each.name for each in there.values() if not each.declared]
        if len({*put, *spec.subscriptions}) > SUBSCRIPTIONS_MAX:
            report.add("invalid_value", part, f"A tenant has at most {SUBSCRIPTIONS_MAX} subscriptions.")
            return report.faults()
        for name, each in spec.subscriptions.items():
            if name not in there or start_of(there[name].document) != each.start:
                why = await self._unplaced(tenant, each.start)
                if why is not None:
                    report.add("invalid_value", below(part, name, "start"), why)
        return report.faults() if len(report) else None

    async def _unplaced(self, tenant: UUID, start: str) -> str | None:
        """Why it can't begin there; None if it can."""
        try:
            return NO_POSITION if await self._rows.place(tenant, start) is None else None
        except LostPlace as lost:
            return str(lost)

    async def declare(self, tenant: UUID | None = None) -> bool:
        """Brings what deployed specs declare into the table, of all tenants or of one; whether there may be
        more. Secrets are not asked for: who delivers a subscription says which of its own are not there. Of
        all tenants, so many at a call, and the next ones at the next: specs that can't be read here keep no
        others waiting."""
        after = self._declared_after if tenant is None else NO_TENANT
        rows = await fetch(self._pool, "undeclared_specs", tenant, after, SPECS_AT_ONCE)
        if tenant is None:
            self._declared_after = rows[-1]["tenant"] if len(rows) == SPECS_AT_ONCE else NO_TENANT
        for row in rows:
            if (str(row["tenant"]), row["revision"]) in self._unreadable:
                continue
            spec = await asyncio.to_thread(parse_deployed, row["document"])
            if isinstance(spec, Faults):
                self._note_unreadable(row, spec[0])
                continue
            document = msgspec.json.decode(row["document"])
            declared = document.get("spec", document).get("subscriptions", {})
            wanted = [Wanted(name, True, each, declared[name]) for name, each in spec.subscriptions.items()]
            await self._declare(UUID(bytes=row["tenant"].bytes), row["revision"], wanted)
        return len(rows) == SPECS_AT_ONCE

    def _note_unreadable(self, row: Any, fault: Fault) -> None:
        """Mostly, a newer release deployed it: this one does not read it again."""
        if len(self._unreadable) >= UNREADABLE_MAX:
            self._unreadable.clear()
        tenant, revision = str(row["tenant"]), row["revision"]
        self._unreadable.add((tenant, revision))
        why = f"Revision {revision} of the spec can't be read here: {fault.pointer}: {fault.error}"
        logger.error("subscription_unusable", extra={"tenant": tenant, "subscription": "*", "reason": why})

    async def _declare(self, tenant: UUID, revision: int, wanted: Sequence[Wanted]) -> None:
        names = [each.name for each in wanted]
        async with connection(self._pool) as conn, conn.transaction():
            if await conn.fetchval(statement("note_spec"), tenant, revision) is None:
                return
            await conn.execute(statement("end_undeclared"), tenant, names)
            for each in wanted:
                try:
                    done = await self._rows.write(conn, tenant, each)
                except LostPlace as lost:
                    done = NoPosition(str(lost))
                if not isinstance(done, Put):
                    why = f"More than {SUBSCRIPTIONS_MAX}." if isinstance(done, TooMany) else str(done)
                    told = {"tenant": str(tenant), "subscription": each.name, "reason": why}
                    logger.error("subscription_unusable", extra=told)

    async def found(self, tenant: UUID, name: str) -> Subscribed | None:
        await self.declare(tenant)
        rows = await fetch(self._pool, "find", tenant, name)
        return subscribed(rows[0]) if rows else None

    async def _set_state(self, tenant: UUID, name: str, state: str) -> bool:
        found = await self.found(tenant, name)
        if found is not None:
            await fetch(self._pool, "set_state", found.id, state)
        return found is not None

    async def _touch(self, conn: Any, subscription: int) -> None:
        """The relay that delivers starts again from what is written now."""
        await conn.execute(statement("touch"), subscription)


async def _every(conn: Any, tenant: UUID, name: str | None) -> list[dict[str, Any]]:
    """All of a tenant, or one: then nothing is read of the others."""
    rows = await (
        conn.fetch(statement("every"), tenant)
        if name is None
        else conn.fetch(statement("find"), tenant, name)
    )
    standings = {each.name: each for each in await standings_of(conn, tenant, name)}
    return [_shown(each, standings[each.name]) for each in map(subscribed, rows) if each.name in standings]


def position_lost(lost: LostPlace) -> str:
    return f"Its position is lost: {lost}"


def too_many_parked() -> str:
    return f"{PARKED_MAX} aggregates are parked: replay or skip them, then resume."


def tell_disabled(of: Subscribed, why: str) -> None:
    told = {"subscription": of.name, "tenant": str(UUID(bytes=of.tenant)), "reason": why}
    logger.error("subscription_disabled", extra=told)


def usable(of: Subscribed, environ: Mapping[str, str]) -> Subscription | Fault:
    """What its document says; the first fault where it can't be used here, as where a secret is not set."""
    report = Report()
    read = read_subscription(msgspec.json.decode(of.document), "", PermissiveEnviron(environ), report)
    return report.faults()[0] if read is None else read


def _shown(of: Subscribed, stands: Standing) -> dict[str, Any]:
    document = msgspec.json.decode(of.document)
    return {
        "name": of.name,
        "aliases": of.aliases,
        "keys": "alias" if of.keyless else None,
        "filter": document.get("filter", {}),
        "start": document.get("start", "now"),
        "target": without_secrets(document["target"]),
        "declared": of.declared,
        "state": of.state,
        "why": of.why,
        "position": encode(START.moved(of.p, of.place)),
        "lag_events": stands.lag_events,
        "lag_s": round(stands.lag_s, 3),
        "retrying": stands.retrying,
        "claimed": stands.claimed,
        "parked": stands.parked,
        "failing_since": of.failing_since,
        "confirmed_at": of.confirmed_at,
    }
