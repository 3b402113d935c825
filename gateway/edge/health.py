"""/_/health/live and /_/health/ready."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from gateway.edge.render import refusal_json
from gateway.edge.respond import json_response
from gateway.errors import Refusal
from gateway.log.log import Log

# Neither path needs a key, so one look at the servers is shared by all who ask within this time.
READY_FOR_S = 0.25


class Health:
    """Live: the process answers. Ready: an append could commit now, over Redis or directly."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._looked_at = float("-inf")
        self._fault: str | None = None

    async def live(self, _request: Request) -> Response:
        return json_response(200, b'{"ok":true}')

    async def ready(self, _request: Request) -> Response:
        now = time.monotonic()
        if now - self._looked_at > READY_FOR_S:
            self._fault = await self._log.ready()
            self._looked_at = now
        if self._fault is None:
            return json_response(200, b'{"ok":true,"mode":"%b"}' % self._log.mode.encode())
        unready = Refusal("unavailable", f"No append could commit now: {self._fault}.")
        return json_response(503, refusal_json(unready), {"retry-after": "1"})
