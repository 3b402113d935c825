"""Writes deliveries behind the answers: many rows a statement, bounded in memory; and ends old ones.

What is in quarantine is waited for, since its sender is told that it is kept. Of the others the event itself
is the record: a gateway that is killed loses the raw copies of its last moments, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from gateway.inbound import store
from gateway.inbound.store import Kept
from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import ended, set_within

logger = logging.getLogger("sluice.intake")

ROWS_MAX: Final = 1_000
BYTES_MAX: Final = 64 * 1024 * 1024
"""Raw copies in memory while Postgres is slow; past it they are left out, and said so."""

GATHER_S: Final = 0.2
"""Rows come together for that long: a statement costs as much as dozens of its rows."""

AGAIN_S: Final = 0.5
EXPIRE_EVERY_S: Final = 60.0
EXPIRE_ROWS_MAX: Final = 5_000
"""Looked at by a statement. As long as there are more that are old, the next one follows once all that came
meanwhile is written: some 20,000 a second, more than a gateway takes in."""

_FIRST_ID: Final = bytes(16)


@asynccontextmanager
async def recording(pool: asyncpg.Pool, keep_s: float, quarantine_keep_s: float) -> AsyncIterator[Recorder]:
    """A recorder at work, to its last row."""
    recorder = Recorder(pool, keep_s, quarantine_keep_s)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        await ended((task,))
        await recorder.flush()


class Recorder:
    """One a gateway. `run` until it is cancelled, then `flush`."""

    def __init__(self, pool: asyncpg.Pool, keep_s: float, quarantine_keep_s: float) -> None:
        self._pool = pool
        self._keep_s, self._quarantine_keep_s = keep_s, quarantine_keep_s
        self._expired_to = _FIRST_ID
        self._waiting: deque[bytes] = deque()  # as they are written: a fraction of what a request takes
        self._size = 0
        self._some = asyncio.Event()

    def keep(self, row: Kept) -> None:
        """Sooner or later; never blocks."""
        copied = store.copied(row)
        if self._size + len(copied) > BYTES_MAX:
            logger.error("delivery_log_dropped", extra={"source": row.source})
            return
        self._waiting.append(copied)
        self._size += len(copied)
        if not self._some.is_set():
            self._some.set()

    async def kept(self, rows: list[Kept]) -> None:
        """Now. Raises PostgresTrouble: then nothing is."""
        await store.keep(self._pool, rows)

    async def run(self) -> None:
        """Writes what comes, until cancelled."""
        expire_at = time.monotonic() + EXPIRE_EVERY_S
        while True:
            try:
                await self._write_all()
                if time.monotonic() >= expire_at:
                    expire_at = time.monotonic() + EXPIRE_EVERY_S
                    if await self._expire():
                        expire_at = time.monotonic()
            except PostgresTrouble as trouble:
                logger.warning("delivery_log_backlog", extra={"reason": str(trouble)})
                await asyncio.sleep(AGAIN_S)
            except Exception:
                logger.exception("task_restarted")
                await asyncio.sleep(AGAIN_S)
            self._some.clear()
            if not self._waiting:
                await set_within(self._some, max(expire_at - time.monotonic(), 0))
            await asyncio.sleep(GATHER_S)

    async def _expire(self) -> bool:
        """Whether there may be more that is old. What stays for now is passed over until the next round."""
        keep_s, held_s, after = self._keep_s, self._quarantine_keep_s, self._expired_to
        expired = await store.expire(self._pool, keep_s, held_s, after, EXPIRE_ROWS_MAX)
        if expired.quarantined:
            logger.error("webhook_quarantine_ended", extra={"count": expired.quarantined})
        more = expired.looked_at == EXPIRE_ROWS_MAX
        self._expired_to = expired.last if more and expired.last is not None else _FIRST_ID
        return more

    async def flush(self) -> None:
        """Writes what is left, if Postgres answers."""
        try:
            await self._write_all()
        except PostgresTrouble as trouble:
            logger.warning("delivery_log_backlog", extra={"reason": str(trouble)})

    async def _write_all(self) -> None:
        """All that waits by now: what comes meanwhile comes together first."""
        for _ in range(0, len(self._waiting), ROWS_MAX):
            await self._write()

    async def _write(self) -> None:
        rows = [self._waiting[n] for n in range(min(len(self._waiting), ROWS_MAX))]
        try:
            await store.keep_soon(self._pool, rows)
        except store.RowRefused:
            await self._write_singly(rows)
            return
        self._written(rows)

    async def _write_singly(self, rows: list[bytes]) -> None:
        """So that one that Postgres does not take holds up no other."""
        for row in rows:
            try:
                await store.keep_soon(self._pool, [row])
            except store.RowRefused as refused:
                told = {"delivery": str(store.id_of(row)), "reason": str(refused)}
                logger.error("webhook_copy_refused", extra=told)
            self._written([row])

    def _written(self, rows: list[bytes]) -> None:
        """They are the oldest of those that wait."""
        for row in rows:
            self._waiting.popleft()
            self._size -= len(row)
