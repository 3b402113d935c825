"""/_/health/live and /_/health/ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import Refusal
from gateway.http.render import refusal_json
from gateway.http.response import json_response

# Neither path needs a key, so one look at the servers is shared by all who ask while it lasts, and by those
# who ask within this time of its beginning.
READY_FOR_S = 0.25


class Health:
    """Live: the process answers. Ready: `look` finds nothing in the way of its work; else the answer is what
    it finds, behind `unready`. `mode` is told where there are several."""

    def __init__(
        self,
        look: Callable[[], Coroutine[Any, Any, str | None]],
        unready: str,
        mode: Callable[[], str] | None = None,
    ) -> None:
        self._look_now = look
        self._unready = unready
        self._mode = mode
        self._looking: asyncio.Task[str | None] | None = None
        self._began = 0.0

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """No look is under way after it is left; requests must have ended by then."""
        try:
            yield
        finally:
            if self._looking is not None:
                self._looking.cancel()
                await asyncio.wait((self._looking,))

    async def live(self, _request: Request) -> Response:
        return json_response(200, b'{"ok":true}')

    async def ready(self, _request: Request) -> Response:
        fault = await asyncio.shield(self._look())  # who hangs up must not end it for the others
        if fault is None:
            mode = b"" if self._mode is None else b',"mode":"%b"' % self._mode().encode()
            return json_response(200, b'{"ok":true%b}' % mode)
        unready = Refusal("unavailable", f"{self._unready}: {fault}.")
        return json_response(503, refusal_json(unready), {"retry-after": "1"})

    def _look(self) -> asyncio.Task[str | None]:
        """The last one, if it may still be told, else another."""
        looking, now = self._looking, time.monotonic()
        if looking is None or (looking.done() and now - self._began > READY_FOR_S):
            looking = self._looking = asyncio.create_task(self._look_now())
            self._began = now
        return looking
