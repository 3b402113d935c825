"""Health and metrics for operators: on a port of their own, and the metrics' place on the main one.

Owns: that port's listener. It is bound to loopback unless SLUICE_OPS_HOST says otherwise, since the metrics
show all tenants.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from gateway.http import response
from gateway.http.api.health import Health
from gateway.http.metrics import MetricsPage
from gateway.http.request import Application, Head, Receive, Refused, Scope, Send
from gateway.http.server.config import uvicorn_config
from gateway.http.server.protocol import make_protocol

logger = logging.getLogger("sluice.edge")

_BACKLOG = 16
_STOP_S = 1


class Ops:
    """The application. Whether a request may come here is decided before: by the port, or by the gate."""

    def __init__(self, health: Health, metrics: MetricsPage) -> None:
        self._router = Router(
            [
                Route("/_/health/live", health.live),
                Route("/_/health/ready", health.ready),
                Route("/_/metrics", metrics.page),
            ],
            redirect_slashes=False,
            default=_no_such_route,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # a Starlette route then raises for a wrong method instead of answering itself
        try:
            await self._router(scope, receive, send)
        except Refused as refused:
            await response.refuse(send, refused.refusal)
        except HTTPException:
            await response.allowed_only(send, scope["method"], "GET, HEAD, OPTIONS")


class MetricsHere:
    """/_/metrics in front of the other paths under /_/. To all but operators there is no such path."""

    def __init__(self, system: Application, ops: Ops, metrics: MetricsPage) -> None:
        self._system = system
        self._ops = ops
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["path"] == "/_/metrics"
        application = self._ops if asked and self._metrics.opened_by(Head(scope)) else self._system
        await application(scope, receive, send)


@asynccontextmanager
async def ops_listening(ops: Ops, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serves `ops` there meanwhile; not at all where there is no listener."""
    if listener is None:
        yield
        return
    server = _Server(uvicorn_config(ops, make_protocol(), _STOP_S))
    with listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        logger.info("ops_listening", extra={"host": host, "port": port})
        try:
            yield
        finally:
            server.should_exit = True
            await task


def bind_ops(host: str, port: int) -> socket.socket | None:
    """A listener of its own; None, and a line in the log, where another process has the port: of several
    gateways on one machine, one is enough to start with. Raises OSError where it can't be had at all."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # two may bind on some systems; only one may listen
    except OSError as fault:
        listener.close()
        if fault.errno != errno.EADDRINUSE:
            raise
        logger.warning("ops_port_taken", extra={"host": host, "port": port})
        return None
    return listener


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the main server's."""
        yield


async def _no_such_route(_scope: Scope, _receive: Receive, send: Send) -> None:
    await response.refuse(send, response.no_such_route())
