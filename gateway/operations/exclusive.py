"""The lock that allows one repair or rewind at a time, and the operator who runs it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.operations.place import OperationFailed, Place, statement


@asynccontextmanager
async def exclusive(place: Place) -> AsyncIterator[None]:
    """Raises OperationFailed while another repair or rewind of this instance runs."""
    async with place.pool.acquire() as connection:
        if not await connection.fetchval(statement("lock")):
            raise OperationFailed("another `sluice repair` or `sluice rewind` is running: wait for it to end")
        try:
            yield
        finally:
            await connection.execute("SELECT pg_advisory_unlock_all()")


def operator() -> str:
    """`user@machine`, for the trail."""
    return f"{getpass.getuser()}@{socket.gethostname()}"
