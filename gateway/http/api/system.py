"""Everything under /_/: health, bulk, the feed, events by id, identifiers, and what a tenant declares."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.catalog.narrowness import Only
from gateway.errors import Refusal
from gateway.events import Recorded
from gateway.http import render, response
from gateway.http.api.aliases import Aliases
from gateway.http.api.bulk import Bulk
from gateway.http.api.capabilities import capabilities
from gateway.http.api.deliveries import Deliveries
from gateway.http.api.feed import Feed
from gateway.http.api.health import Health
from gateway.http.api.ids import Ids
from gateway.http.api.imports import Imports
from gateway.http.api.keys import Keys
from gateway.http.api.named_answers import NamedAnswers, wanted
from gateway.http.api.projections import Projections
from gateway.http.api.reads import unavailable
from gateway.http.api.receipts import Receipts
from gateway.http.api.sagas import Sagas
from gateway.http.api.schedules import Schedules
from gateway.http.api.several import SeveralAppends
from gateway.http.api.sources import Sources
from gateway.http.api.specs import Specs
from gateway.http.api.subscriptions import SubscriptionPaths
from gateway.http.api.tenants import Tenants
from gateway.http.api.tickets import Tickets
from gateway.http.api.upcasts import Upcasts
from gateway.http.api.webhooks import PREFIX as WEBHOOKS
from gateway.http.api.webhooks import Webhooks
from gateway.http.authentication import Authenticator, require_narrow
from gateway.http.openapi.endpoint import OpenApi
from gateway.http.parameters import Parameters, require_declared
from gateway.http.request import Head, Receive, Refused, Scope, Send
from gateway.http.routes import SYSTEM_ROUTES, find_system
from gateway.log.log import Log
from gateway.postgres.errors import PostgresTrouble

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[57][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}")
PRINCIPAL = "sluice.principal"
"""What `scope` carries from here to the endpoints."""
_HEALTH = b"/_/health/"

Endpoint = Callable[[Request], Awaitable[Response]]
Streaming = Callable[[Principal, Scope, Receive, Send], Awaitable[None]]
"""An ASGI endpoint: a Starlette Request would hold the body, and a Response the answer."""


class System:
    """The application for paths under /_/: 401 comes before 404 and 405, as everywhere."""

    def __init__(
        self,
        callers: Authenticator,
        health: Health,
        several: SeveralAppends,
        bulk: Bulk,
        feed: Feed,
        specs: Specs,
        openapi: OpenApi,
        ids: Ids,
        sources: Sources,
        imports: Imports,
        tenants: Tenants,
        keys: Keys,
        tickets: Tickets,
        webhooks: Webhooks,
        deliveries: Deliveries,
        schedules: Schedules,
        sagas: Sagas,
        aliases: Aliases,
        named: NamedAnswers,
        subscriptions: SubscriptionPaths,
        projections: Projections,
        catalog: Catalog,
        log: Log,
        upcasts: Upcasts,
    ) -> None:
        self._callers = callers
        self._webhooks = webhooks
        self._catalog = catalog
        self._log = log
        self._named = named
        self._upcasts = upcasts
        self._receipts = Receipts(log)
        self._streaming: dict[tuple[str, str], Streaming] = {
            ("POST", "/_/bulk"): bulk.bulk,
            ("GET", "/_/feed"): feed.feed,
            ("GET", "/_/projections/{name}"): projections.list,
            ("GET", "/_/projections/{name}/{key}"): projections.row,
        }
        self._counted: dict[tuple[str, str], Streaming] = {
            ("POST", "/_/append"): several.append,
            ("QUERY", "/_/feed"): feed.query,
            ("POST", "/_/feed/query"): feed.query,
        }
        self._whole: dict[tuple[str, str], Endpoint] = {
            ("GET", "/_/health/live"): health.live,
            ("GET", "/_/health/ready"): health.ready,
            ("GET", "/_/capabilities"): capabilities,
            ("GET", "/_/resolve/{alias}"): aliases.resolve,
            ("GET", "/_/events/{event_id}"): self.event,
            ("GET", "/_/receipts"): self.receipt,
            ("GET", "/_/ids/humane"): ids.humane,
            ("POST", "/_/ids/check"): ids.check,
            ("GET", "/_/spec"): specs.get,
            ("PUT", "/_/spec"): specs.put,
            ("GET", "/_/spec/history"): specs.history,
            ("POST", "/_/spec/diff"): specs.diff,
            ("POST", "/_/spec/try"): specs.try_out,
            ("POST", "/_/spec/rollback"): specs.roll_back,
            ("GET", "/_/openapi.json"): openapi.get,
            ("GET", "/_/schedules"): schedules.every,
            ("POST", "/_/schedules"): schedules.create,
            ("GET", "/_/schedules/{id}"): schedules.get,
            ("POST", "/_/schedules/{id}/cancel"): schedules.cancel,
            ("POST", "/_/schedules/{id}/run"): schedules.run,
            ("POST", "/_/schedules/{id}/move"): schedules.move,
            ("GET", "/_/sagas"): sagas.every,
            ("GET", "/_/sagas/{id}"): sagas.get,
            ("POST", "/_/sagas/{id}/retry"): sagas.retry,
            ("POST", "/_/sagas/{id}/abandon"): sagas.abandon,
            ("GET", "/_/deliveries"): deliveries.every,
            ("GET", "/_/deliveries/{id}"): deliveries.get,
            ("POST", "/_/deliveries/discard"): deliveries.discard,
            ("POST", "/_/deliveries/replay"): deliveries.replay,
            ("POST", "/_/import"): imports.post,
            ("GET", "/_/sources"): sources.of_key,
            ("POST", "/_/sources/resolve"): sources.resolve,
            ("GET", "/_/sources/{source}/export"): sources.export,
            ("GET", "/_/sources/{source}/{scope}/{source_id}"): sources.get,
            ("PUT", "/_/sources/{source}/{scope}/{source_id}"): sources.put,
            ("GET", "/_/ids/base62"): ids.base62,
            ("POST", "/_/ids/hash"): ids.hash,
            ("GET", "/_/keys"): keys.every,
            ("POST", "/_/keys"): keys.make,
            ("DELETE", "/_/keys/{handle}"): keys.end,
            ("POST", "/_/keys/{handle}/rotate"): keys.rotate,
            ("POST", "/_/tickets"): tickets.make,
            ("GET", "/_/tenant"): tenants.mine,
            ("GET", "/_/tenants"): tenants.every,
            ("GET", "/_/tenants/{id}"): tenants.get,
            ("PUT", "/_/tenants/{id}"): tenants.put,
            ("DELETE", "/_/tenants/{id}"): tenants.delete,
            ("POST", "/_/tenants/{id}/suspend"): tenants.suspend,
            ("POST", "/_/tenants/{id}/resume"): tenants.resume,
            ("GET", "/_/projections"): projections.every,
            **{
                (method, f"/_/subscriptions{path}"): endpoint
                for (method, path), endpoint in subscriptions.endpoints().items()
            },
        }
        _check_bound({*self._streaming, *self._counted, *self._whole})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"].partition(b"?")[0]
        if raw_path.startswith(WEBHOOKS):
            await self._webhooks(scope, receive, send)
            return
        open_to_all = raw_path.startswith(_HEALTH)
        head = Head(scope)
        principal = None if open_to_all else await self._callers.principal(head)
        found = find_system(raw_path)
        if found is None:
            raise Refused(response.no_such_route())
        method: str = scope["method"]
        route = found.path.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            await response.allowed_only(send, method, found.path.allow)
            return
        at = route.method, route.path
        scope["path_params"], scope[PRINCIPAL] = found.names, principal
        if principal is None or route.scope is None:
            await (await self._whole[at](Request(scope, receive)))(scope, receive, send)
            return
        with self._callers.served(head, principal, route.scope, receive, by_spec=route.by_spec) as counted:
            require_narrow(principal, route)
            require_declared(scope["query_string"], route.query)
            if (streaming := self._streaming.get(at)) is not None:
                await streaming(principal, scope, receive, send)
            elif (at_once := self._counted.get(at)) is not None:
                await at_once(principal, scope, counted, send)
            else:
                await (await self._whole[at](Request(scope, counted)))(scope, receive, send)

    async def receipt(self, request: Request) -> Response:
        """What a committed append of the tenant was answered."""
        return await self._receipts.get(request, principal_of(request).tenant.id.bytes)

    async def event(self, request: Request) -> Response:
        """An event of the tenant by its id."""
        event_id = request.path_params["event_id"]
        if not _UUID.fullmatch(event_id):
            raise Refused(Refusal("invalid_field", "An event's id is a UUIDv7 or UUIDv5.", "event_id"))
        tenant, query = principal_of(request).tenant.id.bytes, Parameters(request.scope["query_string"])
        deployed = self._catalog.deployed(principal_of(request).tenant.id)
        asked, upcast = wanted(query, None if deployed is None else deployed.reading), query.boolean("upcast")
        try:
            found = await self._log.event(tenant, bytes.fromhex(event_id.replace("-", "")))
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        only = principal_of(request).only
        if found is None or (only is not None and not _shows(only, found)):
            raise Refused(Refusal("not_found", f"There is no event {event_id.lower()}."))
        if upcast:
            (found,) = await self._upcasts.all(tenant, (found,))
        read = response.ReadAnswer(b'{"ok":true,"event":%b}' % render.event_json(found))
        return response.json_response(200, (await self._named.told(tenant, read, asked)).body)


def _shows(only: Only, recorded: Recorded) -> bool:
    stream = recorded.stream
    return only.shows(stream.aggregate_type, stream.key, recorded.event.type)


def principal_of(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def _check_bound(endpoints: set[tuple[str, str]]) -> None:
    """Raises ValueError where the table of routes and the endpoints are not one to one."""
    routes = {
        (route.method, route.path) for route in SYSTEM_ROUTES if not route.path.startswith(WEBHOOKS.decode())
    }
    if routes != endpoints:
        raise ValueError(f"routes and endpoints differ: {sorted(routes ^ endpoints)}")
