"""The least that a gateway in Python could cost: uvicorn and a callable that reads the body and answers.

Serves on the socket SLUICE_LISTEN_FD, like a gateway. Every POST is a 201 of a receipt's size, anything else
a 200.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
import uvloop

from gateway.http.server.config import uvicorn_config

_BODY = (
    b'{"ok":true,"key":"a0000000-0000-4000-a000-000000000001","event_id":"01900000-0000-7000-8000-000000000000"'
    b',"stream_id":"1-0","length":1}'
)
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_BODY)),
    (b"sluice-api", b"1"),
    (b"etag", b'"1"'),
    (b"location", b"/order/a0000000-0000-4000-a000-000000000001/events/1"),
    (b"x-correlation-id", b"01900000-0000-7000-8000-000000000000"),
]


async def answer(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    while (await receive()).get("more_body", False):
        pass
    status = 201 if scope["method"] == "POST" else 200
    await send({"type": "http.response.start", "status": status, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


async def serve() -> None:
    """As gateway/app.py sets uvicorn up, but for the gateway's own framing."""
    config = uvicorn_config(answer, "httptools")
    with socket.socket(fileno=int(os.environ["SLUICE_LISTEN_FD"])) as listening:
        await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(serve())
