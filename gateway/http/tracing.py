"""A span for each request. Stands in front of the application only where traces are on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gateway.http.request import Application, Message, Receive, Scope, Send
from gateway.http.routes import route_named

if TYPE_CHECKING:  # the SDK is there only where traces are on
    from gateway.telemetry.tracing import OtelTracing

_UNTRACED = (b"/_/health/", b"/_/metrics")


class TracingMiddleware:
    def __init__(self, application: Application, tracing: OtelTracing) -> None:
        self._application = application
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"].partition(b"?")[0]
        if raw_path.startswith(_UNTRACED):
            await self._application(scope, receive, send)
            return
        headers = {
            name.decode(): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        span = self._tracing.begin_request(scope["method"], route_named(raw_path), headers)

        def watching(message: Message) -> Awaitable[None]:
            if "status" in message:  # the start of an answer, or one that is whole
                span.answered(message["status"], _correlation_id(message))
            return send(message)

        failure: BaseException | None = None
        try:
            await self._application(scope, receive, watching)
        except BaseException as error:
            failure = error
            raise
        finally:
            span.end(failure)


def _correlation_id(message: Message) -> str | None:
    """Of an answer, in either form that one has."""
    headers: list[tuple[bytes, bytes]] = message.get("headers") or [
        line.partition(b": ")[::2] for line in message.get("head", b"").split(b"\r\n")
    ]
    found = dict(headers).get(b"x-correlation-id")
    return None if found is None else found.decode()
