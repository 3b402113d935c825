"""Every route of the API: method, path, the scope that a key needs for it, and its query parameters. Pure.

Owns: how a path is found among them, and what `Allow` says of it. The router, the endpoints under /_/, the
names of spans and the tests read this one table. An endpoint is bound to its route where it is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gateway.admit.path import split
from gateway.catalog.model import Scope

READ, WRITE, ADMIN, OPERATOR = Scope.READ, Scope.WRITE, Scope.ADMIN, Scope.OPERATOR
_METHODS: Final = ("GET", "HEAD", "QUERY", "POST", "PUT", "DELETE", "OPTIONS")


class Route(NamedTuple):
    method: str
    """HEAD goes with GET, OPTIONS with every path."""
    path: str
    scope: Scope | None = None
    """Which a key needs; None: no key opens it."""
    by_spec: bool = False
    """Whether the answer depends on what the tenant's spec declares."""
    query: tuple[str, ...] = ()
    """Its query parameters; any other is a 400 where a key opens it."""
    narrow: bool = False
    """Whether a narrowed key passes; then the endpoint holds what is asked for to the key."""
    streams: bool = False
    """Whether it follows live as server-sent events, which a ticket opens, too."""


_NAMED: Final = ("aliases", "keys")
_LIST: Final = ("filter[field]", "sort", "limit", "cursor", "fields", "count", "after", "wait")
_FRESH: Final = ("min_length", "consistency")

_OF_STATE: Final = ("at", "at_length", "synchronous", "explain", *_FRESH, *_NAMED)
_OF_EVENTS: Final = ("from", "limit", "order", "upcast", *_FRESH, *_NAMED)

AGGREGATE_ROUTES: Final = (
    Route("GET", "/{type}", READ, True, (*_LIST, *_NAMED, "content", "context"), narrow=True, streams=True),
    Route("QUERY", "/{type}", READ, True, _NAMED, narrow=True),
    Route("POST", "/{type}", WRITE, by_spec=True, narrow=True),
    Route("POST", "/{type}/_query", READ, True, _NAMED, narrow=True),
    Route("GET", "/{type}/{id}", READ, True, _OF_STATE, narrow=True),
    Route("POST", "/{type}/{id}", WRITE, by_spec=True, narrow=True),
    Route("GET", "/{type}/{id}/length", READ, True, _FRESH, narrow=True),
    Route("GET", "/{type}/{id}/aliases", READ, by_spec=True, narrow=True),
    Route("GET", "/{type}/{id}/children", READ, True, ("after", "limit")),
    Route("GET", "/{type}/{id}/events", READ, True, _OF_EVENTS, narrow=True, streams=True),
    Route("GET", "/{type}/{id}/events/{version}", READ, True, ("upcast", *_FRESH, *_NAMED), narrow=True),
    Route("POST", "/{type}/{id}/{event_type}", WRITE, by_spec=True, narrow=True),
)

_OF_FEED: Final = (
    *_NAMED,
    "after", "from_time", "order", "types", "event_types", "correlation_id", "actor", "tags",
    "include_undeclared", "limit", "wait", "upcast",
)  # fmt: skip

_OF_IMPORT: Final = ("type", "event", "ref", "actor", "import", "only_refs", "dry_run")

SYSTEM_ROUTES: Final = (
    Route("GET", "/_/health/live"),
    Route("GET", "/_/health/ready"),
    Route("POST", "/_/append", WRITE, by_spec=True),
    Route("POST", "/_/bulk", WRITE, by_spec=True),
    Route("POST", "/_/import", WRITE, True, _OF_IMPORT),
    Route("GET", "/_/feed", READ, query=_OF_FEED, narrow=True, streams=True),
    Route("QUERY", "/_/feed", READ, query=_OF_FEED, narrow=True),
    Route("POST", "/_/feed/query", READ, query=_OF_FEED, narrow=True),
    Route("GET", "/_/capabilities", READ, narrow=True),
    Route("GET", "/_/resolve/{alias}", READ, by_spec=True),
    Route("GET", "/_/events/{event_id}", READ, query=("upcast", *_NAMED), narrow=True),
    Route("GET", "/_/receipts", READ, query=("idempotency_key", "event_id")),
    Route("GET", "/_/ids/humane", READ, query=("count",), narrow=True),
    Route("POST", "/_/ids/check", READ, by_spec=True, narrow=True),
    Route("GET", "/_/spec", READ, True, ("revision",)),
    Route("PUT", "/_/spec", ADMIN, query=("force",)),
    Route("GET", "/_/spec/history", READ, query=("before", "limit")),
    Route("POST", "/_/spec/diff", ADMIN),
    Route("POST", "/_/spec/try", ADMIN, query=("limit",)),
    Route("POST", "/_/spec/rollback", ADMIN, query=("force",)),
    Route("GET", "/_/openapi.json", READ, by_spec=True),
    Route("GET", "/_/sources", READ, True, ("key",)),
    Route("POST", "/_/sources/resolve", WRITE, by_spec=True),
    Route("GET", "/_/sources/{source}/export", READ),
    Route("GET", "/_/sources/{source}/{scope}/{source_id}", READ),
    Route("PUT", "/_/sources/{source}/{scope}/{source_id}", WRITE, by_spec=True),
    Route("GET", "/_/ids/base62", READ, query=("count",), narrow=True),
    Route("POST", "/_/ids/hash", READ, narrow=True),
    Route("GET", "/_/projections", READ, by_spec=True),
    Route("GET", "/_/projections/{name}", READ, True, _LIST, streams=True),
    Route("GET", "/_/projections/{name}/{key}", READ, True, ("fields", "after", "wait"), streams=True),
    Route("GET", "/_/keys", ADMIN, query=("after", "limit")),
    Route("POST", "/_/keys", READ, narrow=True),
    Route("DELETE", "/_/keys/{handle}", ADMIN),
    Route("POST", "/_/keys/{handle}/rotate", ADMIN),
    Route("POST", "/_/tickets", READ, narrow=True),
    Route("GET", "/_/tenant", READ, narrow=True),
    Route("GET", "/_/tenants", OPERATOR, query=("after", "limit")),
    Route("GET", "/_/tenants/{id}", OPERATOR),
    Route("PUT", "/_/tenants/{id}", OPERATOR),
    Route("DELETE", "/_/tenants/{id}", OPERATOR),
    Route("POST", "/_/tenants/{id}/suspend", OPERATOR),
    Route("POST", "/_/tenants/{id}/resume", OPERATOR),
    Route("GET", "/_/subscriptions", ADMIN),
    Route("GET", "/_/subscriptions/{name}", ADMIN),
    Route("PUT", "/_/subscriptions/{name}", ADMIN),
    Route("DELETE", "/_/subscriptions/{name}", ADMIN),
    Route("GET", "/_/subscriptions/{name}/waiting", ADMIN, query=("state", "limit", *_NAMED)),
    Route("GET", "/_/subscriptions/{name}/attempts", ADMIN, query=("event_id", "limit")),
    Route("POST", "/_/subscriptions/{name}/pause", ADMIN),
    Route("POST", "/_/subscriptions/{name}/resume", ADMIN),
    Route("POST", "/_/subscriptions/{name}/replay", ADMIN),
    Route("POST", "/_/subscriptions/{name}/skip", ADMIN),
    Route("POST", "/_/subscriptions/{name}/test", ADMIN),
    Route("POST", "/_/subscriptions/{name}/claim", WRITE),
    Route("POST", "/_/subscriptions/{name}/ack", WRITE),
    Route("GET", "/_/schedules", ADMIN, query=("state", "type", "key", "limit", "cursor")),
    Route("POST", "/_/schedules", WRITE, by_spec=True),
    Route("GET", "/_/schedules/{id}", ADMIN),
    Route("POST", "/_/schedules/{id}/cancel", ADMIN),
    Route("POST", "/_/schedules/{id}/run", ADMIN),
    Route("POST", "/_/schedules/{id}/move", ADMIN),
    Route("GET", "/_/sagas", ADMIN, query=("state", "limit", "cursor")),
    Route("GET", "/_/sagas/{id}", ADMIN),
    Route("POST", "/_/sagas/{id}/retry", ADMIN),
    Route("POST", "/_/sagas/{id}/abandon", ADMIN),
    Route("GET", "/_/deliveries", ADMIN, query=("source", "verdict", "reason", "before", "limit")),
    Route("GET", "/_/deliveries/{id}", ADMIN),
    Route("POST", "/_/deliveries/discard", ADMIN),
    Route("POST", "/_/deliveries/replay", ADMIN, by_spec=True),
    Route("GET", "/_/webhooks/{tenant}/{source}"),
    Route("POST", "/_/webhooks/{tenant}/{source}"),
)

PARAMETERS: Final = frozenset(name for route in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES) for name in route.query)
"""All that some route has."""

RAW: Final = b"/_/resolve/"
"""The endpoint below it reads the raw path: an alias that can't be decoded is a malformed one."""

_ANY_TEXT: Final = (b"/_/sources/", b"/_/projections/")
"""Below them, segments may be any text, as the keys of projections may: with slashes, too, which are written
`%2F`."""


class Path(NamedTuple):
    """A path of the table with its routes by method."""

    text: str
    routes: Mapping[str, Route]
    allow: str
    """The value of `Allow`."""


class Found(NamedTuple):
    path: Path
    names: dict[str, str | None]
    """What the request has in place of each `{name}`; None: it can't be decoded."""


class Node:
    """The paths that begin alike. A literal segment comes before a named one."""

    def __init__(self) -> None:
        self.literal: dict[str, Node] = {}
        self.named: tuple[str, Node] | None = None
        self.path: Path | None = None

    def add(self, path: Path) -> None:
        node = self
        for segment in path.text[1:].split("/"):
            if segment.startswith("{"):
                node.named = node.named or (segment[1:-1], Node())
                node = node.named[1]
            else:
                node = node.literal.setdefault(segment, Node())
        node.path = path

    def find(self, segments: tuple[str | None, ...]) -> Found | None:
        node, names = self, {}
        for segment in segments:
            below = None if segment is None else node.literal.get(segment)
            if below is not None:
                node = below
            elif node.named is not None:
                name, node = node.named
                names[name] = segment
            else:
                return None
        return None if node.path is None else Found(node.path, names)


def tree(routes: Iterable[Route]) -> Node:
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    root = Node()
    for text, methods in by_path.items():
        allowed = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
        root.add(Path(text, methods, ", ".join(method for method in _METHODS if method in allowed)))
    return root


_AGGREGATES: Final = tree(AGGREGATE_ROUTES)
_SYSTEM: Final = tree(SYSTEM_ROUTES)


def find_aggregate(raw_path: bytes) -> Found | None:
    """Of a path that does not begin with /_/, without its query."""
    segments = split(raw_path)
    return _AGGREGATES.find(segments) if segments else None


def find_system(raw_path: bytes) -> Found | None:
    """Of a path that begins with /_/, without its query. Every segment must be decodable, and but for
    those that may be any text without `%2F`."""
    if raw_path.startswith(RAW):
        return _SYSTEM.find(("_", "resolve", None))
    segments = split(raw_path)
    if segments is None or not all(segments):
        return None
    if any("/" in (segment or "") for segment in segments) and not raw_path.startswith(_ANY_TEXT):
        return None
    return _SYSTEM.find(segments)


def found_at(raw_path: bytes) -> Found | None:
    """Of any path, without its query."""
    return find_system(raw_path) if raw_path.startswith(b"/_/") else find_aggregate(raw_path)


def route_named(raw_path: bytes) -> str:
    """The path with names in place of what a client chose: few enough to be grouped by."""
    found = found_at(raw_path)
    if found is not None:
        return found.path.text
    return "/_/{path}" if raw_path.startswith(b"/_/") else "/{path}"
