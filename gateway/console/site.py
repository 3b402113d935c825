"""The console's site: sign-in, its pages by their paths, and what keeps it safe.

Owns: cookies, the policy of what a browser may do, that an act comes from a page of ours. Must not know: what
a page shows (views), or which there are (pages.py).
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import jinja2

from gateway import __version__
from gateway.admit.path import split
from gateway.aside import Aside, Busy
from gateway.catalog.model import CatalogUnavailable, Principal
from gateway.catalog.model import Scope as KeyScope
from gateway.console import live_feed
from gateway.console.api import Api
from gateway.console.instance import InstanceReader
from gateway.console.live_feed import LiveFeed
from gateway.console.pages import Goto, Page, View, Visit, menu_of
from gateway.console.rates import Rates
from gateway.console.sessions import SESSION_S, TICKET_S, Session, Sessions
from gateway.errors import Refusal
from gateway.http.authentication import Authenticator, bearer_of
from gateway.http.bounds import Bounded, Received
from gateway.http.request import Application, Head, Receive, Refused, Scope, Send, read_body
from gateway.http.routes import Route, tree
from gateway.postgres.connection_errors import UNANSWERED

logger = logging.getLogger("sluice.console")

ROOT: Final = "/_/console"
COOKIE: Final = "sluice_console"
_COOKIE: Final = re.compile(rf"(?:^|;)\s*+{COOKIE}=([^;]*)")
FORM_BYTES_MAX: Final = 1024 * 1024
AT_ONCE_BYTES_MAX: Final = 32 * 1024
"""Of a form that is read at once: of a larger one, reading escapes takes up to 0.2 s."""
SIGN_IN_BYTES_MAX: Final = 4 * 1024
"""Of a form before the sign-in: a key, and what a browser adds."""
FORM_TIMEOUT_S: Final = 10.0
FIELDS_MAX: Final = 200
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_SAFE: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"sluice-api", b"1"),
)
_STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "uPlot.min.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "LICENSES.txt": "text/plain; charset=utf-8",
}
_METHODS: Final = {
    "/enter": ("GET",),
    "/feed/live": ("GET",),
    "/sign-in": ("GET", "HEAD", "POST"),
    "/sign-out": ("POST",),
    "/tickets": ("POST",),
}
"""Of the paths that are no views. HEAD would use up the link that signs in once."""


_By = tuple[Session, Principal, str]
"""For whom a page is shown, and its path."""


class Site:
    """The application for everything under ROOT. `api` is the gateway's own, which judges every request;
    `bodies` counts forms with the bodies that are under way."""

    def __init__(
        self,
        api: Application,
        callers: Authenticator,
        bodies: Bounded,
        sessions: Sessions,
        rates: Rates,
        instance: InstanceReader,
        live: LiveFeed,
        views: Mapping[tuple[str, str], View],
        aside: Aside,
    ) -> None:
        self._api = api
        self._aside = aside
        self._callers = callers
        self._bodies = bodies
        self._sessions = sessions
        self._rates = rates
        self._instance = instance
        self._live = live
        self._views = views
        self._tree = tree([Route(method, path) for method, path in views])
        package = files("gateway.console")
        self._static = {name: (package / "static" / name).read_bytes() for name in _STATIC}
        self._pages = jinja2.Environment(
            loader=jinja2.PackageLoader("gateway.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._pages.filters["segment"] = lambda text: quote(str(text), safe="@:")
        self._pages.globals.update(root=ROOT, version=__version__, once=lambda: secrets.token_hex(16))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(ROOT)
        head = Head(scope)
        try:
            allowed = ("GET", "HEAD") if path.startswith("/static/") else _METHODS.get(path)
            if allowed and scope["method"] not in allowed:
                await self._allow_only(send, ", ".join(allowed), None)
            elif path.startswith("/static/"):
                await self._send_static(path.removeprefix("/static/"), send)
            elif path == "/tickets":
                await self._make_ticket(scope, head, send)
            elif path in ("/sign-in", "/enter"):
                await self._sign_in(path, scope, head, receive, send)
            else:
                await self._visit(path, scope, head, receive, send)
        except (*UNANSWERED, CatalogUnavailable):
            await self._show_outage(send, scope["method"] == "POST", path, head)
        except Refused as refused:
            shown = {"error": refused.refusal.error}
            page = Page("problem.html", shown, refused.refusal.http_status)
            await self._show(send, page, None, refused.more or ())

    # ---- signing in and out ----

    async def _make_ticket(self, scope: Scope, head: Head, send: Send) -> None:
        """For `sluice dev`: a link that signs in once, by the key that asks for it."""
        principal = await self._callers.principal(head)
        self._callers.require_active(principal)
        ticket = await self._sessions.begin(bearer_of(head) or "", principal.handle, TICKET_S)
        await self._answer(send, 201, b'{"ok":true,"ticket":"%b"}' % ticket.encode(), [_type("json")])

    async def _sign_in(self, path: str, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        if path == "/enter":
            ticket = _fields(scope["query_string"]).get("once", "")
            found = await self._callers.session(head, lambda: self._sessions.end(ticket))
            key = None if found is None else found.key
        elif scope["method"] != "POST":
            await self._show(send, Page("sign_in.html", {"error": None}), None)
            return
        else:
            _check_origin(head)
            form = _fields(await read_body(receive, SIGN_IN_BYTES_MAX, FORM_TIMEOUT_S))
            key = form.get("key", "").strip()
        principal = await self._opened(key, scope) if key else None
        if not key or principal is None:
            why = "This key opens nothing." if path == "/sign-in" else "This link was used, or is too old."
            await self._show(send, Page("sign_in.html", {"error": why}, 401), None)
            return
        self._callers.require_active(principal)
        if (before := _secret(head)) is not None:  # the browser forgets it, so no other act could end it
            await self._sessions.end(before)
        secret = await self._sessions.begin(key, principal.handle)
        cookie = _cookie(secret, SESSION_S, secure=not _is_loopback(head))
        await self._answer(send, 303, b"", [(b"location", f"{ROOT}/".encode()), cookie])

    async def _opened(self, key: str, scope: Scope) -> Principal | None:
        """By the way that all keys go, with its limits."""
        try:
            return await self._callers.principal(_head_with(key, scope))
        except Refused as refused:
            if refused.refusal.http_status != 401:
                raise
            return None

    async def _sign_out(self, session: Session, head: Head, send: Send) -> None:
        await self._sessions.end(session.secret)
        cookie = _cookie("", 0, secure=not _is_loopback(head))
        await self._answer(send, 303, b"", [(b"location", f"{ROOT}/sign-in".encode()), cookie])

    # ---- pages ----

    async def _visit(self, path: str, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        """A client without a session is sent to sign in. What is received counts with the key."""
        session = await self._session(head)
        principal = None if session is None else await self._opened(session.key, scope)
        if session is None or principal is None:
            await self._answer(send, 303, b"", [(b"location", f"{ROOT}/sign-in".encode())])
            return
        received = Received(self._bodies, principal.handle, receive)
        try:
            await self._visit_as(session, principal, path, scope, head, received.receive, send)
        finally:
            received.end()

    async def _visit_as(
        self,
        session: Session,
        principal: Principal,
        path: str,
        scope: Scope,
        head: Head,
        receive: Receive,
        send: Send,
    ) -> None:
        """1. A page. 2. An act comes from a page of ours. 3. The page, or where to go on."""
        if path != "/sign-out":
            self._callers.require_active(principal)
        api = Api(self._api, session.key)
        query = {name: text for name, text in _fields(scope["query_string"]).items() if text}
        if path == "/feed/live":
            resumed = (head.get(b"last-event-id") or b"").decode("latin-1")
            headers = [*live_feed.HEADERS, *_SAFE]
            signed_in = partial(self._sessions.continues, session.secret)
            await self._live.stream(api, principal.handle, query, resumed, headers, receive, send, signed_in)
            return
        if path in ("", "/"):
            await self._answer(send, 303, b"", [(b"location", f"{ROOT}/overview".encode())])
            return
        raw_path = scope["raw_path"].partition(b"?")[0].removeprefix(ROOT.encode())
        segments = split(raw_path)
        found = None if segments is None else self._tree.find(segments)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        by = (session, principal, path)
        if path == "/sign-out":
            await self._acting(session, principal, head, receive)
            await self._sign_out(session, head, send)
            return
        if found is None:
            await self._show(send, Page("problem.html", {"error": "There is no such page."}, 404), by)
            return
        if method not in found.path.routes:
            await self._allow_only(send, found.path.allow.removesuffix(", OPTIONS"), by)
            return
        form = await self._acting(session, principal, head, receive) if method == "POST" else {}
        visit = Visit(api, principal, found.names, query, form, self._rates, self._instance)
        outcome = await self._views[method, found.path.text](visit)
        if method == "POST":
            told = {"key": principal.handle, "page": found.path.text, "tenant": str(principal.tenant.id)}
            logger.info("console_act", extra={**told, "path": raw_path.decode("latin-1")})
        if isinstance(outcome, Goto):
            await self._answer(send, 303, b"", [(b"location", (ROOT + outcome.path).encode())])
        else:
            await self._show(send, outcome, by)

    async def _session(self, head: Head) -> Session | None:
        secret = _secret(head)
        if secret is None:
            return None
        return await self._callers.session(head, lambda: self._sessions.find(secret))

    async def _acting(
        self, session: Session, principal: Principal, head: Head, receive: Receive
    ) -> Mapping[str, str]:
        """The form of an act. Raises Refused where no page of ours sent it."""
        _check_origin(head)
        text = await read_body(receive, FORM_BYTES_MAX, FORM_TIMEOUT_S)
        try:
            form = (
                _fields(text)
                if len(text) <= AT_ONCE_BYTES_MAX
                else await self._aside.run(principal.tenant.id.bytes, partial(_fields, text))
            )
        except Busy as busy:
            raise Refused(Refusal("unavailable", busy.why)) from busy
        if not session.sent_by_a_page(form.get("csrf", "")):
            raise Refused(_forged())
        return form

    async def _show_outage(self, send: Send, act: bool, path: str, head: Head) -> None:
        """What memory knows, to a session and a key that Postgres confirmed before; others are told of the
        outage only."""
        session = self._sessions.seen(_secret(head) or "")
        principal = session and self._callers.last_known(session.key)
        figures = self._rates.look()
        since = datetime.fromtimestamp(time.time() - figures.unconfirmed_s, UTC)
        shows = {
            "act": act,
            "answers": figures.up.get("postgres", False),
            "since": f"{since:%Y-%m-%d %H:%M:%S} UTC",
            "figures": figures,
            "gateways": None,
        }
        by = (session, principal, path) if session and principal else None
        await self._show(send, Page("outage.html", shows, 503), by)

    async def _allow_only(self, send: Send, allow: str, by: _By | None) -> None:
        page = Page("problem.html", {"error": f"This page takes {allow} only."}, 405)
        await self._show(send, page, by, [(b"allow", allow.encode())])

    async def _show(
        self, send: Send, page: Page, by: _By | None, more: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        frame: dict[str, Any] = {"principal": None, "csrf": "", "at": ""}
        if by is not None:
            session, principal, path = by
            frame = {
                "principal": principal,
                "pages": menu_of(principal),
                "may_write": principal.scope >= KeyScope.WRITE,
                "may_act": principal.scope >= KeyScope.ADMIN,
                "csrf": session.csrf,
                "at": path.split("/")[1] if path else "",
            }
        text = self._pages.get_template(page.template).render({**frame, **page.shows})
        headers = [_type("html"), (b"cache-control", b"no-store"), *more]
        await self._answer(send, page.status, text.encode(), headers)

    async def _send_static(self, name: str, send: Send) -> None:
        body = self._static.get(name)
        if body is None:
            await self._answer(send, 404, b"", [])
            return
        kept = (b"cache-control", b"public, max-age=3600")
        await self._answer(send, 200, body, [(b"content-type", _STATIC[name].encode()), kept])

    async def _answer(self, send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
        headers = [*more, *_SAFE, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class ConsoleHere:
    """The console in front of the other paths under /_/."""

    def __init__(self, system: Application, site: Application) -> None:
        self._system = system
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        ours = path == ROOT or path.startswith(ROOT + "/")
        await (self._site if ours else self._system)(scope, receive, send)


def _head_with(key: str, scope: Scope) -> Head:
    """As if this key had been sent, by the same client."""
    forwarded = [each for each in scope["headers"] if each[0] == b"x-forwarded-for"]
    headers = [(b"authorization", b"Bearer " + key.encode()), *forwarded]
    return Head({"headers": headers, "client": scope.get("client")})


def _secret(head: Head) -> str | None:
    """Of the cookie, if there is one. Beside it there may be cookies of any form: on loopback, those of every
    program that was served there."""
    for line in head.all(b"cookie"):
        if (found := _COOKIE.search(line.decode("latin-1"))) is not None:
            return found[1].strip()
    return None


def _check_origin(head: Head) -> None:
    """A browser names where a form comes from. Raises Refused where that is elsewhere, or not said."""
    origin, host = head.get(b"origin") or b"", head.get(b"host")
    if not host or origin.partition(b"://")[2] != host:
        raise Refused(_forged())


def _forged() -> Refusal:
    return Refusal("forbidden", "This was not sent by a page of the console. Open the page once more.")


def _fields(text: bytes) -> dict[str, str]:
    """Of a form or a query. Raises Refused where it can't be read."""
    try:
        return dict(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError as fault:
        why = f"A form has at most {FIELDS_MAX} fields, in UTF-8."
        raise Refused(Refusal("bad_request", why)) from fault


def _cookie(secret: str, lifetime_s: int, *, secure: bool) -> tuple[bytes, bytes]:
    more = "; Secure" if secure else ""
    text = f"{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path={ROOT}; Max-Age={lifetime_s}{more}"
    return (b"set-cookie", text.encode())


def _is_loopback(head: Head) -> bool:
    host = (head.get(b"host") or b"").decode("latin-1")
    return host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK


def _type(kind: str) -> tuple[bytes, bytes]:
    return (b"content-type", b"text/html; charset=utf-8" if kind == "html" else b"application/json")
