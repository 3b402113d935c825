"""/_/sagas: the state of sagas, and the ways to end those that are stuck."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.http.api.schedules import PAGE_BYTES, cursor_of, cursor_text, time_text
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode, raw
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.reactions.coordinator import Coordinator
from gateway.reactions.database import fetch

STATES: Final = ("running", "completed", "compensated", "stuck", "abandoned")
LISTED_DEFAULT, LISTED_MAX = 50, 1_000
SEEN_S: Final = 2.0
"""So long an answer waits until the table has what followed from a person's word."""
AGAIN_S: Final = 0.02
_UNAVAILABLE: Final = Refusal(
    "unavailable", "Postgres, which stores sagas, does not answer. Try again shortly."
)


class Sagas:
    def __init__(self, shares: Shares, coordinator: Coordinator) -> None:
        self._shares = shares
        self._coordinator = coordinator

    async def every(self, request: Request) -> Response:
        """Those that changed last first; `next` is the `cursor` of the next page."""
        query = Parameters(request.scope["query_string"])
        state = query.choice("state", STATES, "") or None
        limit = query.integer("limit", LISTED_DEFAULT, 1, LISTED_MAX)
        before_us, before_id = cursor_of(query.text("cursor")) or (None, None)
        asked = _tenant(request), state, before_us, before_id, limit + 1, PAGE_BYTES
        rows = await self._fetched("list_sagas", *asked)
        more = bool(rows) and rows[0]["found"] > len(rows[:limit])
        rows = rows[:limit]
        following = cursor_text(rows[-1]["changed_at"], rows[-1]["id"]) if more else None
        return _done({"items": [_shown(row) for row in rows], "next": following})

    async def get(self, request: Request) -> Response:
        return _done(_single(await self._one(request)))

    async def retry(self, request: Request) -> Response:
        """Compensates a stuck one once more."""
        return await self._acted(request, self._coordinator.retry)

    async def abandon(self, request: Request) -> Response:
        """A stuck one ends as it is."""
        return await self._acted(request, self._coordinator.abandon)

    async def _acted(self, request: Request, act: Any) -> Response:
        row = await self._one(request)
        try:
            done = await act(_tenant(request).bytes, row["id"].bytes)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        if not done:
            why = f"Only a stuck saga can be retried or abandoned; this one is {row['state']}."
            raise Refused(Refusal("saga_not_stuck", why))
        until = time.monotonic() + SEEN_S
        before = row["length"]
        while row["length"] <= before and time.monotonic() < until:
            await asyncio.sleep(AGAIN_S)
            row = await self._one(request)
        return _done(_single(row))

    async def _one(self, request: Request) -> Any:
        found = uuid_of(request.path_params["id"] or "", "id")
        rows = await self._fetched("get_saga", _tenant(request), found)
        if not rows:
            raise Refused(Refusal("not_found", "There is no such saga."))
        return rows[0]

    async def _fetched(self, name: str, tenant: UUID, *args: object) -> list[Any]:
        try:
            return await fetch(self._shares.of(tenant.bytes), name, tenant, *args)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "state": row["state"],
        "length": row["length"],
        "data": raw(bytes(row["data"])),
        "started_at": time_text(row["started_at"]),
        "changed_at": time_text(row["changed_at"]),
    }


def _single(row: Any) -> dict[str, Any]:
    """As lists have it; and under a name, as answers had it at first."""
    shown = _shown(row)
    return {**shown, "saga": shown}


def _tenant(request: Request) -> UUID:
    principal: Principal = request.scope["sluice.principal"]
    return principal.tenant.id


def _done(body: dict[str, Any]) -> Response:
    return json_response(200, encode({"ok": True, **body}))
