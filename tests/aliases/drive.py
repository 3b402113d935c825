"""Drives a registry without HTTP: creates aggregates, gives names, compares tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.aliases.assigner import Assigner
from gateway.aliases.resolver import Ambiguous, Resolver
from gateway.aliases.store import Found, Snapshot, Store
from gateway.aliases.writer import Writer
from gateway.catalog.catalog import Catalog
from gateway.events import Stream
from gateway.log.log import Log
from gateway.names.aliases import Alias, Malformed, parse_alias
from gateway.names.changes import Change, Give, Given, Named, Retire, named
from tests.support.drive import Place, append, appended, new_stream, open_gateway

SPEC: dict[str, Any] = {
    "aggregate_types": {
        name: {"events": {"was_placed": {"schema": True}}} for name in ("order", "ticket", "note")
    },
    "agent_types": ["user"],
    "public_ids": {"key": "VNO", "types": ["order", "ticket"]},
}
WAIT_S = 40.0


@dataclass(frozen=True, slots=True)
class Registry:
    """What one gateway knows of names."""

    log: Log
    catalog: Catalog
    store: Store
    writer: Writer
    resolver: Resolver
    assigner: Assigner

    async def create(self, tenant: UUID, aggregate_type: str = "order", key: str | None = None) -> Stream:
        """A new aggregate: its first event is committed."""
        stream = Stream(tenant.bytes, aggregate_type, key or new_stream().key)
        await appended(self.log, append(stream))
        return stream

    async def names_of(self, stream: Stream) -> list[str]:
        """Once it has them."""
        return [each.alias.text for each in await self.assigner.named(stream, WAIT_S)]

    async def give(self, tenant: UUID, *names: tuple[str, str, str], imported: bool = False) -> None:
        """Names (alias, type, key), of all tenants."""
        given = tuple([_given(*each) for each in names])
        await self.change(tenant, Give(given, imported))

    async def retire(self, tenant: UUID, text: str, *, restore: bool = False) -> None:
        await self.change(tenant, Retire((name(text),), restore))

    async def change(self, tenant: UUID, *changes: Change) -> None:
        async def plan(_at: Snapshot) -> Sequence[Change]:
            return changes

        await self.writer.write(tenant.bytes, plan)

    async def resolve(
        self, tenant: UUID, text: str, aggregate_type: str | None = None, *, exact: bool = False
    ) -> Found | Ambiguous | None:
        return await self.resolver.resolve(tenant.bytes, alias(text), aggregate_type, exact=exact)

    async def all_of(self, tenant: UUID) -> list[Found]:
        return [found async for page in self.store.every(tenant.bytes, 7) for found in page]


def alias(text: str) -> Alias:
    parsed = parse_alias(text)
    assert not isinstance(parsed, Malformed), parsed
    return parsed


def name(text: str) -> Named:
    return named(alias(text))


def _given(text: str, aggregate_type: str, key: str) -> Given:
    it = name(text)
    return Given(it.kind, it.prefix, it.body, it.path, aggregate_type, key)


@asynccontextmanager
async def open_registry(place: Place, *, assigning: bool = True) -> AsyncIterator[Registry]:
    async with AsyncExitStack() as closing:
        gateway = await open_gateway(place)
        closing.push_async_callback(gateway.close)
        catalog = Catalog(gateway.pool)
        await catalog.start()
        store = Store(gateway.pool)
        writer = Writer(gateway.log, store)
        assigner = Assigner(gateway.log, catalog, store, writer)
        if assigning:
            await closing.enter_async_context(assigner.running())
        resolver = Resolver(gateway.log, store)
        yield Registry(gateway.log, catalog, store, writer, resolver, assigner)


async def tables(place: Place) -> list[list[tuple[Any, ...]]]:
    """What the tables of names hold, row by row."""
    wanted = {
        "alias": "tenant, path, body, prefix",
        "alias_counter": "tenant, prefix",
        "alias_position": "tenant",
    }
    return [
        [tuple(row) for row in await place.fetch(f"SELECT * FROM {table} ORDER BY {order}")]
        for table, order in wanted.items()
    ]
