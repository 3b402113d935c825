"""/_/metrics: the page, and the token that opens it; and the metrics of every answer.

The page shows all tenants, so no tenant's key opens it on the port that clients use: only the token of
SLUICE_METRICS_TOKEN, which under `sluice dev` is the admin key that it made itself.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from gateway.http.asgi_extension import understood
from gateway.http.correlation import correlate
from gateway.http.parameters import require_declared
from gateway.http.request import Application, Head, Message, Receive, Scope, Send
from gateway.telemetry.metrics import Metrics

_BEARER = b"bearer "


class MetricsPage:
    """`token` opens it to requests that send it."""

    def __init__(self, metrics: Metrics, token: str | None) -> None:
        self._metrics = metrics
        self._token = None if token is None else token.encode()

    async def page(self, request: Request) -> Response:
        """In the format that `Accept` asks for: OpenMetrics or Prometheus' text; this also where what it asks
        for can't be read. Raises Refused (400) where there is a query: a filter that it does not have must
        not read everything."""
        require_declared(request.scope["query_string"], ())
        try:
            encode, media_type = choose_encoder(request.headers.get("accept", ""))
        except TypeError:  # a version that is no number: it compares the two
            encode, media_type = choose_encoder("")
        headers = {"sluice-api": "1", "content-type": media_type, "cache-control": "no-store"}
        return Response(await asyncio.to_thread(encode, self._metrics.read()), 200, headers)

    def opened_by(self, head: Head) -> bool:
        """Whether the request brings the token. It takes as long for a wrong one as for the right one."""
        sent = set(head.all(b"authorization"))
        if self._token is None or len(sent) != 1:
            return False
        value = sent.pop()
        scheme, token = value[: len(_BEARER)], value[len(_BEARER) :].strip()
        return scheme.lower() == _BEARER and hmac.compare_digest(token, self._token)


class MetricsMiddleware:
    """An application whose answers are counted by method and status, and carry the id of their request. What
    the fast path answers counts itself."""

    def __init__(self, application: Application, metrics: Metrics) -> None:
        self._application = application
        self._responses = metrics.responses

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method, responses = scope["method"], self._responses
        send = understood(scope, send)

        def counting(message: Message) -> Awaitable[None]:
            if "status" in message:  # the start of an answer, or one that is whole
                responses[method, message["status"]] += 1
                correlate(message, scope)
            return send(message)

        return self._application(scope, receive, counting)
