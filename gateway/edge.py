"""What answers requests, composed of what a gateway has running: endpoints, router, fast path, protocol.

Knows every class of http and the console; app.py starts and stops what they are given.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from gateway.aggregates.folder import Folder
from gateway.aggregates.records import Records
from gateway.aggregates.ruled import Ruled
from gateway.aliases.children import Children
from gateway.aliases.store import Store
from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.config import Config
from gateway.console.instance import InstanceReader
from gateway.console.live_feed import LiveFeed
from gateway.console.rates import Rates
from gateway.console.sessions import Sessions
from gateway.console.site import ConsoleHere, Site
from gateway.console.views import views
from gateway.http.addresses import Addresses
from gateway.http.api.aliases import Aliases
from gateway.http.api.appends import Appends
from gateway.http.api.bulk import Bulk
from gateway.http.api.contents import Contents
from gateway.http.api.deliveries import Deliveries
from gateway.http.api.feed import Feed
from gateway.http.api.follow import Follow
from gateway.http.api.health import Health
from gateway.http.api.ids import Ids
from gateway.http.api.imports import Imports
from gateway.http.api.keys import Keys
from gateway.http.api.lists import Lists
from gateway.http.api.live_bounds import LiveBounds
from gateway.http.api.live_rows import LiveRows
from gateway.http.api.named_answers import NamedAnswers
from gateway.http.api.parents import Parents
from gateway.http.api.projections import Projections
from gateway.http.api.reads import Reads
from gateway.http.api.router import AggregateRouter
from gateway.http.api.rows import RowReader
from gateway.http.api.sagas import Sagas
from gateway.http.api.schedules import Schedules
from gateway.http.api.several import SeveralAppends
from gateway.http.api.source_keys import SourceKeys
from gateway.http.api.sources import Sources
from gateway.http.api.specs import Specs
from gateway.http.api.states import States
from gateway.http.api.subscriptions import SubscriptionPaths
from gateway.http.api.system import System
from gateway.http.api.tenants import Tenants
from gateway.http.api.tickets import Tickets
from gateway.http.api.webhooks import BAD_SIGNATURE, Webhooks
from gateway.http.api.webhooks import PREFIX as WEBHOOKS
from gateway.http.authentication import Authenticator, RateLimits
from gateway.http.bounds import Connections, Limited, bodies_of, requests_of
from gateway.http.cors import Cors
from gateway.http.fast_path.appends import FastAppends
from gateway.http.fast_path.reads import FastReads
from gateway.http.fast_path.requests import FastRequests
from gateway.http.fast_path.several import FastSeveral
from gateway.http.key_watch import KeyWatch
from gateway.http.metrics import MetricsMiddleware, MetricsPage
from gateway.http.openapi.endpoint import OpenApi
from gateway.http.ops import MetricsHere, Ops
from gateway.http.outcomes import Outcomes
from gateway.http.request import Application
from gateway.http.server.protocol import make_protocol
from gateway.http.tracing import TracingMiddleware
from gateway.http.unread import Unread
from gateway.inbound.intake import Intake
from gateway.log.log import Log
from gateway.outbound import Outbound
from gateway.postgres.shares import Shares
from gateway.reactions.reactor import Reactor, head_of
from gateway.relay.live import Live
from gateway.relay.outbox import Outbox
from gateway.telemetry.metrics import Metrics, Reading

if TYPE_CHECKING:  # the SDK is there only where traces are on
    from gateway.telemetry.tracing import OtelTracing


class Edge(NamedTuple):
    """What a server needs to serve a gateway."""

    application: Application
    protocol: type[asyncio.Protocol]
    """Frames requests, and offers ordinary ones to the fast path before the application sees them."""


@dataclass(frozen=True, slots=True)
class Operators:
    """What those who run the gateway look at, wherever it is served."""

    health: Health
    metrics: MetricsPage
    page: Ops


class ConsoleParts(NamedTuple):
    """What the console shows of the last hour and of the instance, and who is signed in."""

    rates: Rates
    sessions: Sessions
    instance: InstanceReader


def edge_of(
    *,
    config: Config,
    log: Log,
    reactor: Reactor,
    ruled: Ruled,
    records: Records,
    folder: Folder,
    outbox: Outbox,
    live: Live,
    catalog: Catalog,
    admin_pool: asyncpg.Pool,
    console: ConsoleParts | None,
    reads: Reads,
    store: Store,
    aliases: Aliases,
    children: Children,
    stopping: asyncio.Event,
    operators: Operators,
    intake: Intake,
    going_out: Outbound,
    aside: Aside,
    metrics: Metrics,
    tracing: OtelTracing | None,
) -> Edge:
    limited, addresses = Limited(metrics), Addresses(config.trusted_proxies or ())
    requests, bodies = requests_of(config, limited), bodies_of(config, limited)
    connections = Connections(config, addresses, limited)
    callers = Authenticator(catalog, addresses, RateLimits(config, limited), requests, bodies, limited)
    unread = Unread(config, limited, callers.handle)
    metrics.read_at_scrape(
        lambda: [
            Reading("sluice_requests_under_way", requests.total),
            Reading("sluice_bodies_bytes", bodies.total),
            Reading("sluice_connections", connections.total),
            Reading("sluice_unread_bytes", unread.total),
        ]
    )
    webhooks = Webhooks(intake, catalog, addresses, bodies, config, metrics)
    outcomes, states = Outcomes(log, outbox), States(log, folder, config)
    keys, source_keys = KeyWatch(catalog), SourceKeys(log.shares, aside)
    parents, named = Parents(aliases, children, outcomes), NamedAnswers(store)
    log.watch.on_look(keys.look)
    bounds = LiveBounds(config, limited)
    rows = RowReader(going_out.rows, going_out.moves, outbox, keys)
    live_rows = LiveRows(rows, keys, bounds, stopping)
    feed = Feed(outbox, live, catalog, reads.upcasts, named, keys, bounds, aside, config)
    lists = Lists(rows, live_rows, catalog, named, aside, config)
    projections = Projections(rows, live_rows, going_out.declarations, catalog)
    several = SeveralAppends(log, records, catalog, outcomes, aliases, source_keys, aside, config)
    of_catalog = Shares(admin_pool)
    system = System(
        callers,
        operators.health,
        several,
        Bulk(log, records, catalog, keys, outcomes, aliases, aside, source_keys, config),
        feed,
        Specs(catalog, admin_pool, going_out.subscriptions, log.storage, aside, config),
        OpenApi(catalog, aside, config),
        Ids(catalog, aside, config),
        Sources(log, catalog, log.shares, keys, aside, config),
        Imports(log, records, catalog, log.shares, outcomes, aside, config),
        Tenants(catalog, admin_pool, aside, config),
        Keys(catalog, of_catalog, aside, config),
        Tickets(of_catalog, reads, lists, projections, feed, aside, config),
        webhooks,
        Deliveries(log.shares, intake, catalog, aside, config),
        Schedules(log.shares, catalog, partial(head_of, outbox, log.shares), aside, config),
        Sagas(log.shares, reactor.coordinator),
        aliases,
        named,
        SubscriptionPaths(
            going_out.subscriptions,
            going_out.trials,
            going_out.pull,
            keys,
            catalog,
            aside,
            config,
            stopping,
            named,
        ),
        projections,
        catalog,
        log,
        reads.upcasts,
    )
    below: Application = system
    if console is not None:
        rates, sessions, instance = console
        followed = LiveFeed(bounds.follower, stopping)
        site = Site(
            lambda *request: gate(*request),
            callers,
            bodies,
            sessions,
            rates,
            instance,
            followed,
            views(),
            aside,
        )
        below = ConsoleHere(system, site)
    gate: Application = AggregateRouter(
        callers,
        Appends(log, records, catalog, outcomes, aliases, parents, source_keys, aside, config),
        reads,
        states,
        lists,
        Contents(catalog, log.shares),
        Follow(log, reads.upcasts, named, keys, bounds, stopping),
        aliases,
        named,
        MetricsHere(below, operators.page, operators.metrics),
    )
    fast_path = None
    application: Application = gate
    if tracing is None:
        fast_path = FastRequests(
            FastAppends(log, ruled, catalog, callers, outcomes, webhooks, config, metrics),
            FastSeveral(several, catalog, callers, config, metrics),
            FastReads(log, callers, reads, states, aliases, named, unread, metrics),
            config.cors_origins,
        )
    else:  # a span needs the whole of a request
        application = TracingMiddleware(gate, tracing)
    if config.cors_origins is not None:
        application = Cors(application, config.cors_origins)
    protocol = make_protocol(
        config.headers_max,
        config.header_bytes_max,
        body_timeout_s=config.body_timeout_s,
        fast_path=fast_path,
        connections=connections,
        unread=unread,
        signed_below=(WEBHOOKS, BAD_SIGNATURE),
    )
    return Edge(MetricsMiddleware(application, metrics), protocol)
