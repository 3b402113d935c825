"""Everything under /_/: health, bulk, the feed, events by id, identifiers, and what a tenant declares."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from gateway.admit.path import split
from gateway.catalog.model import Principal
from gateway.catalog.model import Scope as KeyScope
from gateway.errors import Refusal
from gateway.http import render, response
from gateway.http.api.aliases import Aliases
from gateway.http.api.bulk import Bulk
from gateway.http.api.feed import Feed
from gateway.http.api.health import Health
from gateway.http.api.ids import Ids
from gateway.http.api.reads import unavailable
from gateway.http.api.receipts import Receipts
from gateway.http.api.specs import Specs
from gateway.http.api.subscriptions import SubscriptionPaths
from gateway.http.api.webhooks import PREFIX as WEBHOOKS
from gateway.http.api.webhooks import Webhooks
from gateway.http.authentication import Authenticator
from gateway.http.openapi.endpoint import OpenApi
from gateway.http.request import Head, Receive, Refused, Scope, Send
from gateway.log.log import Log
from gateway.log.postgres import PostgresTrouble

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[57][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}")
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
# What `scope` carries from the gate to the endpoints below.
PRINCIPAL = "sluice.principal"
_CALLERS = "sluice.callers"
_RESOLVE = b"/_/resolve/"  # reads its own raw path: an alias that can't be decoded is a malformed one

Endpoint = Callable[[Request], Awaitable[Response]]
Streaming = Callable[[Principal, Scope, Receive, Send], Awaitable[None]]


class System:
    """The application for paths under /_/: 401 comes before 404 and 405, as everywhere."""

    def __init__(
        self,
        callers: Authenticator,
        health: Health,
        bulk: Bulk,
        feed: Feed,
        specs: Specs,
        openapi: OpenApi,
        ids: Ids,
        webhooks: Webhooks,
        aliases: Aliases,
        subscriptions: SubscriptionPaths,
        log: Log,
    ) -> None:
        self._callers = callers
        self._webhooks = webhooks
        self._log = log
        self._receipts = Receipts(log)
        self._open = Router(
            [Route("/_/health/live", health.live), Route("/_/health/ready", health.ready)],
            redirect_slashes=False,
            default=_no_such_route,
        )
        self._keyed = Router(
            [
                Route("/_/bulk", _Streaming(KeyScope.WRITE, bulk.bulk, by_spec=True), methods=["POST"]),
                Route("/_/feed", _Streaming(KeyScope.READ, feed.feed), methods=["GET"]),
                Route("/_/resolve/{alias:path}", _for(KeyScope.READ, aliases.resolve, by_spec=True)),
                Route("/_/events/{event_id}", _for(KeyScope.READ, self.event)),
                Route("/_/receipts", _for(KeyScope.READ, self.receipt)),
                Route("/_/ids/humane", _for(KeyScope.READ, ids.humane)),
                Route("/_/ids/check", _for(KeyScope.READ, ids.check, by_spec=True), methods=["POST"]),
                Route("/_/spec", _for(KeyScope.READ, specs.get, by_spec=True)),
                Route("/_/spec", _for(KeyScope.ADMIN, specs.put), methods=["PUT"]),
                Route("/_/openapi.json", _for(KeyScope.READ, openapi.get, by_spec=True)),
                *(
                    Route(f"/_/subscriptions{path}", _for(scope, endpoint), methods=[method])
                    for path, method, scope, endpoint in subscriptions.routes()
                ),
            ],
            redirect_slashes=False,
            default=_no_such_route,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["raw_path"].startswith(WEBHOOKS):
            await self._webhooks(scope, receive, send)
            return
        scope["app"] = self  # a Starlette route then raises for a wrong method instead of answering itself
        router = self._open
        if not scope["path"].startswith("/_/health/"):
            scope[PRINCIPAL] = await self._callers.principal(Head(scope))
            scope[_CALLERS] = self._callers
            router = self._keyed
        raw_path: bytes = scope["raw_path"]
        if b"%" in raw_path and not raw_path.startswith(_RESOLVE) and not _splits_plainly(raw_path):
            raise Refused(response.no_such_route())
        try:
            await router(scope, receive, send)
        except HTTPException as fault:
            if fault.status_code != 405:
                raise Refused(response.no_such_route()) from fault
            await response.allowed_only(send, scope["method"], _allowed(router, scope))

    async def receipt(self, request: Request) -> Response:
        """What a committed append of the tenant was answered."""
        return await self._receipts.get(request, principal_of(request).tenant.id.bytes)

    async def event(self, request: Request) -> Response:
        """An event of the tenant by its id."""
        event_id = request.path_params["event_id"]
        if not _UUID.fullmatch(event_id):
            raise Refused(Refusal("invalid_field", "An event's id is a UUIDv7 or UUIDv5.", "event_id"))
        tenant = principal_of(request).tenant.id.bytes
        try:
            found = await self._log.event(tenant, bytes.fromhex(event_id.replace("-", "")))
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        if found is None:
            raise Refused(Refusal("not_found", f"There is no event {event_id.lower()}."))
        return response.json_response(200, b'{"ok":true,"event":%b}' % render.event_json(found))


class _Streaming:
    """An ASGI endpoint: a Starlette Request would hold the body, and a Response the answer."""

    def __init__(self, needed: KeyScope, endpoint: Streaming, *, by_spec: bool = False) -> None:
        self._needed = needed
        self._by_spec = by_spec
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[PRINCIPAL]
        with _callers_of(scope).served(principal, self._needed, receive, by_spec=self._by_spec):
            await self._endpoint(principal, scope, receive, send)


def principal_of(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def _callers_of(scope: Scope) -> Authenticator:
    callers: Authenticator = scope[_CALLERS]
    return callers


def _for(scope: KeyScope, endpoint: Endpoint, *, by_spec: bool = False) -> Endpoint:
    """`by_spec`: what it answers depends on what the tenant's spec declares."""

    async def checked(request: Request) -> Response:
        callers, principal = _callers_of(request.scope), principal_of(request)
        with callers.served(principal, scope, request.receive, by_spec=by_spec) as receive:
            return await endpoint(Request(request.scope, receive))

    return checked


async def _no_such_route(_scope: Scope, _receive: Receive, send: Send) -> None:
    await response.refuse(send, response.no_such_route())


def _splits_plainly(raw_path: bytes) -> bool:
    """Whether every segment can be decoded and has no `%2F`: routes are found by the decoded path, in which
    that would separate."""
    segments = split(raw_path.partition(b"?")[0])
    return segments is not None and all(segment and "/" not in segment for segment in segments)


def _allowed(router: Router, scope: Scope) -> str:
    """The methods of all routes with this path, as `Allow` lists them."""
    found = {"OPTIONS"}
    for route in router.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return ", ".join(method for method in _METHODS if method in found)
