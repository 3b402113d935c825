"""message-db behind uvicorn and asyncpg: its function `write_message`, called as its documents say.

It listens on the socket SLUICE_LISTEN_FD. POST /{type}/{id}/{event type} appends one event at
`metadata.previous_length`; any GET is a 200.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import uvicorn
import uvloop

FOLDERS = ("schema", "tables", "types", "functions", "indexes")
"""Of its package, in the order of its install.sh. The roles and views are for people; the extension pgcrypto
is for a function that Postgres has had since version 13."""
_WRITE = "SELECT message_store.write_message($1, $2, $3, $4, $5, $6)"


class Body(msgspec.Struct):
    data: msgspec.Raw
    metadata: dict[str, Any]


async def install(connection: Any, package: Path) -> None:
    """Its functions refer to one another, so they are made unchecked."""
    await connection.execute("SET check_function_bodies = off; SET search_path = message_store, public")
    for folder in FOLDERS:
        for path in sorted((package / "database" / folder).glob("*.sql")):
            await connection.execute(path.read_text())


class App:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = 200, b'{"ok":true}'
        if scope["method"] == "POST":
            length = await self._append(scope["path"], msgspec.json.decode(body, type=Body))
            status, answer = 201, b'{"ok":true,"length":%d}' % length
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _append(self, path: str, asked: Body) -> int:
        _, aggregate_type, key, event = path.split("/")
        metadata = json.dumps({"actor": asked.metadata["actor"]})
        at = asked.metadata["previous_length"] - 1
        position = await self._pool.fetchval(
            _WRITE, str(uuid4()), f"{aggregate_type}-{key}", event, bytes(asked.data).decode(), metadata, at
        )
        return int(position) + 1


async def serve() -> None:
    url, count = os.environ["PEER_POSTGRES_URL"], int(os.environ["PEER_POOL"])
    connection = await asyncpg.connect(url)
    await install(connection, Path(os.environ["PEER_MODULES"]) / "node_modules" / "@eventide" / "message-db")
    await connection.close()
    settings = {"search_path": "message_store, public"}
    async with asyncpg.create_pool(url, min_size=count, max_size=count, server_settings=settings) as pool:
        config = uvicorn.Config(
            App(pool), ws="none", lifespan="off", loop="none", access_log=False, log_level="error"
        )
        with socket.socket(fileno=int(os.environ["SLUICE_LISTEN_FD"])) as listening:
            await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(serve())
