"""How uvicorn is set up for every listener: one place, so that all of them speak HTTP alike.

Owns: what of uvicorn is not wanted. No header of its own, no log of its own, no lifespan: the composition
root starts and ends what an application needs.
"""

from __future__ import annotations

import asyncio

import uvicorn

from gateway.http.request import Application


def uvicorn_config(
    application: Application, http: type[asyncio.Protocol] | str, stop_s: int | None = None
) -> uvicorn.Config:
    """`http` frames requests. Connections that are still open `stop_s` after the end began are cut."""
    return uvicorn.Config(
        application,
        http=http,
        ws="none",
        lifespan="off",
        loop="none",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=stop_s,
    )
