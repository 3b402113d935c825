"""Deliveries become events by the spec of today, as they come and as they are replayed.

A delivery that is an event already stays that event. Must not know how a sender is answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import asyncpg
import msgspec
from uuid_utils import uuid7

from gateway.admit.append import EventContext
from gateway.aggregates.records import Records
from gateway.appends import Append, Appended
from gateway.aside import Aside
from gateway.inbound import normalize, store
from gateway.inbound.deliveries import Delivery, Unreadable, deliveries
from gateway.inbound.foreign import led
from gateway.inbound.normalize import Foreign, Named, Quarantine
from gateway.inbound.receipts import Place
from gateway.inbound.results import (
    BEING_REMOVED,
    IGNORED,
    OTHER_BYTES,
    STORAGE_FULL,
    Deferred,
    Told,
    judged,
)
from gateway.inbound.store import Stored
from gateway.log.log import Log
from gateway.names.aliases import Alias
from gateway.outcomes import Mismatch
from spec.errors import shown

KeyOf = Callable[[bytes, Alias, str], Awaitable[str | None]]
"""(tenant, alias, aggregate type) to the key of the aggregate that has this alias; None where none has it.
Raises PostgresTrouble."""


class DeliveryAppends:
    def __init__(
        self,
        log: Log,
        records: Records,
        key_of: KeyOf,
        pool: asyncpg.Pool,
        aside: Aside,
        schema_work_max: int,
    ) -> None:
        self._log, self._records, self._key_of = log, records, key_of
        self._pool, self._aside, self._schema_work_max = pool, aside, schema_work_max

    async def append_all(
        self, place: Place, found: Sequence[Delivery], headers: dict[str, str]
    ) -> list[Appended | Quarantine | Deferred]:
        """All are handed to the log in their order before the first is awaited."""
        appends = await self._normalized(place, found, headers)
        if self._log.storage.refusal(place.tenant_id) is not None:
            return [await self._unless_committed(place, each, STORAGE_FULL) for each in found]
        waiting = [each if isinstance(each, Quarantine) else self._records.append(each) for each in appends]
        outcomes: list[Appended | Quarantine | Deferred] = []
        for delivery, settling in zip(found, waiting, strict=True):
            if isinstance(settling, Quarantine):
                outcomes.append(await self._unless_committed(place, delivery, _held(place, settling)))
            else:
                outcomes.append(judged(await asyncio.shield(settling)))
        return outcomes

    async def _normalized(
        self, place: Place, found: Sequence[Delivery], headers: dict[str, str], claimed: str | None = None
    ) -> list[Append | Quarantine]:
        """The appends that deliveries become by the spec of today. Raises
        PostgresTrouble."""
        now_ms = time.time_ns() // 1_000_000
        places = [normalize.place(place.plan, delivery, headers) for delivery in found]
        foreign = await led(self._pool, place.tenant, {each for each in places if isinstance(each, Foreign)})
        named = await self._named(place.tenant_id, {each for each in places if isinstance(each, Named)})
        newest = foreign.newest

        def composed() -> list[Append | Quarantine]:
            appends: list[Append | Quarantine] = []
            for delivery, where in zip(found, places, strict=True):
                if isinstance(where, Named):
                    where = named[where]
                key = foreign.keys[where] if isinstance(where, Foreign) else where
                if isinstance(key, Quarantine):
                    appends.append(key)
                    continue
                if not isinstance(where, Foreign):
                    appends.append(self.compose(place, delivery, headers, key, now_ms, claimed))
                    continue
                record = normalize.Record(where.source_id, newest.get(where), where.scope)
                append = self.compose(place, delivery, headers, key, now_ms, claimed, record)
                if isinstance(append, Append) and place.plan.records:
                    append = msgspec.structs.replace(append, source=where.names)
                appends.append(append)
                if isinstance(append, Append):  # the next of its source id follows it
                    newest[where] = append.events[0].extra or b""
            return appends

        if normalize.are_light(place.plan, [delivery.raw for delivery in found]):
            return composed()
        return await self._aside.run(place.tenant_id, composed)

    async def _named(self, tenant: bytes, wanted: Iterable[Named]) -> dict[Named, str | Quarantine]:
        """The keys that aliases name, each asked for once. Raises PostgresTrouble."""
        keys: dict[Named, str | Quarantine] = {}
        for each in wanted:
            key = await self._key_of(tenant, each.alias, each.aggregate_type)
            why = f"There is no {each.aggregate_type} with the alias {shown(each.alias.text)}."
            keys[each] = Quarantine("unknown_alias", why) if key is None else key
        return keys

    def compose(
        self,
        place: Place,
        delivery: Delivery,
        headers: dict[str, str],
        key: str,
        now_ms: int,
        claimed: str | None = None,
        record: normalize.Record | None = None,
    ) -> Append | Quarantine:
        tenant, revision = place.tenant_id, place.deployed.revision
        minting = EventContext(
            tenant, revision, now_ms, uuid7().bytes, _mint, 0, self._schema_work_max, salt=place.deployed.salt
        )
        return normalize.compose(place.plan, delivery, headers, key, minting, claimed, record)

    async def _unless_committed(
        self, place: Place, delivery: Delivery, otherwise: Quarantine | Deferred
    ) -> Appended | Quarantine | Deferred:
        """A delivery that an earlier spec made an event of is that event, whatever today's says, and however
        much is stored. Raises PostgresTrouble."""
        settled = await self._log.settled(delivery.retry(place.tenant_id, place.source.name))
        match settled:
            case Appended():
                return settled
            case Mismatch():
                return OTHER_BYTES
        return otherwise

    async def replay(
        self, place: Place, stored: Stored, *, again: bool = False
    ) -> Told | Quarantine | Deferred:
        """Appends a stored delivery by the spec of today. What is an event already stays that event, unless
        `again` asks for another one. Raises PostgresTrouble, Busy."""
        if stored.verdict == "batch":
            return Quarantine("batch", "This is the request of a batch: replay its deliveries.")
        if stored.request is None:
            return Quarantine("not_found", "The request is no longer stored.")
        reading = partial(deliveries, place.source, stored.request)
        light = normalize.are_light(place.plan, (stored.request.body,))
        found = reading() if light else await self._aside.run(place.tenant_id, reading)
        if isinstance(found, Unreadable):
            return Quarantine(found.code, found.error)
        if stored.item >= len(found):
            return Quarantine(
                "not_found",
                f"By this spec the request has {len(found)} items; this was number {stored.item}.",
            )
        delivery = found[stored.item]
        claimed = f"{delivery.id}#{uuid7()}" if again else None
        headers = stored.request.shown(place.source.headers)
        if place.source.target.selects and normalize.ignored(place.plan, [delivery], headers)[0]:
            if stored.verdict == "quarantined":
                await store.discard(self._pool, place.tenant_id, [stored.id])
            return IGNORED
        (append,) = await self._normalized(place, [delivery], headers, claimed)
        outcome: Appended | Quarantine | Deferred
        if self._log.storage.refusal(place.tenant_id) is not None:
            outcome = STORAGE_FULL if again else await self._unless_committed(place, delivery, STORAGE_FULL)
        elif isinstance(append, Quarantine):
            outcome = await self._unless_committed(place, delivery, _held(place, append))
        else:
            outcome = judged(await asyncio.shield(self._records.append(append)))
        if isinstance(outcome, Deferred):
            return outcome
        tenant = place.tenant_id
        if isinstance(outcome, Quarantine):
            why = (outcome.code, outcome.error)
            await store.settle(self._pool, tenant, stored.id, stored.verdict, why, None)
            return outcome
        await store.settle(self._pool, tenant, stored.id, "replayed", None, outcome.event_ids[0])
        return Told(outcome.event_ids[0], outcome.replayed)


def _held(place: Place, quarantine: Quarantine) -> Quarantine | Deferred:
    """Not while the spec is without what may stay: the sender comes again."""
    return BEING_REMOVED if place.deployed.removing else quarantine


def _mint() -> bytes:
    return uuid7().bytes
