"""/_/deliveries: webhooks that came in, as they were kept, and the end of those in quarantine.

Owns how they are told over HTTP. What is kept of a delivery is the intake's (inbound/store.py).
"""

from __future__ import annotations

from typing import Any, Final, get_args
from uuid import UUID

import asyncpg
from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import read_object
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.inbound import store
from gateway.log.postgres import PostgresTrouble

DELIVERIES_DEFAULT: Final = 100
DELIVERIES_MAX: Final = 1_000
"""Of a page, and of one call of discard."""

VERDICTS: Final = get_args(store.Verdict)


class Deliveries:
    def __init__(self, pool: asyncpg.Pool, aside: Aside, config: Config) -> None:
        self._pool, self._aside, self._config = pool, aside, config

    async def every(self, request: Request) -> Response:
        """The newest first; `next` is the `before` of the next page."""
        query = Parameters(request.scope["query_string"])
        limit = query.integer("limit", DELIVERIES_DEFAULT, 1, DELIVERIES_MAX)
        reason, before = query.text("reason"), query.text("before")
        verdict = query.choice("verdict", VERDICTS, "quarantined" if reason else "") or None
        if reason is not None and verdict != "quarantined":
            why = "Only deliveries in quarantine have a reason: `verdict=quarantined`."
            raise Refused(Refusal("invalid_field", why, "reason"))
        rows = await self._listed(
            request,
            store.Wanted(
                source=query.text("source"),
                verdict=verdict,
                before=store.LAST_ID if before is None else uuid_of(before, "before").bytes,
                limit=limit,
                reason=reason,
            ),
        )
        following = rows[-1]["id"] if len(rows) == limit else None
        return json_response(200, encode({"ok": True, "deliveries": rows, "next": following}))

    async def discard(self, request: Request) -> Response:
        """Ends what is in quarantine: by `ids`, the deliveries' or the provider's own, or the oldest of all
        of a `source` or with a `reason`."""
        body = await read_object(request, self._aside, self._config, ("ids", "source", "reason"))
        source, reason = _text(body, "source"), _text(body, "reason")
        if "ids" in body:
            if reason is not None:
                why = "Name deliveries, or a reason, not both."
                raise Refused(Refusal("invalid_field", why, "reason"))
            ids = [each for text in _ids(body["ids"]) for each in await self._meant(request, text, source)]
        elif source is None and reason is None:
            raise Refused(Refusal("missing_field", "Name `ids`, a `source` or a `reason`.", "ids"))
        else:
            wanted = store.Wanted(source, "quarantined", limit=DELIVERIES_MAX, reason=reason)
            ids = [UUID(row["id"]).bytes for row in await self._listed(request, wanted)]
        try:
            gone = await store.discard(self._pool, _tenant(request), ids) if ids else []
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        more = "ids" not in body and len(ids) == DELIVERIES_MAX
        return json_response(200, encode({"ok": True, "discarded": gone, "more": more}))

    async def _meant(self, request: Request, text: str, source: str | None) -> list[bytes]:
        """Those in quarantine with this id, the provider's or our own."""
        wanted = store.Wanted(source, "quarantined", delivery_id=text, limit=DELIVERIES_MAX)
        rows = await self._listed(request, wanted)
        if rows:
            return [UUID(row["id"]).bytes for row in rows]
        try:
            return [UUID(text).bytes]
        except ValueError:
            return []

    async def _listed(self, request: Request, wanted: store.Wanted) -> list[dict[str, Any]]:
        try:
            return await store.listed(self._pool, _tenant(request), wanted)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble


_UNAVAILABLE = Refusal(
    "unavailable", "Postgres does not answer, and deliveries are kept there. Try again shortly."
)


def _tenant(request: Request) -> bytes:
    principal: Principal = request.scope["sluice.principal"]
    return principal.tenant.id.bytes


def _text(body: dict[str, object], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= 255):
        raise Refused(Refusal("invalid_field", f"`{field}` is a text.", field))
    return value


def _ids(value: object) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= DELIVERIES_MAX:
        raise Refused(Refusal("invalid_field", f"`ids` is a list of 1 to {DELIVERIES_MAX} ids.", "ids"))
    for number, each in enumerate(value):
        if not isinstance(each, str) or not each:
            raise Refused(Refusal("invalid_field", "An id is a text.", f"ids[{number}]"))
    return value
