"""Who holds which unique value by a spec's claims, had they been declared from the beginning.

Owns: reading a tenant's history for it, in the order of its events, and the rows that follow. Where two
aggregates would have held a value at once, the first keeps it, and the other's event is reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.catalog.closing import close
from gateway.catalog.database import statement
from gateway.catalog.spec_use import Conflict, present, recorded_of
from gateway.json_values import decode_data
from gateway.names.claims import claims_of
from gateway.names.unique import Holders
from spec.changes import claiming_events, reclaimed
from spec.errors import below
from spec.model import Spec
from spec.tags import TagFault

EVENTS_MAX: Final = 1_000_000
"""Events that claim or release, of one deployment: what they hold is in memory until it is written."""

COLLISIONS_MAX: Final = 100
"""Told of in one answer."""

_STRETCH: Final = 5_000
_TURN_S: Final = 0.005


class ClaimHistory:
    """Of the aggregate types `types`, by `spec`."""

    def __init__(self, tenant_id: UUID, spec: Spec, types: Collection[str]) -> None:
        self.collisions: list[Conflict] = []
        self._tenant_id = tenant_id
        self._spec = spec
        self._types = sorted(types)
        self._holders = Holders({})
        self._seq = 0
        self._events = 0

    @property
    def of_any(self) -> bool:
        """Whether there is anything to be read."""
        return bool(self._types)

    @property
    def whole(self) -> bool:
        """Whether all that was asked for was read."""
        return self._events <= EVENTS_MAX

    def held(self) -> Iterator[tuple[bytes, str, str, str, bytes, int]]:
        """Value, aggregate type, key, name, scope, and the seq of the event that claimed it."""
        return self._holders.held()

    async def read_on(self, conn: Any) -> None:
        """All that is committed by now and was not read before."""
        place = await conn.fetchrow(statement("tenant_place"), self._tenant_id)
        if place is None or place["p"] is None:
            return
        events = sorted({name for each in self._declared() for name in each})
        while self._seq < place["seq"]:
            upto = min(self._seq + _STRETCH, place["seq"])
            rows = await conn.fetch(
                statement("claim_events"), place["p"], self._tenant_id, self._seq, upto, self._types, events
            )
            await self._take(rows, place["salt"])
            self._seq = upto
            if self._events > EVENTS_MAX:
                why = (
                    f"More than {EVENTS_MAX:,} stored events claim or release values: too many to be checked."
                )
                self.collisions.append(Conflict("", why))
                return

    def _declared(self) -> list[list[str]]:
        types = self._spec.aggregate_types
        return [
            [name for name, each in types[declared].events.items() if each.claims or each.releases]
            for declared in self._types
            if declared in types
        ]

    async def _take(self, rows: Any, salt: bytes) -> None:
        begun = time.monotonic()
        for row in rows:
            declared = self._spec.aggregate_types.get(row["aggregate_type"])
            event_type = None if declared is None else declared.events.get(row["type"])
            if event_type is None or row["payload"] is None or not (event_type.claims or event_type.releases):
                continue
            self._events += 1
            payload = await present(self._tenant_id, row["aggregate_type"], event_type, row)
            data, tenant = decode_data(payload), self._tenant_id.bytes
            found = claims_of(event_type, row["aggregate_type"], 0, data, tenant, salt)
            if not isinstance(found, TagFault):
                self._claim(row, *found)
            if time.monotonic() - begun > _TURN_S:
                await asyncio.sleep(0)
                begun = time.monotonic()

    def _claim(self, row: Any, claims: list[Any], paths: list[str]) -> None:
        stream = recorded_of(self._tenant_id, row["aggregate_type"], row).stream
        for claim, path in zip(claims, paths, strict=True):
            holder = self._holders.take_claim(stream, claim, row["seq"])
            if holder is None or len(self.collisions) >= COLLISIONS_MAX:
                continue
            place = below(
                "", "aggregate_types", stream.aggregate_type, "events", row["type"], "claims", claim.name
            )
            why = (
                f"{stream.aggregate_type} {stream.key}, version {row['version']}, claims the value at "
                f"data{path} that {holder.aggregate_type} {holder.key} has."
            )
            self.collisions.append(Conflict(place, why))

    async def write(self, conn: Any) -> None:
        """In place of what was held before."""
        await conn.execute(statement("forget_claims"), self._tenant_id, self._types)
        slots = list(self._holders.held())
        columns: list[list[Any]] = [list(column) for column in zip(*slots, strict=True)] or [
            [] for _ in range(6)
        ]
        await conn.execute(statement("hold_claims"), self._tenant_id, *columns)


async def claimed_by(
    conn: Any, tenant_id: UUID, deployed: Spec, following: Spec, *, force: bool
) -> ClaimHistory | None:
    """Who holds which unique value by `following`; None where that is as it was. Where values collide and it
    is not forced, nothing is closed. Else events that claim or release are closed for appends before the last
    of them are read, and stay so until `following` is deployed."""
    types = reclaimed(deployed, following)
    if not types:
        return None
    history = ClaimHistory(tenant_id, following, types)
    await history.read_on(conn)
    if history.collisions and not force:
        return history
    open_now = {
        name: (claiming_events(deployed, name) | claiming_events(following, name))
        & frozenset(deployed.aggregate_types[name].events)
        for name in types & deployed.aggregate_types.keys()
    }
    if any(open_now.values()):
        await close(conn, tenant_id, _without(following, open_now))
        await history.read_on(conn)
    return history


def _without(spec: Spec, events: Mapping[str, Collection[str]]) -> bytes:
    """A spec that declares the same types and singletons but for these events; only their names count."""
    types = {
        name: {
            "events": {event: {"schema": True} for event in each.events if event not in events.get(name, ())}
        }
        for name, each in spec.aggregate_types.items()
    }
    document = {"aggregate_types": types, "agent_types": [], "singletons": [*spec.singleton_list]}
    return msgspec.json.encode(document)
