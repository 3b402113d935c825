"""The pages of the console: what one is asked with (`Visit`), what it answers (`Page`, `Goto`), and the menu.

Must not know: HTTP, sessions, how a page is sent (site.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from gateway.catalog.model import Principal
from gateway.console.api import Api
from gateway.console.instance import InstanceReader
from gateway.console.rates import Rates
from gateway.http.routes import SYSTEM_ROUTES


class Page(NamedTuple):
    """`template`, a file of templates/, with the values that it shows."""

    template: str
    shows: Mapping[str, Any]
    status: int = 200


class Goto(NamedTuple):
    path: str
    """Below the console's root."""


class Visit(NamedTuple):
    """One request of a session that is signed in."""

    api: Api
    principal: Principal
    names: Mapping[str, str | None]
    query: Mapping[str, str]
    form: Mapping[str, str]
    rates: Rates
    instance: InstanceReader

    def name(self, which: str) -> str:
        return self.names.get(which) or ""


MENU: Final = (
    ("overview", "Overview", None),
    ("aggregates", "Aggregates", None),
    ("feed", "Feed", "/_/feed"),
    ("spec", "Spec", "/_/spec"),
    ("projections", "Projections", "/_/projections"),
    ("webhooks", "Webhooks in", "/_/deliveries"),
    ("out", "Out", "/_/subscriptions"),
    ("schedules", "Timers", "/_/schedules"),
    ("sagas", "Sagas", "/_/sagas"),
    ("keys", "Keys", "/_/keys"),
)
"""Each page with its name, and what of the API it can't do without."""
_ROUTES: Final = {route.path: route for route in SYSTEM_ROUTES if route.method == "GET"}


def menu_of(principal: Principal) -> list[tuple[str, str]]:
    """The pages that this key opens, with their names."""
    return [(page, name) for page, name, needed in MENU if needed is None or _opens(principal, needed)]


def _opens(principal: Principal, path: str) -> bool:
    route = _ROUTES[path]
    assert route.scope is not None
    return principal.scope >= route.scope and (principal.only is None or route.narrow)


View = Callable[[Visit], Awaitable[Page | Goto]]
