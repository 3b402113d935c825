"""Pages of other origins that may call: CORS, as the Fetch standard has it.

Owns preflights and the headers of answers to allowed origins. Which origins those are is a setting; a key is
needed all the same. Webhooks in and the console are no pages' business.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from typing import Final

from gateway.http import response
from gateway.http.asgi_extension import WHOLE
from gateway.http.request import Application, Head, Message, Receive, Scope, Send
from gateway.http.routes import find_aggregate, find_system

ANY: Final = "*"
MAX_AGE_S: Final = 600
"""How long a browser need not ask again: as long as most browsers keep it."""

_ALLOWED: Final = (
    "Authorization, Content-Type, Idempotency-Key, X-Idempotency-Key, If-Match, If-None-Match, Prefer, "
    "Sluice-If-Unchanged, Last-Event-ID, X-Correlation-Id, Traceparent, Tracestate, Cache-Control"
)
_EXPOSED: Final = (
    "ETag, Location, Content-Location, X-Correlation-Id, Idempotency-Replayed, Retry-After, Allow, "
    "WWW-Authenticate, Sluice-Api, Sluice-Position, Sluice-Caught-Up"
)
_METHODS: Final = "GET, HEAD, POST, PUT, DELETE, QUERY"
_NOT_OURS: Final = (b"/_/webhooks/", b"/_/console")
_VARY: Final = (b"vary", b"Origin")
_VARY_PREFLIGHT: Final = (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers")


class Cors:
    """The application for pages of these origins, each exactly as browsers send it, or `*` for all."""

    def __init__(self, application: Application, origins: frozenset[str]) -> None:
        self._application = application
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["raw_path"].startswith(_NOT_OURS):
            await self._application(scope, receive, send)
            return
        head = Head(scope)
        origin = self._allowed(head.get(b"origin"))
        if origin is not None and scope["method"] == "OPTIONS":
            asked = head.get(b"access-control-request-method")
            if asked is not None:
                await _preflight(scope, origin, send)
                return
        more = varied(self._origins)
        if origin is not None:
            more = [*more, *_granted(origin), (b"access-control-expose-headers", _EXPOSED.encode())]
        await self._application(scope, receive, _with(send, more))

    def _allowed(self, origin: bytes | None) -> bytes | None:
        """What `Access-Control-Allow-Origin` says; None: nothing."""
        if origin is None:
            return None
        if ANY in self._origins:
            return ANY.encode()
        return origin if origin.decode("latin-1") in self._origins else None


def varied(origins: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """What every answer says, also to a request without an origin: a cache may keep it for one with."""
    return [] if origins == {ANY} else [_VARY]


def _granted(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin)]


async def _preflight(scope: Scope, origin: bytes, send: Send) -> None:
    raw_path: bytes = scope["raw_path"]
    found = (find_system if raw_path.startswith(b"/_/") else find_aggregate)(raw_path)
    methods = _METHODS if found is None else found.path.allow
    headers = [
        *_granted(origin),
        (b"access-control-allow-methods", methods.encode()),
        (b"access-control-allow-headers", _ALLOWED.encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        _VARY_PREFLIGHT,
        response.API_VERSION,
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    """The same, and `more` goes with the beginning of an answer, or with one that is whole."""
    if not more:
        return send
    lines = b"".join([b"%b: %b\r\n" % header for header in more])

    async def sending(message: Message) -> None:
        if message["type"] == WHOLE:
            message["head"] += lines
        elif message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending
