"""The life of a gateway process: its socket, its signals, its descriptors. app.py composes what is served."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
import uvloop

from gateway.app import gateway
from gateway.collector import rarely_collect
from gateway.config import Config
from gateway.http.server.config import uvicorn_config
from gateway.pools import CannotStart
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry import logs

logger = logging.getLogger("sluice")

_BACKLOG = 2048
_OWN_DESCRIPTORS = 1024
"""Of a gateway beside its clients': to Redis, Postgres and receivers, and of those that are turned away."""
_DESCRIPTORS_MAX = 1_000_000


def serve(config: Config) -> None:
    """Runs a gateway until SIGTERM or SIGINT. Exits 1 with a sentence when it can't start."""
    logs.to_stderr(config.log_level, human=config.dev and sys.stderr.isatty())
    try:
        uvloop.run(_serve(config))
    except (CannotStart, PostgresTrouble) as fault:
        sys.exit(f"sluice serve: {fault}")


def _within_descriptors(config: Config) -> Config:
    """With as many connections as this process may have: without a descriptor for the next one, nothing could
    be accepted and the listening socket would be asked over and over."""
    most = config.connections_max or _DESCRIPTORS_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most + _OWN_DESCRIPTORS, hard if hard != resource.RLIM_INFINITY else _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY:
        most = min(most, max(soft - _OWN_DESCRIPTORS, 1))
    return replace(config, connections_max=most)


async def _serve(config: Config) -> None:
    config = _within_descriptors(config)
    stopping = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(_tell_fault)
    with _bound(config) as bound:  # first: without its address a gateway need not start
        async with gateway(config, stopping) as edge:
            to_serve = uvicorn_config(edge.application, edge.protocol, int(config.shutdown_grace_s))
            server = _Server(stopping, to_serve)
            rarely_collect()
            _listen(bound, config)
            await server.serve(sockets=[bound])


def _tell_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio's own line would repeat the task or the callback with all that it holds."""
    why = context["message"].partition("(")[0].strip()
    logger.error("task_failed", extra={"reason": why}, exc_info=context.get("exception"))


class _Server(uvicorn.Server):
    """Tells live followers to go before it waits for its connections to end."""

    def __init__(self, stopping: asyncio.Event, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Without raising the signal once more at the end, as uvicorn does for its runner: that would
        kill the process before the log is flushed."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("gateway_stopping")
        self._stopping.set()
        await super().shutdown(sockets)


def _bound(config: Config) -> socket.socket:
    """The socket that a supervisor handed over, or one of our own, which does not listen yet. Raises
    CannotStart."""
    if config.listen_fd is not None:
        try:
            return socket.socket(fileno=config.listen_fd)
        except OSError as fault:
            why = f"SLUICE_LISTEN_FD {config.listen_fd} is not an open socket: {fault.strerror}"
            raise CannotStart(why) from fault
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((config.host, config.port))
    except OSError as fault:
        own.close()
        raise _can_not_listen(config, fault) from fault
    return own


def _listen(bound: socket.socket, config: Config) -> None:
    try:
        bound.listen(_BACKLOG)
    except OSError as fault:  # another process bound it too, and was quicker
        raise _can_not_listen(config, fault) from fault


def _can_not_listen(config: Config, fault: OSError) -> CannotStart:
    return CannotStart(f"can't listen on {config.host}:{config.port}: {fault.strerror}")
