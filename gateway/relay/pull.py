"""Events for consumers that can't receive requests: claimed, and handed out again unless they are acked.

Owns: consumer groups without members. All consumers of a subscription share its events; while one holds
events of an aggregate, no other consumer gets that aggregate's, so each aggregate is worked off in order.
Each call is one transaction under the lock of the subscription's row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

import asyncpg

from gateway.postgres.shares import turns_at
from gateway.relay import database, subscriptions
from gateway.relay.database import RetryEntry, Subscribed, connection, statement, subscribed
from gateway.relay.named import EventNames
from gateway.relay.outbox import Entry, LostPlace, Outbox, entry_bytes
from gateway.relay.position import Place
from gateway.relay.subscriptions import Subscriptions, tell_disabled, usable
from spec.targets.pull import Pull as Declared

CLAIM_EVENTS_MAX: Final = 1000
CLAIM_BYTES_MAX: Final = 4 * 1024 * 1024
OUT_MAX: Final = 10_000
"""Aggregates that may be out at once: then nothing new is handed out. Parked ones are not out."""

STRETCHES_MAX: Final = 10
"""Looks at the outbox that one claim takes. Where all is filtered out, or another consumer's, the next claim
continues from there."""

STRETCH_EVENTS: Final = 1000
"""Of the looks behind the first, which asks for no more than the claim has room for."""

CALLS_AT_ONCE: Final = 3
"""Claims and acks of all tenants that have a connection: as many are left to those that deliver. Those of one
tenant are one fewer."""

AGAIN_EVENTS: Final = 20
"""Read at a time of an aggregate that is handed out again: bounds memory, where events are large."""

Aggregate = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """`events` are JSON, each aggregate's in order; `id` acks them all. None where there are none."""

    id: UUID | None
    events: tuple[bytes, ...]
    lease_s: float


@dataclass(frozen=True, slots=True)
class NotPulled:
    """There is no such subscription, or its events are sent."""

    why: str
    found: bool


@dataclass(frozen=True, slots=True)
class _Handed:
    """A claim whose events are not JSON yet."""

    of: Subscribed
    claim: UUID | None
    entries: tuple[Entry, ...]
    lease_s: float


class Pull:
    """Leases go by Postgres' clock: gateways' own may differ. Every method raises PostgresTrouble."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        outbox: Outbox,
        subscriptions: Subscriptions,
        names: EventNames,
    ) -> None:
        self._pool = pool
        self._outbox = outbox
        self._subscriptions = subscriptions
        self._names = names
        self._room = turns_at(CALLS_AT_ONCE)
        self._turns: WeakValueDictionary[tuple[UUID, str], asyncio.Lock] = WeakValueDictionary()

    async def claim(
        self,
        tenant: UUID,
        name: str,
        limit: int,
        lease_s: float | None = None,
        aliases: bool | None = None,
        *,
        keyless: bool | None = None,
    ) -> Claim | NotPulled:
        """Up to `limit` events: first those whose lease is over, then new ones; with aliases, and
        without keys, as asked here, else as the subscription says."""
        handed = await self._handed(tenant, name, limit, lease_s)
        if isinstance(handed, NotPulled):
            return handed
        of = handed.of if aliases is None else replace(handed.of, aliases=aliases, keyless=False)
        of = of if keyless is None else replace(of, keyless=keyless)
        events = tuple([each.body for each in await self._names.outgoing(of, handed.entries)])
        return Claim(handed.claim if events else None, events, handed.lease_s)

    async def _handed(
        self, tenant: UUID, name: str, limit: int, lease_s: float | None
    ) -> _Handed | NotPulled:
        """What a claim has, committed."""
        await self._subscriptions.declare(tenant)
        async with self._turn(tenant, name) as conn:
            found = await self._locked(conn, tenant, name)
            if isinstance(found, NotPulled):
                return found
            of, declared = found
            lasting = lease_s or declared.lease_s
            if of.state != "active":
                return _Handed(of, None, (), lasting)
            handing = _Handing(
                conn, of, uuid4(), await database.now(conn), lasting, declared.attempts_max, limit
            )
            waiting = {each.aggregate: each for each in await database.stragglers(conn, of.id)}
            await handing.again(waiting)
            try:
                place = await self._ahead(of, handing, waiting)
            except LostPlace as lost:
                why = subscriptions.position_lost(lost)
                await _disable(conn, of, why, subscriptions.POSITION_LOST)
                return _Handed(of, None, (), lasting)
            handing.hand_new()
            await database.end_stragglers(conn, of.id, handing.ended)
            await database.note_stragglers(conn, of.id, list(handing.noted.values()))
            if place != of.place or handing.noted or handing.ended:
                await conn.execute(statement("advance"), of.id, place.seq, place.mark)
            if handing.parked and len(_parked({**waiting, **handing.noted})) >= subscriptions.PARKED_MAX:
                await _disable(conn, replace(of, place=place), subscriptions.too_many_parked())
            return _Handed(of, handing.claim, tuple(handing.entries), lasting)

    async def _ahead(
        self, of: Subscribed, handing: _Handing, waiting: Mapping[Aggregate, RetryEntry]
    ) -> Place:
        """Hands out what lies ahead of the cursor, and returns how far that leads. Raises LostPlace."""
        place = of.place
        out = sum(each.state != "parked" for each in waiting.values())
        for wanted in (handing.left, *(STRETCH_EVENTS for _ in range(STRETCHES_MAX - 1))):
            if handing.full or out + len(handing.noted) >= OUT_MAX:
                break
            stretch = await self._outbox.stretch(of.p, of.filter, place, wanted, CLAIM_BYTES_MAX)
            done = handing.new(stretch.entries, waiting)
            if done < len(stretch.entries):
                return stretch.entries[done - 1].place if done else place
            place = stretch.reached
            if stretch.caught_up:
                break
        return place

    async def ack(
        self, tenant: UUID, name: str, claims: Sequence[UUID], event_ids: Sequence[UUID]
    ) -> int | NotPulled:
        """Returns the number of aggregates that continue: all of a claim, or those whose events are named, up
        to the first that is not. Events whose lease has ended are skipped: another consumer may have them."""
        await self._subscriptions.declare(tenant)
        async with self._turn(tenant, name) as conn:
            found = await self._locked(conn, tenant, name)
            if isinstance(found, NotPulled):
                return found
            of, _ = found
            acked = {each.bytes for each in event_ids}
            whole = {each.bytes for each in claims}
            held = [each for each in await database.stragglers(conn, of.id) if each.state == "claimed"]
            done = 0
            for straggler in held:
                to = straggler.claimed_to if straggler.claim in whole else None
                if to is None:
                    to = await _acked_to(conn, of, straggler, acked)
                if to is not None:
                    await self._went_on(conn, of, straggler, to)
                    done += 1
            if done:
                await conn.execute(statement("confirmed"), of.id)
            return done

    @asynccontextmanager
    async def _turn(self, tenant: UUID, name: str) -> AsyncIterator[Any]:
        """A transaction. Calls of one subscription wait for each other here: before the lock of its row, each
        would hold a connection."""
        turn = self._turns.setdefault((tenant, name), asyncio.Lock())
        async with turn, self._room.of(tenant.bytes), connection(self._pool) as conn, conn.transaction():
            yield conn

    async def _went_on(self, conn: Any, of: Subscribed, straggler: RetryEntry, to: int) -> None:
        following = await database.next_of_aggregate(conn, of, straggler.aggregate, to + 1, of.place.seq, 1)
        if not following:
            await database.end_stragglers(conn, of.id, [straggler.aggregate])
            return
        recorded, now = following[0].recorded, await database.now(conn)
        rest = replace(straggler, version=recorded.version, event_id=recorded.event.id, attempts=1, since=now)
        if straggler.claimed_to is None or to >= straggler.claimed_to:
            rest = replace(rest, state="retrying", attempts=0, due_at=now, claim=None, claimed_to=None)
        await database.note_stragglers(conn, of.id, [rest])

    async def _locked(self, conn: Any, tenant: UUID, name: str) -> tuple[Subscribed, Declared] | NotPulled:
        row = await conn.fetchrow(statement("find") + " FOR UPDATE", tenant, name)
        if row is None:
            return NotPulled(f"There is no subscription {name!r}.", False)
        of = subscribed(row)
        read = usable(of, {})
        if of.kind != "pull" or not hasattr(read, "target") or not isinstance(read.target, Declared):
            return NotPulled(f"A {of.kind} subscription sends its events; they can't be claimed.", True)
        return of, read.target


class _Handing:
    """One claim in the making."""

    def __init__(
        self,
        conn: Any,
        of: Subscribed,
        claim: UUID,
        now: float,
        lease_s: float,
        attempts_max: int,
        limit: int,
    ) -> None:
        self._conn = conn
        self._of = of
        self._now = now
        self._due_at = now + lease_s
        self._attempts_max = attempts_max
        self.claim = claim
        self.left = limit
        self._bytes_left = CLAIM_BYTES_MAX
        self._new: dict[Aggregate, list[Entry]] = {}
        self.entries: list[Entry] = []
        self.noted: dict[Aggregate, RetryEntry] = {}
        self.ended: list[Aggregate] = []
        self.parked = False  # an aggregate, by this claim

    @property
    def full(self) -> bool:
        """An event that is larger than a claim comes by itself."""
        return self.left <= 0 or self._bytes_left <= 0

    async def again(self, waiting: dict[Aggregate, RetryEntry]) -> None:
        """What was handed out and not acked, and what came behind it meanwhile. An aggregate that has nothing
        left, as where its last event was skipped, waits no more, and is taken out of `waiting`."""
        due = [each for each in waiting.values() if each.state != "parked" and each.due_at <= self._now]
        for straggler in sorted(due, key=lambda each: each.since):
            if self.full:
                return
            if straggler.attempts >= self._attempts_max:
                why = f"The event was claimed {straggler.attempts} times and never acked."
                self._note(replace(straggler, state="parked", error=why, claim=None, claimed_to=None))
                self.parked = True
                continue
            entries = await self._behind(straggler)
            if entries:
                self._hand(straggler.aggregate, entries, straggler.attempts + 1, straggler.since)
            else:
                del waiting[straggler.aggregate]
                self.ended.append(straggler.aggregate)

    async def _behind(self, straggler: RetryEntry) -> list[Entry]:
        """What the claim has room for of an aggregate, from where it waits on."""
        entries: list[Entry] = []
        version = straggler.version
        while not self.full:
            wanted = min(self.left, AGAIN_EVENTS)
            found = await database.next_of_aggregate(
                self._conn, self._of, straggler.aggregate, version, self._of.place.seq, wanted
            )
            for entry in found:
                if not self.full:
                    self._take(entry)
                    entries.append(entry)
            if len(found) < wanted:
                break
            version = found[-1].recorded.version + 1
        return entries

    def new(self, entries: Sequence[Entry], waiting: Mapping[Aggregate, RetryEntry]) -> int:
        """Takes what no consumer has had yet, up to where the claim is full; an aggregate that is out already
        is left to its consumer. Returns how many are done with, taken or left."""
        for count, entry in enumerate(entries):
            stream = entry.recorded.stream
            aggregate = stream.aggregate_type, stream.key
            if aggregate not in waiting and aggregate not in self.noted:
                if self.full:
                    return count
                self._take(entry)
                self._new.setdefault(aggregate, []).append(entry)
        return len(entries)

    def hand_new(self) -> None:
        for aggregate, lane in self._new.items():
            self._hand(aggregate, lane, 1, self._now)

    def _take(self, entry: Entry) -> None:
        self.left -= 1
        self._bytes_left -= entry_bytes(entry)

    def _hand(self, aggregate: Aggregate, entries: Sequence[Entry], attempts: int, since: float) -> None:
        first, last = entries[0].recorded, entries[-1].recorded
        self.entries += entries
        self._note(
            RetryEntry(
                *aggregate, first.version, first.event.id, "claimed", attempts, self._due_at, since, None,
                self.claim.bytes, last.version,
            )
        )  # fmt: skip

    def _note(self, straggler: RetryEntry) -> None:
        self.noted[straggler.aggregate] = straggler


def _parked(waiting: Mapping[Aggregate, RetryEntry]) -> list[Aggregate]:
    return [aggregate for aggregate, straggler in waiting.items() if straggler.state == "parked"]


async def _disable(conn: Any, of: Subscribed, why: str, code: str | None = None) -> None:
    await conn.execute(
        statement("hand_over"), of.id, of.place.seq, of.place.mark, "disabled", why, code, None
    )
    tell_disabled(of, why)


async def _acked_to(conn: Any, of: Subscribed, straggler: RetryEntry, acked: set[bytes]) -> int | None:
    """The version up to which the aggregate's events are among the acked ones; None: not even the first."""
    if straggler.event_id not in acked:
        return None
    last = straggler.claimed_to or straggler.version
    most = min(last - straggler.version + 1, CLAIM_EVENTS_MAX)  # so no more bytes than were claimed
    entries = await database.next_of_aggregate(
        conn, of, straggler.aggregate, straggler.version, of.place.seq, most
    )
    to = straggler.version
    for entry in entries:
        if entry.recorded.event.id not in acked or entry.recorded.version > last:
            break
        to = entry.recorded.version
    return to
