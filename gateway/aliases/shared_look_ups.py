"""Look-ups of the aliases of aggregates, those of one tenant that come together by one statement.

Owns: which of them share one. A statement begins behind all calls that it answers, so what it tells is never
older than what each would have asked by itself. One of a tenant is under way at a time: a crowd of followers
is told of an event at the same moment, and would take all connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from gateway.aliases.store import Store

AGGREGATES_MAX: Final = 1_000
"""Of one statement, and those of one call more: some milliseconds."""

Aggregate = tuple[str, str]
Aliases = dict[Aggregate, tuple[str, ...]]


class _Batch(NamedTuple):
    """`aggregates` are asked for once `found` has its turn."""

    aggregates: set[Aggregate]
    found: asyncio.Task[Aliases]


class AliasLookUps:
    """One a gateway."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: dict[bytes, _Batch] = {}
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def of_each(self, tenant: bytes, aggregates: Collection[Aggregate]) -> Aliases:
        """Of aggregates (type, key), those that are shown, oldest first; those of others may be among them.
        Raises PostgresTrouble."""
        batch = self._next.get(tenant)
        if batch is None or len(batch.aggregates) >= AGGREGATES_MAX:
            asked = set[Aggregate]()
            batch = _Batch(asked, asyncio.create_task(self._find(tenant, asked)))
            batch.found.add_done_callback(_looked_at)
            self._next[tenant] = batch
        batch.aggregates.update(aggregates)
        return await asyncio.shield(batch.found)

    async def _find(self, tenant: bytes, aggregates: set[Aggregate]) -> Aliases:
        async with self._turns.setdefault(tenant, asyncio.Lock()):
            if (following := self._next.get(tenant)) is not None and following.aggregates is aggregates:
                del self._next[tenant]
            return await self._store.aliases_of_each(tenant, sorted(aggregates))


def _looked_at(found: asyncio.Task[Aliases]) -> None:
    if not found.cancelled():
        found.exception()  # its callers may have gone
