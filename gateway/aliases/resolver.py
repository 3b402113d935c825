"""Alias → aggregate. What an exact alias names never changes, so it is asked once and kept in memory.

Owns that memory. A rewind gives up what Postgres has lost, and names with it, so nothing is believed beyond
the epoch of the tenant's partition in which it was read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from gateway.aliases.store import Found, Store
from gateway.log.log import Log
from gateway.names.aliases import Alias, Kind, numbered_hash
from gateway.names.hash_ids import CANDIDATES_MAX

KEPT_MAX: Final = 50_000
"""Aliases in memory, a third of a kilobyte each; the one that was used longest ago is given up first."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several aggregates could be meant: their aliases, sorted; at most CANDIDATES_MAX of them."""

    candidates: tuple[str, ...]


async def look_up(
    store: Store, tenant: bytes, alias: Alias, aggregate_type: str | None, *, exact: bool
) -> list[Found]:
    """What the tables say that it names: several where it is ambiguous. Raises PostgresTrouble."""
    found = await store.exact(tenant, alias, aggregate_type)
    if not found and (hashed := numbered_hash(alias)) is not None:
        found = await store.exact(tenant, hashed, aggregate_type)
    if not found and not exact and alias.kind is Kind.HASH:
        return await store.abbreviated(tenant, alias, aggregate_type, CANDIDATES_MAX)
    return found


class Resolver:
    def __init__(self, log: Log, store: Store) -> None:
        self._log = log
        self._store = store
        self._kept: OrderedDict[tuple[bytes, str], tuple[int, Found]] = OrderedDict()

    def known(self, tenant: bytes, text: str) -> Found | None:
        """What an alias in its canonical spelling names, as far as that is in memory. Whether it is retired
        may have changed since."""
        kept = self._kept.get((tenant, text))
        if kept is None or kept[0] != self._log.epoch(tenant):
            return None
        self._kept.move_to_end((tenant, text))
        return kept[1]

    async def resolve(
        self, tenant: bytes, alias: Alias, aggregate_type: str | None = None, *, exact: bool = False
    ) -> Found | Ambiguous | None:
        """The aggregate of this type, or of any, that the alias names; None where there is none: a name of
        another tenant or another type looks like no name at all.

        An exact alias goes before whatever it may be short for; with `exact` nothing may be short for
        another, but a hash id may still lack its prefix. Raises PostgresTrouble.
        """
        known = self.known(tenant, alias.text)
        if known is not None:
            return known if aggregate_type in (None, known.aggregate_type) else None
        return await self.look(tenant, alias, aggregate_type, exact=exact)

    async def key_of(self, tenant: bytes, alias: Alias, aggregate_type: str) -> str | None:
        """The key of the aggregate of this type that an exact alias names. Raises PostgresTrouble."""
        found = await self.resolve(tenant, alias, aggregate_type, exact=True)
        return found.key if isinstance(found, Found) else None

    async def look(
        self, tenant: bytes, alias: Alias, aggregate_type: str | None = None, *, exact: bool = False
    ) -> Found | Ambiguous | None:
        """The same by Postgres, whatever is in memory."""
        found = await self._look_up(tenant, alias, aggregate_type, exact=exact)
        if not found:
            # It may be committed and not in the tables yet: its writer died, or is about to.
            await self._store.sync(tenant)
            found = await self._look_up(tenant, alias, aggregate_type, exact=exact)
        if len(found) > 1:
            return Ambiguous(tuple([each.alias.text for each in found[:CANDIDATES_MAX]]))
        return found[0] if found else None

    async def _look_up(
        self, tenant: bytes, alias: Alias, aggregate_type: str | None, *, exact: bool
    ) -> list[Found]:
        epoch = self._log.epoch(tenant)
        found = await look_up(self._store, tenant, alias, aggregate_type, exact=exact)
        if len(found) == 1 and found[0].alias == alias:
            self._keep(tenant, alias.text, epoch, found[0])
        return found

    def _keep(self, tenant: bytes, text: str, epoch: int, found: Found) -> None:
        self._kept[tenant, text] = epoch, found
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
