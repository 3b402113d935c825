"""/_/deliveries: webhooks that came in, as they were kept, replays, and the end of those in quarantine.

Owns how they are told over HTTP. What is kept of a delivery is the intake's (inbound/store.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, get_args
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import read_object
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.inbound import store
from gateway.inbound.intake import Intake
from gateway.inbound.replayer import Replayer, without_event
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share, Shares

DELIVERIES_DEFAULT: Final = 100
DELIVERIES_MAX: Final = 1_000
"""Of a page, and of one call of discard."""

REPLAYED_MAX: Final = 100
"""Of one call: each is an append."""

VERDICTS: Final = get_args(store.Verdict)


class Deliveries:
    def __init__(
        self, shares: Shares, intake: Intake, catalog: Catalog, aside: Aside, config: Config
    ) -> None:
        self._shares, self._intake, self._catalog = shares, intake, catalog
        self._aside, self._config = aside, config

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

    async def get(self, request: Request) -> Response:
        """One, with its request as it came; null where that is kept no longer, or another delivery of the
        same request holds it."""
        named = uuid_of(request.path_params["id"], "id")
        try:
            found = await store.stored(self._share(request), _tenant(request), named.bytes)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        if found is None:
            raise Refused(Refusal("not_found", f"There is no delivery {named}."))
        body = {"ok": True, "delivery": {**found.shown, "request": store.request_shown(found.request)}}
        return json_response(200, encode(body))

    async def discard(self, request: Request) -> Response:
        """Ends what is in quarantine: by `ids`, the deliveries' or the provider's own, or the oldest of all
        of a `source` or with a `reason`."""
        body = await read_object(request, self._aside, self._config, ("ids", "source", "reason"))
        source, reason = _text(body, "source"), _text(body, "reason")
        if "ids" in body:
            if reason is not None:
                why = "Name deliveries, or a reason, not both."
                raise Refused(Refusal("invalid_field", why, "reason"))
            named = _ids(body["ids"], DELIVERIES_MAX)
            ids = [each for text in named for each in await self._meant(request, text, source)]
        elif source is None and reason is None:
            raise Refused(Refusal("missing_field", "Name `ids`, a `source` or a `reason`.", "ids"))
        else:
            wanted = store.Wanted(source, "quarantined", limit=DELIVERIES_MAX, reason=reason)
            ids = [UUID(row["id"]).bytes for row in await self._listed(request, wanted)]
        try:
            gone = await store.discard(self._share(request), _tenant(request), ids) if ids else []
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        more = "ids" not in body and len(ids) == DELIVERIES_MAX
        return json_response(200, encode({"ok": True, "discarded": gone, "more": more}))

    async def replay(self, request: Request) -> Response:
        """Processes deliveries by the spec of today, each once, in the order of `ids`: what became of each.
        What is an event already stays that event."""
        body = await read_object(request, self._aside, self._config, ("ids",))
        if "ids" not in body:
            raise Refused(Refusal("missing_field", "Name `ids`.", "ids"))
        ids = await self._known(request, _ids(body["ids"], REPLAYED_MAX))
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one to /_/spec."))
        replayer = Replayer(self._intake.appends, self._share(request), principal.tenant, deployed)
        until = time.monotonic() + self._config.append_deadline_s
        done = [await self._replayed(replayer, each, until) for each in ids]
        return json_response(200, encode({"ok": True, "replayed": done}))

    def _share(self, request: Request) -> Share:
        return self._shares.of(_tenant(request))

    async def _known(self, request: Request, ids: list[str]) -> list[bytes]:
        """Each once. Raises Refused: an id is no delivery's."""
        named = [uuid_of(text, f"ids[{number}]").bytes for number, text in enumerate(ids)]
        try:
            known = await store.known(self._share(request), _tenant(request), named)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        for number, delivery in enumerate(named):
            if delivery not in known:
                raise Refused(Refusal("not_found", f"There is no delivery {ids[number]}.", f"ids[{number}]"))
        return list(dict.fromkeys(named))

    async def _replayed(self, replayer: Replayer, delivery: bytes, until: float) -> dict[str, Any]:
        """What became of it, or why that is not known."""
        left_s = until - time.monotonic()
        if left_s <= 0:
            return without_event(delivery, "not_committed", "The request took too long: replay it again.")
        try:
            async with asyncio.timeout(left_s):
                return await replayer.replay(delivery, again=False)
        except Busy as busy:
            return without_event(delivery, "not_committed", busy.why)
        except TimeoutError:
            return without_event(delivery, "outcome_unknown", "It took too long: replay it again.")
        except PostgresTrouble:
            why = "Postgres does not answer: replay it again."
            return without_event(delivery, "outcome_unknown", why)

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
            return await store.listed(self._share(request), _tenant(request), wanted)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble


_UNAVAILABLE = Refusal(
    "unavailable", "Postgres, which stores deliveries, does not answer. Try again shortly."
)


def _tenant(request: Request) -> bytes:
    principal: Principal = request.scope["sluice.principal"]
    return principal.tenant.id.bytes


def _text(body: dict[str, object], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= 255):
        raise Refused(Refusal("invalid_field", f"`{field}` must be a string.", field))
    return value


def _ids(value: object, most: int) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise Refused(Refusal("invalid_field", f"`ids` is a list of 1 to {most} ids.", "ids"))
    for number, each in enumerate(value):
        if not isinstance(each, str) or not each:
            raise Refused(Refusal("invalid_field", "An id must be a string.", f"ids[{number}]"))
    return value
