"""Raw deliveries in Postgres: kept, listed, shown, ended. The table is for people and for replays; no answer
to a sender depends on it but that of a quarantined delivery.

Owns the table `webhook_delivery`. Must not know how a delivery becomes an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.intake.request import Request
from gateway.log.postgres import CONNECTION_ERRORS, PostgresTrouble
from gateway.telemetry.redact import reason

Verdict = Literal["accepted", "duplicate", "quarantined", "replayed", "batch"]

LAST_ID: Final = b"\xff" * 16
HIDDEN: Final = (b"authorization", b"proxy-authorization", b"cookie", b"x-gitlab-token")
"""Headers that are secrets themselves: their names are kept, not their values."""


_COLUMNS: Final = (
    "id", "tenant", "source", "delivery_id", "digest", "request", "item", "verdict", "reason", "error",
    "event_id", "received_at", "took_ms", "secret", "target", "headers", "body",
)  # fmt: skip


class Kept(msgspec.Struct, frozen=True, gc=False):
    """One row. `request` is None where another row of the same request holds it, whose id is `request_id`."""

    id: bytes
    tenant: bytes
    source: str
    delivery_id: str
    digest: bytes
    request_id: bytes
    item: int
    verdict: Verdict
    reason: str | None
    error: str | None
    event_id: bytes | None
    received_ms: int
    took_ms: int
    secret: int
    request: Request | None

    @property
    def size_bytes(self) -> int:
        return 500 + (0 if self.request is None else len(self.request.body) + len(self.request.target))


async def keep(pool: asyncpg.Pool, rows: Sequence[Kept]) -> None:
    """Writes them all, but for what is in quarantine already. Raises PostgresTrouble: then none is."""
    columns: list[list[Any]] = [[] for _ in _COLUMNS]
    for row in rows:
        for column, value in zip(columns, _values(row), strict=True):
            column.append(value)
    await _fetch(pool, "keep", *columns)


async def keep_soon(pool: asyncpg.Pool, rows: Sequence[Kept]) -> None:
    """The same for rows of which none is in quarantine, at two thirds of the cost, and without a wait for the
    disk: a crash of Postgres may take the last half second of them. Raises PostgresTrouble."""
    try:
        async with pool.acquire(timeout=5) as connection, connection.transaction():
            await connection.execute("SET LOCAL synchronous_commit = off")
            records = map(_values, rows)
            await connection.copy_records_to_table("webhook_delivery", records=records, columns=_COLUMNS)
    except asyncpg.UniqueViolationError:  # written before, by a try of which no answer came
        await keep(pool, rows)
    except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
        raise PostgresTrouble(f"webhook deliveries, keep: {reason(error)}") from error


def _values(row: Kept) -> tuple[Any, ...]:
    """In the order of `_COLUMNS`."""
    request = row.request
    return (
        UUID(row.id),
        UUID(row.tenant),
        row.source,
        row.delivery_id,
        row.digest,
        UUID(row.request_id),
        row.item,
        row.verdict,
        row.reason,
        row.error,
        None if row.event_id is None else UUID(row.event_id),
        datetime.fromtimestamp(row.received_ms / 1000, UTC),
        row.took_ms,
        row.secret,
        None if request is None else request.target,
        None if request is None else _packed(request),
        None if request is None else request.body,
    )


def _packed(request: Request) -> bytes:
    pairs = [
        (name.decode("latin-1"), "***" if name in HIDDEN else value.decode("latin-1"))
        for name, value in request.headers
    ]
    return msgspec.json.encode(pairs)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries to list, newest first; None leaves open. `before` is the id to go on from."""

    source: str | None = None
    verdict: str | None = None
    delivery_id: str | None = None
    before: bytes = LAST_ID
    limit: int = 100


async def listed(pool: asyncpg.Pool, tenant: bytes, wanted: Wanted) -> list[dict[str, Any]]:
    """As JSON shows them. Raises PostgresTrouble."""
    args = (wanted.source, wanted.verdict, wanted.delivery_id, UUID(wanted.before), wanted.limit)
    return [_shown(row) for row in await _fetch(pool, "list", UUID(tenant), *args)]


@dataclass(frozen=True, slots=True)
class Stored:
    """A delivery with its request; that is None where it was kept no longer."""

    id: bytes
    source: str
    item: int
    verdict: Verdict
    shown: dict[str, Any]
    request: Request | None = field(repr=False)


async def stored(pool: asyncpg.Pool, tenant: bytes, delivery: bytes) -> Stored | None:
    """Raises PostgresTrouble."""
    rows = await _fetch(pool, "show", UUID(tenant), UUID(delivery))
    if not rows:
        return None
    row = rows[0]
    return Stored(delivery, row["source"], row["item"], row["verdict"], _shown(row), _request(row))


async def settle(
    pool: asyncpg.Pool,
    tenant: bytes,
    delivery: bytes,
    verdict: Verdict,
    why: tuple[str, str] | None,
    event_id: bytes | None,
) -> None:
    """Notes what a replay made of a delivery. Raises PostgresTrouble."""
    code, error = why or (None, None)
    event = None if event_id is None else UUID(event_id)
    await _fetch(pool, "settle", UUID(tenant), UUID(delivery), verdict, code, error, event)


async def expire(pool: asyncpg.Pool, now_ms: int, keep_s: float, rows_max: int) -> None:
    """Ends at most so many of what is older. Raises PostgresTrouble."""
    first_ms = max(now_ms - int(keep_s * 1000), 0)
    await _fetch(pool, "expire", UUID(first_ms.to_bytes(6, "big") + bytes(10)), rows_max)


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "source": row["source"],
        "delivery_id": row["delivery_id"],
        "item": row["item"],
        "verdict": row["verdict"],
        "reason": row["reason"],
        "error": row["error"],
        "event_id": None if row["event_id"] is None else str(row["event_id"]),
        "received_at": row["received_at"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "took_ms": row["took_ms"],
        "secret": row["secret"],
    }


def _request(row: Any) -> Request | None:
    if row["body"] is None:
        return None
    path, _, query = row["target"].partition(b"?")
    pairs = msgspec.json.decode(row["headers"], type=list[tuple[str, str]])
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
    return Request(b"POST", path, query, headers, row["body"])


async def _fetch(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
    try:
        async with pool.acquire(timeout=5) as connection:
            return list(await connection.fetch(_statement(name), *args))
    except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
        raise PostgresTrouble(f"webhook deliveries, {name}: {reason(error)}") from error


@cache
def _statement(name: str) -> str:
    return (files("gateway.intake") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
