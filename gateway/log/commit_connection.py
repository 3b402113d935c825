"""One compare-and-swap on Postgres, sent until its outcome is known.

A commit is never cancelled: a cancelled statement may have been carried out, and a cancelled wait for a
synchronous standby answers success with a warning. A connection that is too slow is dropped instead and
the same statement is sent on a new one; the compare-and-swap tells which of the two counted. Where both wait,
for a standby or a lock, a third would wait too: one of the two has to end first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from gateway.log.entries import SequencedAppend, chain_over, claim_columns, commit_columns
from gateway.log.postgres import REDIS, SQL, Postgres, connect
from gateway.postgres.connection_errors import CONNECTION_ERRORS, UNANSWERED
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.redact import reason

BACKENDS_MAX: Final = 2
"""At work for one CommitConnection: that of a connection that was dropped, and its stand-in."""

_LOOK_EVERY_S: Final = 0.25


class RefusedByPostgres(Exception):
    """Postgres rejected the rows themselves (a constraint, a value), which only a bug can cause."""


class ChainBroken(Exception):
    """The rows at hand do not add up to the chain that the script returned: they must not be committed."""


class Ready(NamedTuple):
    """What is sent of a run. Its ends, (seq, chain) each, say which: equal chains mean equal rows."""

    before: tuple[int, str]
    after: tuple[int, str]
    columns: list[Any]
    claims: list[Any]
    kind: str
    """How the name of its statement ends."""


def made_ready(before: tuple[int, str], after: tuple[int, str], run: Sequence[SequencedAppend]) -> Ready:
    """Raises ChainBroken."""
    if chain_over(before[1], run) != after[1]:
        raise ChainBroken(f"rows after seq {before[0]} do not give the chain at {after[0]}")
    claims = claim_columns(run)
    plain = not any(placed.chosen or placed.tags for placed in run)
    kind = "_claiming" if claims else "_plain" if plain else ""
    return Ready(before, after, commit_columns(run), claims, kind)


class CommitConnection:
    """A connection that only commits. Made again after anything unexpected: `again` is called then, since it
    may lead to another Postgres than before, or to the same with less in it. `session` counts how often it
    was made."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        again: Callable[[], None] | None = None,
        postgres: Postgres | None = None,
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._again = again
        self._postgres = postgres
        self._opened = 0  # the pid of the backend that was asked last: asyncpg forgets it as it closes
        self._left: list[int] = []  # pids of backends whose connection was dropped
        self.session = 0
        self._connection: asyncpg.Connection | None = None
        self._warned = False
        self._loop = asyncio.get_running_loop()

    async def swap(
        self,
        p: int,
        epoch: int,
        before: tuple[int, str],
        after: tuple[int, str],
        run: Sequence[SequencedAppend],
        mode: str = REDIS,
        in_turn: bool = False,
        ready: Ready | None = None,
    ) -> bool:
        """Moves partition `p` from (seq, chain) `before` to `after` and inserts `run`; False when the
        partition stood elsewhere or appends take another way than `mode`, and then nothing was done. With
        `in_turn`, as long as it stands before `before` it waits there for the commit of what is between,
        and gives up when there is none for some 30 ms. `ready` of another run counts for nothing.

        Raises ChainBroken before anything is sent, RefusedByPostgres when the rows were refused (nothing
        was done), PostgresTrouble when the outcome is unknown: send the same again.
        """
        if ready is None or (ready.before, ready.after) != (before, after):
            ready = made_ready(before, after, run)
        name = ("commit_in_turn" if in_turn else "commit") + ready.kind
        columns = (*before, *after, *ready.columns, mode, *ready.claims)
        return int(await self._send(name, asyncpg.Connection.fetchval, p, epoch, *columns)) > 0

    async def settle(self, ps: Sequence[int], seqs: Sequence[int]) -> list[Any]:
        """The rows of settle.sql, which are then as durable as what is committed here. Waits as long as that
        takes. Raises PostgresTrouble."""
        rows: list[Any] = await self._send("settle", asyncpg.Connection.fetch, ps, seqs, timed=False)
        return rows

    async def _send(
        self, name: str, send: Callable[..., Awaitable[Any]], *args: Any, timed: bool = True
    ) -> Any:
        # Neither timed out nor cancelled by asyncpg, which would cancel the statement too; and no task of its
        # own, which would put three turns of the event loop between Postgres' answer and ours.
        connection = await self._open(name)
        late = self._loop.call_later(self._timeout_s, connection.terminate) if timed else None
        self._warned = False
        try:
            answer = await send(connection, SQL[name], *args)
        except asyncio.CancelledError:
            self.drop()  # at once: asyncpg is about to ask the server to cancel the statement
            raise
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise RefusedByPostgres(reason(error)) from error
        except (*UNANSWERED, AttributeError) as error:
            # asyncpg raises AttributeError where the connection ended between a statement and its arguments.
            if isinstance(error, AttributeError) and not connection.is_closed():
                raise
            self.drop()
            raise PostgresTrouble(f"{name}: {self._why(late, error)}") from error
        finally:
            if late is not None:
                late.cancel()
        if self._warned:
            self.drop()
            raise PostgresTrouble(f"the {name} was answered with a warning: it may not be durable yet")
        return answer

    @property
    def pid(self) -> int | None:
        """Of the backend that works for it."""
        if self._connection is None or self._connection.is_closed():
            return None
        pid: int = self._connection.get_server_pid()
        return pid

    async def _open(self, name: str) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self.drop()
            await self._one_has_ended(name)
            try:
                self._connection = await connect(self._url, self._timeout_s)
            except UNANSWERED as error:
                raise PostgresTrouble(f"{name}: {reason(error)}") from error
            self._opened = self._connection.get_server_pid()
            self._connection.add_log_listener(self._on_notice)
            self.session += 1
            if self.session > 1 and self._again is not None:
                self._again()
        return self._connection

    async def _one_has_ended(self, name: str) -> None:
        """Waits while as many backends as there may be are at work. Raises PostgresTrouble."""
        until = self._loop.time() + self._timeout_s
        while self._postgres is not None and len(self._left) >= BACKENDS_MAX:
            rows = await self._postgres.fetch("at_work", self._left)
            self._left = [row["pid"] for row in rows]
            if len(self._left) < BACKENDS_MAX:
                return
            if self._loop.time() >= until:
                raise PostgresTrouble(f"{name}: an earlier statement still waits in Postgres")
            await asyncio.sleep(_LOOK_EVERY_S)

    def _why(self, late: asyncio.TimerHandle | None, error: Exception) -> str:
        over = late is not None and self._loop.time() >= late.when()
        return f"no answer within {self._timeout_s:g} s" if over else reason(error)

    def _on_notice(self, _connection: Any, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warned = True

    def drop(self) -> None:
        """Closes the socket without a cancel request: the server finishes what it has begun."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._postgres is not None:
                self._left.append(self._opened)
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except CONNECTION_ERRORS:
                connection.terminate()
