"""Stored deliveries once more, by the spec of today: for the command and for the API.

Owns what is said of each. How a delivery becomes an event is appending.py's.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from gateway.catalog.model import Deployed, Tenant
from gateway.inbound import store
from gateway.inbound.appending import DeliveryAppends
from gateway.inbound.receipts import place_of
from gateway.inbound.results import Deferred, Told
from gateway.inbound.store import Stored
from gateway.postgres.shares import Share


class Replayer:
    """Of one tenant, by its deployed spec. No secret is needed: what is stored is verified."""

    def __init__(
        self, appends: DeliveryAppends, pool: asyncpg.Pool | Share, tenant: Tenant, deployed: Deployed
    ) -> None:
        self._appends = appends
        self._pool = pool
        self._tenant = tenant
        self.deployed = deployed

    async def replay(self, delivery: bytes, *, again: bool) -> dict[str, Any]:
        """What became of it, as JSON shows it; without `event_id` it stays as it was, `error` says why.
        Raises PostgresTrouble, Busy."""
        stored = await store.stored(self._pool, self._tenant.id.bytes, delivery)
        if stored is None:
            return without_event(delivery, "not_found", "The delivery is no longer stored.")
        source = self.deployed.spec.webhooks.get(stored.source)
        if source is None:
            why = f"The spec declares no source {stored.source!r} any more."
            if stored.source in self.deployed.closed:
                why = "This gateway can't read the source, or a secret of it."
            return without_event(delivery, "unknown_source", why, stored)
        place = place_of(self._tenant, self.deployed, source)
        outcome = await self._appends.replay(place, stored, again=again)
        if isinstance(outcome, Deferred):
            reason = "outcome_unknown" if outcome.unknown else "not_committed"
            return without_event(delivery, reason, outcome.why, stored)
        if not isinstance(outcome, Told):
            return without_event(delivery, outcome.code, outcome.error, stored)
        if outcome.event_id is None:
            why = "`to.when` or `to.types` leaves it out; it is no longer in quarantine."
            return without_event(delivery, "ignored", why, stored)
        event_id = str(UUID(bytes=outcome.event_id))
        told = {"event_id": event_id, "duplicate": outcome.duplicate, "reason": None, "error": None}
        return {**_named(delivery, stored), **told}


def without_event(delivery: bytes, reason: str, why: str, stored: Stored | None = None) -> dict[str, Any]:
    told = {"event_id": None, "duplicate": False, "reason": reason, "error": why}
    return {**_named(delivery, stored), **told}


def _named(delivery: bytes, stored: Stored | None) -> dict[str, Any]:
    source, delivery_id = (None, None) if stored is None else (stored.source, stored.shown["delivery_id"])
    return {"id": str(UUID(bytes=delivery)), "source": source, "delivery_id": delivery_id}
