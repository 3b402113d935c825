"""POST /_/tickets: for `EventSource`, which sends no header, one stream is opened by a ticket in its URL."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside
from gateway.catalog import tickets
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.api.feed import Feed
from gateway.http.api.follow import followed
from gateway.http.api.lists import Lists
from gateway.http.api.projections import Projections
from gateway.http.api.reads import Reads
from gateway.http.authentication import narrowed, require_narrow
from gateway.http.json_body import read_object
from gateway.http.parameters import Parameters, require_declared
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.http.tickets import Opened, opened_by
from gateway.names.aliases import SIGIL
from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.shares import Shares

PATH_CHARS_MAX: Final = 2_048
_NO_STREAM: Final = (
    "`path` is that of a stream of server-sent events: /order/{id}/events, /_/feed?types=order."
)


class Tickets:
    def __init__(
        self,
        shares: Shares,
        reads: Reads,
        lists: Lists,
        projections: Projections,
        feed: Feed,
        aside: Aside,
        config: Config,
    ) -> None:
        self._shares, self._reads, self._aside, self._config = shares, reads, aside, config
        self._lists, self._projections, self._feed = lists, projections, feed

    async def make(self, request: Request) -> Response:
        """A ticket with what the caller's key may read, for one stream, once."""
        principal: Principal = request.scope["sluice.principal"]
        body = await read_object(request, self._aside, self._config, ("path",))
        path = body.get("path")
        if path is None:
            raise Refused(Refusal("missing_field", _NO_STREAM, "path"))
        if not isinstance(path, str) or len(path) > PATH_CHARS_MAX or (opened := opened_by(path)) is None:
            raise Refused(Refusal("invalid_field", _NO_STREAM, "path"))
        await self._require(principal, opened)
        try:
            text = await tickets.create(self._shares.of(principal.tenant.id.bytes), principal.handle, path)
        except tickets.TooManyTickets as many:
            raise Refused(Refusal("rate_limited", f"{str(many).capitalize()}.")) from many
        except UNANSWERED as error:
            why = "Postgres, which stores tickets, does not answer. Try again shortly."
            raise Refused(Refusal("unavailable", why)) from error
        told = {"ok": True, "ticket": text, "path": path, "expires_in": tickets.TICKET_S}
        return json_response(201, encode(told))

    async def _require(self, principal: Principal, opened: Opened) -> None:
        """Raises Refused as the stream would, whose page is not told why: where no event can change that."""
        require_narrow(principal, opened.route)
        require_declared(opened.query, opened.route.query)
        only, names = principal.only, opened.names
        if "name" in names:
            self._projections.asked(principal, names, opened.query)
            return
        if "type" not in names:
            await self._feed.require_followed(principal, Parameters(opened.query))
            return
        of, key = names["type"] or "", names.get("id")
        if only is not None and not (only.reads_any(of) if "id" in names else of in only.types):
            raise Refused(narrowed(principal))
        if "id" not in names:
            self._lists.followed(principal, of, opened.query)
            return
        if key is not None and key.startswith(SIGIL):
            return
        subject = await self._reads.stored(principal, of, key)
        if only is not None and not only.reads(of, subject.stream.key):
            raise Refused(narrowed(principal))
        followed(subject, Parameters(opened.query))
