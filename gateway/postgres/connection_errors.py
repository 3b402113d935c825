"""The errors of asyncpg that mean a Postgres that can't be reached."""

from __future__ import annotations

from typing import Final

import asyncpg

CONNECTION_ERRORS: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleSessionTimeoutError,
)
"""Errors after which the answer of a statement is unknown, or no statement was run."""
