"""Rows of subscriptions: made, and changed to what a PUT or a spec says.

Owns: what a change does to the cursor and to what waits. Must not know secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.relay.database import Subscribed, statement, subscribed
from gateway.relay.documents import kept, start_of
from gateway.relay.outbox import Filter, Outbox
from gateway.relay.position import START, Place, Position, decode
from spec.subscriptions import (
    Subscription,
)
from spec.targets.table import kind_of

SUBSCRIPTIONS_MAX: Final = 200
"""Of a tenant: each holds a cursor, a lease and connections."""

NO_POSITION: Final = 'Send "beginning", "now", or a position of the feed.'


@dataclass(frozen=True, slots=True)
class Put:
    """It is so now; `created` where there was none. `shown` is document and standing, without secrets."""

    created: bool
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declared:
    """Not done: the spec declares it, and only the spec changes it."""


@dataclass(frozen=True, slots=True)
class TooMany:
    """Not done: the tenant has SUBSCRIPTIONS_MAX of them."""


@dataclass(frozen=True, slots=True)
class NoPosition:
    """Not done: `start` is no position of this tenant's feed."""

    why: str


@dataclass(frozen=True, slots=True)
class Wanted:
    name: str
    declared: bool
    subscription: Subscription
    document: dict[str, Any] = field(repr=False)
    over: bytes | None = field(default=None, repr=False)
    """The document that its secrets may have been taken from."""


class SubscriptionRows:
    """Every method raises PostgresTrouble; those with `conn` work in its transaction."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def write(
        self, conn: Any, tenant: UUID, wanted: Wanted
    ) -> Put | Declared | TooMany | NoPosition | None:
        """None where it is not written `over` what is there by now. Raises LostPlace."""
        while True:  # others may make it and end it meanwhile: each turn, one call is done
            before = await _locked(conn, tenant, wanted.name)
            if before is not None:
                return await self._change(conn, tenant, wanted, before)
            made = await self._make(conn, tenant, wanted)
            if made is not None:
                return made
            count = await conn.fetchval("SELECT count(*) FROM subscription WHERE tenant = $1", tenant)
            if count >= SUBSCRIPTIONS_MAX:
                return TooMany()

    async def _make(self, conn: Any, tenant: UUID, wanted: Wanted) -> Put | NoPosition | None:
        """None where there is one by now, or there are too many."""
        place = await self.place(tenant, wanted.subscription.start)
        if place is None:
            return NoPosition(NO_POSITION)
        made = await conn.fetchval(
            statement("create"), tenant, wanted.name, _kind(wanted), wanted.declared, kept(wanted.document),
            *_filtered(wanted), self._outbox.partition(tenant.bytes), place.seq, place.mark,
            SUBSCRIPTIONS_MAX,
        )  # fmt: skip
        return None if made is None else Put(created=True)

    async def _change(
        self, conn: Any, tenant: UUID, wanted: Wanted, before: Subscribed
    ) -> Put | Declared | NoPosition | None:
        """One that names no `start` keeps the one before. What says the same as before changes nothing, but
        that a PUT lets one that was disabled go on."""
        if before.declared and not wanted.declared:
            return Declared()  # since just now
        if wanted.over not in (None, before.document):
            return None
        started = start_of(before.document)
        start = wanted.document.get("start", started)
        document = {**wanted.document, "start": start}
        stands = {**msgspec.json.decode(before.document), "start": started}
        same = (document, wanted.declared) == (stands, before.declared)
        if same and (wanted.declared or before.state != "disabled"):
            return Put(created=False)
        begins = start != started
        place = await self.place(tenant, start) if begins else before.place
        if place is None:
            return NoPosition(NO_POSITION)
        await conn.execute(
            statement("change"), before.id, _kind(wanted), wanted.declared,
            kept(document), *_filtered(wanted), place.seq, place.mark,
        )  # fmt: skip
        if begins:  # again: what waited lies before its start, or comes again
            await conn.execute("DELETE FROM straggler WHERE subscription = $1", before.id)
        elif _kind(wanted) != before.kind:
            await conn.execute(statement("give_over"), before.id)
        return Put(created=False)

    async def place(self, tenant: UUID, start: str) -> Place | None:
        """Where `start` is. Raises LostPlace where that is no position."""
        p = self._outbox.partition(tenant.bytes)
        if start == "now":
            return (await self._outbox.end(tenant.bytes)).at(p)
        position: Position | None = START if start == "beginning" else decode(start)
        if position is None:
            return None
        await self._outbox.page(Filter(tenant.bytes), position, 1)  # is it a place of this outbox?
        return position.at(p)


def _kind(wanted: Wanted) -> str:
    return kind_of(wanted.subscription.target)


def _filtered(wanted: Wanted) -> Iterator[list[str] | None]:
    """Both lists of a filter as columns; None is any."""
    for each in (wanted.subscription.filter.types, wanted.subscription.filter.event_types):
        yield None if each is None else [*each]


async def _locked(conn: Any, tenant: UUID, name: str) -> Subscribed | None:
    row = await conn.fetchrow(statement("find") + " FOR UPDATE", tenant, name)
    return None if row is None else subscribed(row)
