"""Events as they are sent: as the feed has them, with the aliases of their aggregates if requested.

Owns which events carry aliases: those of a subscription that says so, else those of a type that does, by the
deployed spec; and which go without their key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from gateway.event_json import fed_json, named_json
from gateway.relay.database import Subscribed, fetch
from gateway.relay.outbox import Entry
from gateway.relay.position import encode_one

TENANTS_MAX: Final = 10_000
"""Whose types are remembered."""

ASK_EVERY_S: Final = 1.0
"""Between two questions to Postgres whether a tenant has another spec by now."""

Aggregate = tuple[str, str]

AliasesOf = Callable[[bytes, Sequence[Aggregate]], Awaitable[Mapping[Aggregate, tuple[str, ...]]]]
"""Of a tenant's aggregates (type, key), the aliases that are shown; of one without any, nothing. Raises
PostgresTrouble."""


class _Type(msgspec.Struct):
    aliases: bool = False


class _Spec(msgspec.Struct):
    aggregate_types: dict[str, _Type] = {}
    spec: _Spec | None = None


_decode: Final = msgspec.json.Decoder(_Spec).decode


class _Known(NamedTuple):
    revision: int
    types: frozenset[str]
    until: float


class Outgoing(NamedTuple):
    """An event in JSON; `key` is None where an alias stands for it."""

    body: bytes
    key: str | None


class EventNames:
    """Every method raises PostgresTrouble."""

    def __init__(self, pool: asyncpg.Pool, aliases_of: AliasesOf) -> None:
        self._pool = pool
        self._aliases_of = aliases_of
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def outgoing(self, of: Subscribed, entries: Iterable[Entry]) -> list[Outgoing]:
        """The events in their order. The aliases are those of now."""
        listed = list(entries)
        bodies = [fed_json(each.recorded, encode_one(of.p, each.place)) for each in listed]
        aggregates = [(each.recorded.stream.aggregate_type, each.recorded.stream.key) for each in listed]
        if of.aliases is None and not of.keyless:
            types = await self._telling(of.tenant) if listed else frozenset[str]()
            told = {each for each in aggregates if each[0] in types}
        else:
            told = set(aggregates) if of.aliases or of.keyless else set()
        if not told:
            return [Outgoing(body, each[1]) for body, each in zip(bodies, aggregates, strict=True)]
        found = await self._aliases_of(of.tenant, sorted(told))
        return [
            _named(body, each[1], found.get(each, ()), keyless=of.keyless)
            if each in told
            else Outgoing(body, each[1])
            for body, each in zip(bodies, aggregates, strict=True)
        ]

    async def _telling(self, tenant: bytes) -> frozenset[str]:
        """The types that the deployed spec has tell their aliases."""
        known = self._known.get(tenant)
        now = time.monotonic()
        if known is None or now >= known.until:
            before = _Known(0, frozenset(), 0.0) if known is None else known
            (row,) = await fetch(self._pool, "spec_since", UUID(bytes=tenant), before.revision) or [None]
            known = before if row is None else _Known(row["revision"], _types(row["document"]), 0.0)
            self._known[tenant] = known._replace(until=now + ASK_EVERY_S)
            if len(self._known) > TENANTS_MAX:
                self._known.popitem(last=False)
        return known.types


def _named(body: bytes, key: str, aliases: tuple[str, ...], *, keyless: bool) -> Outgoing:
    named = named_json(body, key, aliases, keyless=keyless)
    return Outgoing(named, None if keyless and aliases else key)


def _types(document: bytes) -> frozenset[str]:
    """None of a document that a newer release deployed, and that can't be read here."""
    try:
        read = _decode(document)
    except msgspec.DecodeError:
        return frozenset()
    types = (read.spec or read).aggregate_types
    return frozenset([name for name, each in types.items() if each.aliases])
