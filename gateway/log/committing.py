"""One compare-and-swap on Postgres, sent until its outcome is known.

A commit is never cancelled: a cancelled statement may have been carried out, and a cancelled wait for a
synchronous standby answers success with a warning. A connection that is too slow is dropped instead and
the same statement is sent on a new one; the compare-and-swap tells which of the two counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from gateway.log.entries import Placed, chain_over, commit_columns
from gateway.log.postgres import CONNECTION_ERRORS, SQL, PostgresTrouble, connect
from gateway.telemetry.redact import reason


class RefusedByPostgres(Exception):
    """Postgres refused the rows themselves (a constraint, a value): only a bug can bring this."""


class ChainBroken(Exception):
    """The rows at hand do not add up to the chain that the script returned: they must not be committed."""


class CommitConnection:
    """A connection that only commits. Made anew after anything unexpected."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._connection: asyncpg.Connection | None = None
        self._warned = False

    async def swap(
        self, p: int, epoch: int, before: tuple[int, str], after: tuple[int, str], run: Sequence[Placed]
    ) -> bool:
        """Moves partition `p` from (seq, chain) `before` to `after` and inserts `run`; False when the
        partition stood elsewhere, and then nothing was done.

        Raises ChainBroken before anything is sent, RefusedByPostgres when the rows were refused (nothing
        was done), PostgresTrouble when the outcome is unknown: send the same again.
        """
        if chain_over(before[1], run) != after[1]:
            raise ChainBroken(
                f"partition {p}: rows after seq {before[0]} do not give the chain at {after[0]}"
            )
        return await self._send("commit", p, epoch, *before, *after, *commit_columns(run)) > 0

    async def settle(self, p: int) -> None:
        """What was found committed may be so on this server alone: its wait for a standby was cancelled, or
        its backend ended. Afterwards it is as durable as what was committed here, for a standby takes
        commits in order. Raises PostgresTrouble."""
        await self._send("settle", p)

    async def _send(self, name: str, *args: Any) -> int:
        task = asyncio.ensure_future(self._statement(name, *args))
        task.add_done_callback(_swallow)
        done, _ = await asyncio.wait((task,), timeout=self._timeout_s)
        if not done:
            self.drop()
            raise PostgresTrouble(f"no answer to a {name} within {self._timeout_s:g} s")
        rows = task.result()
        if self._warned:
            self.drop()
            raise PostgresTrouble(f"the {name} was answered with a warning: it may not be durable yet")
        return rows

    async def _statement(self, name: str, *args: Any) -> int:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._url, self._timeout_s)
                self._connection.add_log_listener(self._on_notice)
            self._warned = False
            return int(await self._connection.fetchval(SQL[name], *args))
        except CONNECTION_ERRORS as error:
            self.drop()
            raise PostgresTrouble(f"{name}: {reason(error)}") from error
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise RefusedByPostgres(reason(error)) from error
        except asyncpg.PostgresError as error:
            self.drop()
            raise PostgresTrouble(f"{name}: {reason(error)}") from error

    def _on_notice(self, _connection: Any, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warned = True

    def drop(self) -> None:
        """Closes the socket without a cancel request: the server finishes what it has begun."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except CONNECTION_ERRORS:
                connection.terminate()


def _swallow(task: asyncio.Future[int]) -> None:
    """Nobody may be left to take a statement's error: it was dropped, or the gateway stops. It says nothing
    that the resent one does not."""
    if not task.cancelled():
        task.exception()
