"""The errors of asyncpg that mean a Postgres that can't be reached, and the exceptions they become."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.redact import reason

CONNECTION_ERRORS: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has ended a connection that is being used this very moment
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleSessionTimeoutError,
)
"""Errors after which the answer of a statement is unknown, or no statement was run."""

UNANSWERED: Final = (*CONNECTION_ERRORS, asyncpg.PostgresError)
"""What a statement raises where Postgres does not answer, or not as it should."""


@contextmanager
def mapped_to(
    trouble: type[PostgresTrouble], said: str = "", errors: tuple[type[Exception], ...] = UNANSWERED
) -> Iterator[None]:
    """Any of `errors` becomes `trouble`, with its reason after `said`."""
    try:
        yield
    except errors as error:
        raise trouble(f"{said}{reason(error)}") from error
