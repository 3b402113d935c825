"""Work that a component repeats for as long as its process runs, whatever fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import set_within, to_tick

DUE_S: Final = 0.01


class Repeated:
    """One a component. While Postgres does not answer it logs so once, until some of the work succeeds."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._away = False

    async def run(
        self,
        work: Callable[[], Awaitable[object]],
        pause_s: float,
        is_due: Callable[[], bool] | None = None,
        wakes: asyncio.Event | None = None,
    ) -> None:
        """Until cancelled. Between two times it pauses, for `DUE_S` only where the work `is_due`, and no
        longer than until `wakes` is set, which the work clears."""
        while True:
            try:
                await work()
                self._away = False
            except PostgresTrouble as trouble:
                self.failed(trouble)
            except Exception:
                self._logger.exception("task_restarted")
            if wakes is not None and not wakes.is_set():
                await set_within(wakes, to_tick(pause_s))
            else:
                await asyncio.sleep(DUE_S if is_due is not None and is_due() else to_tick(pause_s))

    def failed(self, trouble: PostgresTrouble) -> None:
        if not self._away:
            self._logger.warning("relay_postgres_unavailable", extra={"reason": str(trouble)})
        self._away = True
