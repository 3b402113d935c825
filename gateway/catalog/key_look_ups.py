"""Looks up keys that are not in memory in Postgres, many by one statement.

Owns: who waits for which key. One statement is under way at a time, on connections that serve nothing else: a
flood of unknown keys can't keep the catalog from following its clock. How many may wait is for the caller
to bound.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.catalog.database import Database, statement
from gateway.catalog.model import CatalogUnavailable
from gateway.postgres.connection_errors import UNANSWERED
from gateway.telemetry.redact import reason

BATCH_MAX: Final = 64
"""Keys of one statement: some milliseconds, so that the next caller does not wait for long."""

ANSWER_S: Final = 2.0
"""Look-ups by index; two tries fit within the time for which a gateway honours keys without Postgres."""

_BROKEN_OFF: Final = "the query was interrupted"


class KeyLookUps:
    """`pool` should be its own."""

    def __init__(self, pool: Database) -> None:
        self._pool = pool
        self._waiting: dict[bytes, asyncio.Future[Any]] = {}  # by digest, those that were not asked for yet
        self._asking: asyncio.Task[None] | None = None

    async def find(self, digest: bytes) -> Any | None:
        """The row of a living key, read after this call began (find_keys.sql); None where there is none.
        Raises CatalogUnavailable."""
        found = self._waiting.get(digest)
        if found is None:
            if self._asking is None:  # first: a key that waits is asked for
                self._asking = asyncio.create_task(self._ask())
            found = self._waiting[digest] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(found)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                digests = list(self._waiting)[:BATCH_MAX]
                await self._answer({digest: self._waiting.pop(digest) for digest in digests})
        finally:  # also after a bug: those that still wait would wait for the next caller with another key
            self._asking = None
            waiting, self._waiting = self._waiting, {}
            self._fail(waiting, CatalogUnavailable(_BROKEN_OFF))

    async def _answer(self, asked: dict[bytes, asyncio.Future[Any]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S), self._pool.acquire(timeout=ANSWER_S) as conn:
                rows = await conn.fetch(statement("find_keys"), list(asked))
            found = {row["digest"]: row for row in rows}
        except TimeoutError:
            self._fail(asked, CatalogUnavailable(f"Postgres gave no answer within {ANSWER_S:g} s"))
        except UNANSWERED as error:
            self._fail(asked, CatalogUnavailable(f"Postgres does not answer: {reason(error)}"))
        except BaseException:
            self._fail(asked, CatalogUnavailable(_BROKEN_OFF))
            raise
        else:
            for digest, future in asked.items():
                future.set_result(found.get(digest))

    def _fail(self, asked: dict[bytes, asyncio.Future[Any]], why: CatalogUnavailable) -> None:
        for future in asked.values():
            future.set_exception(why)
            future.exception()  # its caller may have gone
