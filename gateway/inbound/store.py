"""Raw deliveries in Postgres: kept, listed, shown, ended. The table is for people and for replays; no answer
to a sender depends on it but that of a quarantined delivery.

Owns the table `webhook_delivery`, and what the intake reads beside it. Must not know how a delivery becomes
an event.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.inbound.request import Request
from gateway.postgres.connection_errors import UNANSWERED, mapped_to
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share
from gateway.postgres.statements import statement_of
from gateway.telemetry.redact import reason

_statement: Final = partial(statement_of, "inbound")

Verdict = Literal["accepted", "duplicate", "quarantined", "replayed", "batch"]

LAST_ID: Final = b"\xff" * 16
_FIRST_ID: Final = UUID(bytes(16))
LISTED_PAGE: Final = 100_000
"""Rows that a statement looks at for a list, some 100 ms."""

HIDDEN: Final = frozenset(
    (b"authorization", b"proxy-authorization", b"cookie", b"x-gitlab-token", b"x-adobesign-clientid")
)
"""Headers that are secrets themselves: their names are kept, not their values."""


_COLUMNS: Final = (
    "id", "tenant", "request", "item", "received_at", "took_ms", "secret",
    "source", "delivery_id", "digest", "verdict", "event_id", "target", "headers", "body", "body_bytes",
    "reason", "error",
)  # fmt: skip

# Postgres' binary form of COPY: https://www.postgresql.org/docs/current/sql-copy.html
_COPY_BEGINS: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_ENDS: Final = b"\xff\xff"
_begun: Final = struct.Struct(">h i16s i16s i16s ii iq ii ii").pack
"""How many columns there are, and the first seven of them, each with its length before it."""

_ID: Final = slice(6, 22)
"""Where it stands in such a row."""

_NULL: Final = b"\xff\xff\xff\xff"
_pack: Final = msgspec.msgpack.Encoder().encode
_int4: Final = struct.Struct(">i").pack
_RECORDS_BACK: Final = 100_000
"""Events that are looked at for what was told of source ids before, of all ids of a request."""

_RECORDS_BACK_MAX: Final = 1_000
_RECORDS_BACK_MIN: Final = 20
"""The same of one id: behind more events of others, its record counts as a new one."""

_EPOCH_MS: Final = 946_684_800_000
"""Of Postgres' timestamps: the year 2000."""


class RowRefused(Exception):
    """Postgres does not take a row for what is in it: to try again is of no use."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """One row. `request` is None where another row of the same request holds it, whose id is `request_id`.
    `body_in_event`: the body is the `body` of its event's data, byte for byte, and not kept a second time."""

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
    body_in_event: bool = False


async def keep(pool: asyncpg.Pool, rows: Sequence[Kept]) -> None:
    """Writes them all, but for what is in quarantine already. Raises PostgresTrouble: then none is."""
    columns: list[list[Any]] = [[] for _ in _COLUMNS]
    for row in rows:
        for column, value in zip(columns, _values(row), strict=True):
            column.append(value)
    await _fetch(pool, "keep", *columns)


async def keep_soon(pool: asyncpg.Pool, rows: Sequence[bytes]) -> None:
    """The same for rows, as `copied` makes them, of which none is in quarantine: at a fraction of the cost,
    and without a wait for the disk: a crash of Postgres may take the last half second of them. Raises
    PostgresTrouble, and RowRefused: then none is written."""
    if await _copy(pool, rows):
        return
    # Written before, by a try of which no answer came.
    there = {row["id"].bytes for row in await _fetch(pool, "there", [id_of(row) for row in rows])}
    if not await _copy(pool, [row for row in rows if row[_ID] not in there]):
        raise PostgresTrouble("webhook deliveries, keep: more of them are there than before")


async def _copy(pool: asyncpg.Pool, rows: Sequence[bytes]) -> bool:
    """False, and nothing is written, where one of them is there. Raises PostgresTrouble, RowRefused."""
    # No bytes, which asyncpg would take for the name of a file.
    copy = bytearray().join([_COPY_BEGINS, *rows, _COPY_ENDS])
    try:
        async with pool.acquire(timeout=5) as connection, connection.transaction():
            await connection.execute("SET LOCAL synchronous_commit = off")
            await connection.copy_to_table("webhook_delivery", source=copy, columns=_COLUMNS, format="binary")
    except asyncpg.UniqueViolationError:
        return False
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise RowRefused(reason(error)) from error
    except UNANSWERED as error:
        raise PostgresTrouble(f"webhook deliveries, keep: {reason(error)}") from error
    return True


def _values(row: Kept) -> tuple[Any, ...]:
    """In the order of `_COLUMNS`."""
    target, headers, body, body_bytes = _request_values(row)
    return (
        UUID(row.id),
        UUID(row.tenant),
        UUID(row.request_id),
        row.item,
        datetime.fromtimestamp(row.received_ms / 1000, UTC),
        row.took_ms,
        row.secret,
        row.source,
        row.delivery_id,
        row.digest,
        row.verdict,
        None if row.event_id is None else UUID(row.event_id),
        target,
        headers,
        body,
        body_bytes,
        row.reason,
        row.error,
    )


def id_of(copied: bytes) -> UUID:
    return UUID(copied[_ID])


def copied(row: Kept) -> bytes:
    """The same as a row of a COPY: asyncpg would make a value of each first, and ask of what kind it is."""
    target, headers, body, body_bytes = _request_values(row)
    received = (row.received_ms - _EPOCH_MS) * 1000
    begun = _begun(
        len(_COLUMNS), 16, row.id, 16, row.tenant, 16, row.request_id, 4, row.item, 8, received,
        4, row.took_ms, 4, row.secret,
    )  # fmt: skip
    more = (
        row.source.encode(),
        row.delivery_id.encode(),
        row.digest,
        row.verdict.encode(),
        row.event_id,
        target,
        headers,
        body,
        None if body_bytes is None else _int4(body_bytes),
        None if row.reason is None else row.reason.encode(),
        None if row.error is None else row.error.encode(),
    )
    return begun + b"".join([_NULL if each is None else _int4(len(each)) + each for each in more])


def _request_values(row: Kept) -> tuple[bytes | None, bytes | None, bytes | None, int | None]:
    """Target, headers, body, and where that stands in the event how long it is."""
    request = row.request
    if request is None:
        return None, None, None, None
    if row.body_in_event:
        return request.target, _packed(request), None, len(request.body)
    return request.target, _packed(request), request.body, None


def _packed(request: Request) -> bytes:
    headers = request.headers
    if request.has_any(HIDDEN):
        headers = tuple([(name, b"***" if name in HIDDEN else value) for name, value in headers])
    return _pack(headers)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries to list, newest first; None leaves open. `before` is the id to go on from."""

    source: str | None = None
    verdict: str | None = None
    delivery_id: str | None = None
    before: bytes = LAST_ID
    limit: int = 100
    reason: str | None = None
    """Of what is in quarantine."""


async def listed(pool: asyncpg.Pool | Share, tenant: bytes, wanted: Wanted) -> list[dict[str, Any]]:
    """As JSON shows them. Each statement looks at LISTED_PAGE rows, so that none runs into a deadline however
    few of them are wanted. Raises PostgresTrouble."""
    before, source, delivery_id = UUID(wanted.before), wanted.source, wanted.delivery_id
    if wanted.verdict == "quarantined":
        args = (UUID(tenant), source, delivery_id, before, wanted.limit, wanted.reason)
        return [_shown(row) for row in await _fetch(pool, "list_quarantined", *args)]
    found: list[dict[str, Any]] = []
    while True:
        ends = await _fetch(pool, "page_start", UUID(tenant), before, LISTED_PAGE)
        first = ends[0]["id"] if ends else _FIRST_ID
        rows = await _fetch(
            pool, "list", UUID(tenant), source, wanted.verdict, delivery_id, before,
            wanted.limit - len(found), first,
        )  # fmt: skip
        found += [_shown(row) for row in rows]
        if not ends or len(found) >= wanted.limit:
            return found
        before = first


@dataclass(frozen=True, slots=True)
class Stored:
    """A delivery with its request; that is None where it was kept no longer."""

    id: bytes
    source: str
    item: int
    verdict: Verdict
    shown: dict[str, Any]
    request: Request | None = field(repr=False)


async def stored(pool: asyncpg.Pool | Share, tenant: bytes, delivery: bytes) -> Stored | None:
    """Raises PostgresTrouble."""
    rows = await _fetch(pool, "show", UUID(tenant), UUID(delivery))
    if not rows:
        return None
    row = rows[0]
    return Stored(delivery, row["source"], row["item"], row["verdict"], _shown(row), _request(row))


def request_shown(request: Request | None) -> dict[str, Any] | None:
    """As JSON shows it: bytes of the body that are no UTF-8 as `\\x…`."""
    if request is None:
        return None
    return {
        "target": request.target.decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.headers],
        "body": request.body.decode("utf-8", "backslashreplace"),
    }


async def known(pool: asyncpg.Pool | Share, tenant: bytes, ids: Sequence[bytes]) -> set[bytes]:
    """Which of these deliveries are the tenant's. Raises PostgresTrouble."""
    rows = await _fetch(pool, "known", UUID(tenant), [UUID(each) for each in ids])
    return {row["id"].bytes for row in rows}


async def newest(
    pool: asyncpg.Pool, tenant: bytes, aggregate_type: str, begins: Sequence[tuple[str, bytes]], former: bytes
) -> list[bytes | None]:
    """For each key, the `extra` of the newest event of its stream that begins with these bytes, or with
    `former`; None where there is none among the newest events. Raises PostgresTrouble."""
    most = min(max(_RECORDS_BACK // max(len(begins), 1), _RECORDS_BACK_MIN), _RECORDS_BACK_MAX)
    keys, starts = [key for key, _ in begins], [start for _, start in begins]
    rows = await _fetch(pool, "newest", UUID(tenant), aggregate_type, keys, starts, former, most)
    found = {row["n"]: row["extra"] for row in rows}
    return [found.get(n) for n in range(1, len(begins) + 1)]


async def settle(
    pool: asyncpg.Pool | Share,
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


async def discard(pool: asyncpg.Pool | Share, tenant: bytes, ids: Sequence[bytes]) -> list[dict[str, str]]:
    """Ends those of these deliveries that are in quarantine, with their requests; which they were. Raises
    PostgresTrouble."""
    rows = await _fetch(pool, "discard", UUID(tenant), [UUID(each) for each in ids])
    return [
        {"id": str(row["id"]), "source": row["source"], "delivery_id": row["delivery_id"]} for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Expired:
    """What a call of `expire` did: how many rows it looked at, the last of them (None: there was none), and
    how many it ended that were in quarantine."""

    looked_at: int
    last: bytes | None
    quarantined: int


async def expire(
    pool: asyncpg.Pool, keep_s: float, quarantine_keep_s: float, after: bytes, rows_max: int
) -> Expired:
    """Looks at the next rows behind the id `after`, at most so many, and ends what is older, by Postgres'
    clock. Raises PostgresTrouble."""
    (row,) = await _fetch(pool, "expire", keep_s, quarantine_keep_s, UUID(after), rows_max)
    last = row["last"]
    return Expired(row["looked_at"], None if last is None else last.bytes, row["quarantined"])


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
    return Request(b"POST", path, query, _headers(row["headers"]), row["body"])


def _headers(packed: bytes) -> tuple[tuple[bytes, bytes], ...]:
    if packed.startswith(b"["):  # of an earlier release
        pairs = msgspec.json.decode(packed, type=list[tuple[str, str]])
        return tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs])
    return msgspec.msgpack.decode(packed, type=tuple[tuple[bytes, bytes], ...])


async def _fetch(pool: asyncpg.Pool | Share, name: str, *args: object) -> list[Any]:
    with mapped_to(PostgresTrouble, f"webhook deliveries, {name}: "):
        async with pool.acquire(timeout=5) as connection:
            return list(await connection.fetch(_statement(name), *args))
