"""`?ticket=` on a stream of server-sent events: how a request brings one, and what it opens. Pure.

Owns the comparison of a request with what its ticket was made for. A ticket opens a stream and nothing else,
so that is what the request asks for, whatever it accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.admit.path import split
from gateway.admit.query import parse
from gateway.http.request import Head, Scope
from gateway.http.routes import Route, find_aggregate, find_system

_NAME = b"ticket="
_PARAMETERS_MAX = 100
"""More than any stream has."""


class Ticketed(NamedTuple):
    """A request that came with a ticket: its path, and its query without that."""

    ticket: str
    path: bytes
    query: bytes


def take_ticket(scope: Scope, head: Head) -> Ticketed | None:
    """None: it is no GET with a ticket and without a key."""
    query: bytes = scope["query_string"]
    if (
        _NAME not in query
        or query.count(b"&") > _PARAMETERS_MAX
        or scope["method"] != "GET"
        or head.get(b"authorization") is not None
    ):
        return None
    pairs = query.split(b"&")
    tickets = [pair for pair in pairs if pair.startswith(_NAME)]
    found = parse(tickets[0], ("ticket",)) if len(tickets) == 1 else {}
    text = found.get("ticket", "") if isinstance(found, dict) else ""
    rest = b"&".join([pair for pair in pairs if not pair.startswith(_NAME)])
    return Ticketed(text, scope["raw_path"].partition(b"?")[0], rest) if text else None


def is_for(path: str, asked: Ticketed) -> bool:
    """Whether a ticket for this path opens the request. A path with a query opens that query only."""
    raw_path, mark, query = path.encode().partition(b"?")
    return split(raw_path) == split(asked.path) and (not mark or query == asked.query)


def as_stream(scope: Scope, query: bytes) -> None:
    """The request without its ticket, as one for server-sent events."""
    others = [header for header in scope["headers"] if header[0] != b"accept"]
    scope["query_string"], scope["headers"] = query, [*others, (b"accept", b"text/event-stream")]


class Opened(NamedTuple):
    """What a ticket is for: the route of a stream, what its path has in place of each name, its query."""

    route: Route
    names: Mapping[str, str | None]
    query: bytes


def opened_by(path: str) -> Opened | None:
    """None: the path, with a query or without, is not one of a stream."""
    if not path.isascii() or not path.isprintable() or " " in path:
        return None
    raw_path, _, query = path.encode().partition(b"?")
    found = (find_system if raw_path.startswith(b"/_/") else find_aggregate)(raw_path)
    route = None if found is None else found.path.routes.get("GET")
    if found is None or route is None or not route.streams:
        return None
    return Opened(route, found.names, query)
