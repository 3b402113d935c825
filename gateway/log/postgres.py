"""The seam to Postgres: statements in files, connections that never cancel, foreign errors mapped."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg

from gateway.postgres import connecting
from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.postgres.statements import statement_of
from gateway.telemetry.redact import reason

# Every statement of the gateway is an index look-up on tables that only grow; a plan that was made while a
# table was empty must not stay a sequential scan.
_SESSION: Final = {
    "application_name": "sluice",
    "search_path": "public",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

DEADLINE_S: Final = 5.0
"""As SLUICE_READ_DEADLINE_S is by default: for what looks something up before a gateway is put together."""

# What stands in partition_log.mode: the way that appends of an epoch take.
REDIS: Final = "redis"
DIRECT: Final = "direct"


_load: Final = partial(statement_of, "log")

SQL: Final = {
    name: _load(name)
    for name in (
        "alarm",
        "append_around",
        "at_work",
        "before_time",
        "commit",
        "confirm",
        "event",
        "from_time",
        "heads",
        "holders",
        "identities",
        "instance",
        "keep_state",
        "kept_claim",
        "kept_counts",
        "kept_drop",
        "kept_nearest",
        "kept_sample",
        "kept_tenants",
        "last_tagged",
        "look_directly",
        "look_up_identities",
        "mark",
        "marked",
        "outbox_back",
        "outbox_end",
        "outbox_page",
        "partition",
        "partitions",
        "placed",
        "probe",
        "quarantine",
        "reach",
        "receipt",
        "receipt_by_identity",
        "roll",
        "seal",
        "settle",
        "storage_behind",
        "storage_count",
        "storage_marks",
        "storage_totals",
        "streams",
        "streams_narrow",
        "tagged",
        "version_at",
        "waits",
    )
}
# The same swap, where it may come before its turn: then it waits for that inside Postgres, its rows at hand.
SQL["commit_in_turn"] = re.sub(
    r"UPDATE partition_log .*?(?=\n\), inserted)",
    "SELECT p FROM swap_in_turn($1, $2, $36, $3, $4, $5, $6) AS p",
    SQL["commit"],
    flags=re.DOTALL,
)
# With what its appends claim and release; others, nearly all, don't pay for it.
for _name in ("commit", "commit_in_turn"):
    _claiming = SQL[_name].replace("\n)\nSELECT count", f"\n{_load('change_claims')}\nSELECT count")
    SQL[f"{_name}_claiming"] = _claiming
    # Without tags and identities that clients chose: to insert none of them costs as much as most of a row.
    # Postgres has to know the type of each parameter, so the end names those that nothing else uses.
    SQL[f"{_name}_plain"] = re.sub(
        r", remembered AS \(.*\nSELECT count\(\*\) FROM inserted",
        "\nSELECT count(*) FROM inserted WHERE num_nulls("
        "$27::text, $28::bytea, $29::text, $30::text, $31::bytea, $32::text, $33::text) >= 0",
        SQL[_name],
        flags=re.DOTALL,
    )
for _name, _place in (("page", "seq > $2"), ("back", "seq < $2")):
    SQL[f"outbox_{_name}_at"] = SQL[f"outbox_{_name}"].replace(
        f"WHERE p = $1 AND {_place}", f"WHERE p = $1 AND seq = ANY($13::bigint[]) AND {_place}"
    )
for _name in ("page", "stream", "matches"):
    SQL[f"{_name}_asc"] = _load(_name)
    SQL[f"{_name}_desc"] = SQL[f"{_name}_asc"].replace(" ASC", " DESC")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A row of partition_log: where the truth of a partition stands. `rewound`: what was seen committed in
    an earlier epoch counts no more. `alarm`: why appends are refused."""

    epoch: int
    seq: int
    chain: str
    mode: str
    owner: str
    rewound: int = 0
    alarm: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """The id of the instance whose keys and rows these are, and the number of its partitions."""

    id: UUID
    partitions: int
    rule: str


async def open_pool(url: str, size_max: int, timeout_s: float) -> asyncpg.Pool:
    """Connections for reads and look-ups. The commit has one of its own (committer.py)."""
    return await asyncpg.create_pool(
        # No floor: asyncpg would try to restore one by itself, and log each failure with its traceback.
        url, min_size=0, max_size=size_max, command_timeout=timeout_s, server_settings=dict(_SESSION),
        reset=_nothing_to_reset, connect=connecting.connect,
    )  # fmt: skip


async def _nothing_to_reset(_connection: Any) -> None:
    """Statements here leave no session state; asyncpg's own reset would cost a round trip each time."""


async def connect(url: str, timeout_s: float) -> asyncpg.Connection:
    """A connection without a command timeout: asyncpg's would cancel the statement, and a cancelled commit
    may have happened (a cancelled wait for a synchronous standby even answers success)."""
    return await connecting.connect(url, timeout=timeout_s, server_settings=dict(_SESSION))


class Look(Protocol):
    """Runs a statement of `SQL`. Raises PostgresTrouble."""

    async def fetch(self, name: str, *args: object) -> list[Any]: ...


class Postgres:
    """Look-ups of the append protocol. Each raises PostgresTrouble when Postgres can't answer.

    `deadline_s` is that of a look-up, with its wait for a connection.

    With `keeps`, one connection of the pool is kept until `close`: to give it back takes asyncpg a task and
    some turns of the event loop, in each of which whatever else has come is done first."""

    def __init__(self, pool: asyncpg.Pool, deadline_s: float = DEADLINE_S, *, keeps: bool = False) -> None:
        self._pool = pool
        self._deadline_s = deadline_s
        self._keeps = keeps
        self._kept: Any = None
        self._releasing: set[asyncio.Task[None]] = set()

    def of(self, _tenant: bytes) -> Look:
        """For a statement on behalf of this tenant only."""
        return self

    async def fetch(self, name: str, *args: object) -> list[Any]:
        return await self._fetch(asyncio.get_running_loop().time() + self._deadline_s, name, args)

    async def _fetch(self, until: float, name: str, args: Sequence[object]) -> list[Any]:
        loop = asyncio.get_running_loop()
        try:
            connection = await self._connection(until)
            try:
                rows = list(await connection.fetch(SQL[name], *args, timeout=until - loop.time()))
            except BaseException:
                self._release_soon(connection)
                raise
            if self._keeps and self._kept is None:
                self._kept = connection
            else:
                await self._release(connection)
        except UNANSWERED as error:
            raise PostgresTrouble(f"{name}: {reason(error)}") from error
        return rows

    def _release_soon(self, connection: Any) -> None:
        """No caller waits for it: asyncpg has Postgres cancel a statement that was given up, and where that
        is silent it waits as long again."""
        task = asyncio.get_running_loop().create_task(self._release(connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release(self, connection: Any) -> None:
        with suppress(*UNANSWERED):  # then asyncpg has ended the connection
            await self._pool.release(connection)

    async def _connection(self, until: float) -> Any:
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(asyncpg.InterfaceError):  # closed, and so the pool's already
                if not kept.is_closed():
                    return kept
            await self._pool.release(kept)
        return await self._pool.acquire(timeout=max(until - asyncio.get_running_loop().time(), 0))

    async def close(self) -> None:
        self._keeps = False
        kept, self._kept = self._kept, None
        if kept is not None:
            await self._pool.release(kept)

    async def instance(self) -> Instance:
        row = (await self.fetch("instance"))[0]
        return Instance(UUID(bytes=row["id"].bytes), row["partitions"], row["partition_rule"])

    async def partition(self, p: int) -> PartitionRow:
        return PartitionRow(*(await self.fetch("partition", p))[0])

    async def seal(self, p: int, epoch: int, owner: str, mode: str, beyond: int = 0) -> PartitionRow | None:
        """Ends `epoch` and begins one, later than `beyond`, whose appends take the way `mode`; None when it
        had ended already."""
        rows = await self.fetch("seal", p, epoch, owner, mode, beyond)
        if not rows:
            return None
        row = rows[0]
        return PartitionRow(row["epoch"], row["seq"], row["chain"], mode, owner, row["rewound"])

    async def keep_alarm(self, p: int, who: str, epoch: int, seq: int, chain: str, why: str) -> None:
        """Keeps what was seen committed and Postgres does not have, if Postgres lets us: it may be
        read-only, or the role not up to it. Called again and again while it is so."""
        with suppress(PostgresTrouble, asyncpg.PostgresError):
            await self.fetch("alarm", p, who, epoch, seq, chain, why)

    async def takes_writes(self) -> bool:
        return bool((await self.fetch("probe"))[0][0])


class Reads(Postgres):
    """Look-ups of clients' reads, on connections that tenants share. Those that are of no tenant, or of
    several, count as another one's."""

    def __init__(self, shares: Shares, deadline_s: float) -> None:
        super().__init__(shares.pool, deadline_s)
        self._turns = shares.turns

    def of(self, tenant: bytes) -> Look:
        return _OfTenant(self, tenant)

    def fetch(self, name: str, *args: object) -> Coroutine[Any, Any, list[Any]]:
        return self.fetch_for(_SEVERAL, name, *args)

    async def fetch_for(self, tenant: bytes, name: str, *args: object) -> list[Any]:
        until = asyncio.get_running_loop().time() + self._deadline_s
        try:
            async with asyncio.timeout_at(until):
                await self._turns.begin(tenant)
        except TimeoutError:
            why = f"{name}: other reads took all connections for {self._deadline_s:g} s"
            raise PostgresTrouble(why) from None
        try:
            return await self._fetch(until, name, args)
        finally:
            self._turns.end(tenant)


_SEVERAL: Final = b""


class _OfTenant:
    """Reads on behalf of one tenant."""

    __slots__ = ("_reads", "_tenant")

    def __init__(self, reads: Reads, tenant: bytes) -> None:
        self._reads = reads
        self._tenant = tenant

    async def fetch(self, name: str, *args: object) -> list[Any]:
        return await self._reads.fetch_for(self._tenant, name, *args)
