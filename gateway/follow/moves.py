"""Readers of this process that wait for followers to move. A follower of this process wakes them at once;
those of other processes are polled, sooner after commits.

Owns: one look a tenant for all who wait for it, however many they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from gateway.follow.database import fetch
from gateway.log.read.followers import Follower
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.relay import Listen
from gateway.tasks import set_within

logger = logging.getLogger("sluice.follow")

_FIRST_S: Final = 0.008
_SLOWEST_S: Final = 0.25
_EACH_S: Final = 0.001
"""Between two looks of one who waits, for each who does: together they ask a thousand times a second at
most."""


class Moves:
    def __init__(self, pool: asyncpg.Pool, listen: Listen | None) -> None:
        self._pool = pool
        self._listen = listen
        self._of: dict[bytes, set[Follower]] = {}
        self._looks: dict[bytes, asyncio.Task[None]] = {}
        self._hurry: Callable[[bytes], None] | None = None

    @contextmanager
    def kept_by(self, hurry: Callable[[bytes], None]) -> Iterator[None]:
        """Meanwhile this process may keep followers: `hurry` is called where a reader waits for those of a
        tenant."""
        self._hurry = hurry
        try:
            yield
        finally:
            self._hurry = None

    def hurry(self, tenant: bytes) -> None:
        """Tells followers of the tenant that a reader waits for them."""
        if self._hurry is not None:
            self._hurry(tenant)

    def moved(self, tenant: bytes) -> None:
        for each in self._of.get(tenant, ()):
            each.wake()

    def pause_s(self, tenant: bytes) -> float:
        """How long one who follows live waits after a look."""
        return _EACH_S * len(self._of.get(tenant, ()))

    @contextmanager
    def watching(self, tenant: bytes) -> Iterator[Follower]:
        """Woken by each move of the tenant's followers."""
        watch = Follower()
        watches = self._of.setdefault(tenant, set())
        watches.add(watch)
        if tenant not in self._looks:
            self._looks[tenant] = asyncio.get_running_loop().create_task(self._look(tenant))
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches:
                del self._of[tenant]
                self._looks.pop(tenant).cancel()

    async def _look(self, tenant: bytes) -> None:
        """Until no request waits: asks how far the followers are, soon after a commit, and then less and less
        often."""
        committed = asyncio.Event()
        pause_s, before = _SLOWEST_S, None
        with nullcontext() if self._listen is None else self._listen(committed.set):
            while True:
                try:
                    (row,) = await fetch(self._pool, "moved", UUID(tenant))
                except PostgresTrouble:
                    row = None
                except Exception:  # as uvloop's RuntimeError of a connection that closes at this moment
                    logger.exception("task_restarted")
                    row = None
                if row is not None and tuple(row) != before:
                    before, pause_s = tuple(row), _FIRST_S
                    self.moved(tenant)
                if await set_within(committed, pause_s):
                    committed.clear()
                    pause_s = _FIRST_S
                    await asyncio.sleep(_FIRST_S)
                else:
                    pause_s = min(2 * pause_s, _SLOWEST_S)
