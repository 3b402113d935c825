"""The routes that keys of tenants open, each with a path: for tests of every route, new ones included."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from gateway.catalog.model import Scope
from gateway.http.routes import AGGREGATE_ROUTES, SYSTEM_ROUTES, Route
from tests.http.raw import Connection, connected, request
from tests.support.accounts import SPEC
from tests.support.calls import ACTOR, batch, envelope, new_event_id

OPENED: Final = [
    each for each in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES) if each.scope not in (None, Scope.OPERATOR)
]
DECLARED: Final[dict[str, Any]] = {
    **SPEC,
    "aggregate_types": {
        **SPEC["aggregate_types"],
        "order": {**SPEC["aggregate_types"]["order"], "list": {"by": ["metadata.length"]}},
    },
    "projections": {
        "totals": {
            "on": {"order.was_noted": {"key": "$.key", "do": [{"set": {"target": "n", "value": "$.data"}}]}}
        }
    },
    "subscriptions": {"pulled": {"target": {"type": "pull"}}},
}
"""With all that these paths name."""
_NDJSON: Final = ("/_/bulk", "/_/import")


def path_of(route: Route) -> str:
    """Of something that is there, as far as the path says what."""
    names = {"type": "order", "event_type": "was_noted", "version": "1", "key": "global", "name": "totals"}
    if route.path.startswith("/_/"):
        names |= {"id": new_event_id(), "event_id": new_event_id(), "source": "shop", "source_id": "1"}
    if route.path.startswith("/_/subscriptions"):
        names["name"] = "pulled"
    return re.sub(r"\{([a-z_]+)\}", lambda found: names.get(found[1], "global"), route.path)


def sent_to(route: Route) -> dict[str, Any]:
    """For an append an ordinary one; any other body is refused for what it says, where it is read."""
    if route.method in ("GET", "DELETE"):
        return {}
    named = {"aggregate_type": "order", "key": "global", "type": "was_noted", "data": 1}
    bodies: Mapping[str, object] = {
        "/{type}": batch(("was_noted", 1)),
        "/{type}/{id}": batch(("was_noted", 1)),
        "/{type}/{id}/{event_type}": envelope(1),
        "/_/append": {"events": [named], "metadata": {"actor": ACTOR}},
    }
    appends = route.method == "POST" and route.path in bodies
    return {"json": bodies[route.path] if appends else {"no": "such field"}}


@asynccontextmanager
async def receiving(port: int, route: Route, key: str, size: int) -> AsyncIterator[Connection | None]:
    """A connection on which a body of this size is waited for; None where the route has its answer without
    one."""
    async with connected(port) as connection:
        media = b"application/x-ndjson" if route.path in _NDJSON else b"application/json"
        headers = [(b"Expect", b"100-continue"), (b"Content-Length", b"%d" % size), (b"Content-Type", media)]
        await connection.send(request(route.method, path_of(route), key, headers=headers))
        waits = await connection.line() == b"HTTP/1.1 100 Continue\r\n"
        if waits:
            assert await connection.line() == b"\r\n"
        yield connection if waits else None
