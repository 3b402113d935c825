"""Subscriptions in Postgres: the statements, and rows as values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.admit.items import read_items
from gateway.appends import tag_key
from gateway.errors import Refusal
from gateway.events import Recorded, Stream
from gateway.items import Items
from gateway.log.entries import event_of
from gateway.postgres.connection_errors import mapped_to
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share
from gateway.postgres.statements import statement_of
from gateway.relay.outbox import Entry, Filter
from gateway.relay.position import Place

statement: Final = partial(statement_of, "relay")

ACQUIRE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A row of `subscription`. `moves` is what a compare-and-swap names; `document` holds secrets. `aliases`
    is None where its types decide whether events carry them; `keyless`: those that have any have no key."""

    id: int
    tenant: bytes
    name: str
    kind: str
    declared: bool
    document: bytes = field(repr=False)
    filter: Filter
    p: int
    place: Place
    moves: int
    state: str
    why: str | None
    why_code: str | None
    failing_since: float | None
    confirmed_at: float | None
    owner: str | None
    aliases: bool | None = None
    keyless: bool = False


@dataclass(frozen=True, slots=True)
class RetryEntry:
    """An aggregate that waits at `version` while others continue. Times are Unix seconds."""

    aggregate_type: str
    key: str
    version: int
    event_id: bytes
    state: str
    attempts: int
    due_at: float
    since: float
    error: str | None = None
    claim: bytes | None = None
    claimed_to: int | None = None

    @property
    def aggregate(self) -> tuple[str, str]:
        return self.aggregate_type, self.key


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver, as it is stored."""

    event_id: bytes
    number: int
    at: float
    took_ms: int
    outcome: str
    status: int | None
    error: str | None
    response: bytes


@asynccontextmanager
async def connection(pool: asyncpg.Pool | Share) -> AsyncIterator[Any]:
    """A connection of the pool. Whatever Postgres fails with becomes PostgresTrouble."""
    with mapped_to(PostgresTrouble):
        async with pool.acquire(timeout=ACQUIRE_S) as acquired:
            yield acquired


async def fetch(pool: asyncpg.Pool | Share, name: str, *args: object) -> list[Any]:
    """The rows of one statement. Raises PostgresTrouble."""
    async with connection(pool) as conn:
        return list(await conn.fetch(statement(name), *args))


async def now(conn: Any) -> float:
    """Unix seconds by Postgres' clock; not those at which the transaction began: it may have waited for a
    lock."""
    return float(await conn.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8"))


async def name_of(pool: asyncpg.Pool, tenant: bytes) -> str:
    """The tenant's name, which its secrets are found by. Raises PostgresTrouble."""
    (row,) = await fetch(pool, "tenant_name", UUID(tenant))
    return str(row["name"])


def subscribed(row: Any) -> Subscribed:
    tenant = row["tenant"].bytes
    document = msgspec.json.decode(row["document"])
    items = _items(document, row["salt"])
    wanted = Filter(tenant, frozenset(row["types"] or ()), frozenset(row["event_types"] or ()), items=items)
    return Subscribed(
        row["id"], tenant, row["name"], row["kind"], row["declared"], row["document"], wanted, row["p"],
        Place(row["seq"], row["mark"]), row["moves"], row["state"], row["why"], row["why_code"],
        seconds(row["failing_since"]), seconds(row["confirmed_at"]), row["owner"], document.get("aliases"),
        document.get("keys") == "alias",
    )  # fmt: skip


def _items(document: dict[str, Any], salt: bytes) -> Items:
    """Of the filter, with tags as they are stored."""
    listed = (document.get("filter") or {}).get("items")
    items = () if listed is None else read_items(listed, None, salt, "filter.items", bounded=False)
    return () if isinstance(items, Refusal) else items  # none of ours: it was read when it was put


async def stragglers(conn: Any, subscription: int) -> list[RetryEntry]:
    rows = await conn.fetch(statement("stragglers"), subscription)
    return [
        RetryEntry(
            row["aggregate_type"], row["aggregate_id"], row["version"], row["event"].bytes, row["state"],
            row["attempts"], row["due_at"].timestamp(), row["since"].timestamp(), row["error"],
            None if row["claim"] is None else row["claim"].bytes, row["claimed_to"],
        )
        for row in rows
    ]  # fmt: skip


async def note_stragglers(conn: Any, subscription: int, noted: Sequence[RetryEntry]) -> None:
    if noted:
        columns: list[list[Any]] = [list(column) for column in zip(*map(_straggler_row, noted), strict=True)]
        await conn.execute(statement("straggle"), subscription, *columns)


def _straggler_row(each: RetryEntry) -> tuple[Any, ...]:
    return (
        each.aggregate_type, each.key, each.version, UUID(each.event_id), each.state, each.attempts,
        moment(each.due_at), moment(each.since), each.error, None if each.claim is None else UUID(each.claim),
        each.claimed_to,
    )  # fmt: skip


async def end_stragglers(conn: Any, subscription: int, ended: Iterable[tuple[str, str]]) -> None:
    listed = list(ended)
    if listed:
        types, keys = [each[0] for each in listed], [each[1] for each in listed]
        await conn.execute(statement("caught_up"), subscription, types, keys)


async def log_attempts(conn: Any, subscription: int, attempts: Sequence[Attempt]) -> None:
    if attempts:
        rows = [
            (UUID(each.event_id), each.number, moment(each.at), each.took_ms, each.outcome, each.status,
             each.error, each.response)
            for each in attempts
        ]  # fmt: skip
        columns = [list(column) for column in zip(*rows, strict=True)]
        await conn.execute(statement("log_attempts"), subscription, *columns)


async def next_of_aggregate(
    conn: Any, of: Subscribed, aggregate: tuple[str, str], version: int, up_to: int, limit: int
) -> list[Entry]:
    """Its next events that the filter takes, from `version` on and no further than the seq `up_to`."""
    aggregate_type, key = aggregate
    if not of.filter.takes_type(aggregate_type):
        return []
    stream = Stream(of.tenant, aggregate_type, key)
    while True:
        rows = await conn.fetch(
            statement("next_of_aggregate"), UUID(of.tenant), aggregate_type, key, version,
            sorted(of.filter.event_types) or None, of.p, up_to, limit,
        )  # fmt: skip
        entries = [
            Entry(Place(row["seq"], row["mark"]), Recorded(stream, row["version"], event_of(row)))
            for row in rows
        ]
        if of.filter.items:
            entries = [each for each in await _tagged(conn, of, entries) if of.filter.picks(each)]
        if entries or len(rows) < limit:
            return entries
        version = rows[-1]["version"] + 1


async def _tagged(conn: Any, of: Subscribed, entries: Sequence[Entry]) -> list[Entry]:
    """Each with those of its tags that the filter names."""
    by_key = {tag_key(of.tenant, tag): tag for item in of.filter.items for tag in item.tags}
    seqs = [each.place.seq for each in entries]
    found: dict[int, tuple[str, ...]] = {}
    for row in await conn.fetch(statement("tagged_at"), [UUID(key) for key in by_key], seqs):
        found[row["seq"]] = (*found.get(row["seq"], ()), by_key[row["tag"].bytes])
    return [Entry(each.place, each.recorded, found.get(each.place.seq, ())) for each in entries]


def seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
