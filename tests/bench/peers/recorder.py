"""The recorder of Python's `eventsourcing`, whose log has one order, behind uvicorn and threads.

Run by the Python of the peers' folder, so nothing of ours is imported. It listens on the socket
SLUICE_LISTEN_FD. POST /{type}/{id}/{event type} appends one event at `metadata.previous_length`; any GET is a
200.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import uvicorn
import uvloop
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

POOL = int(os.environ["PEER_POOL"])


def open_recorder(url: str) -> PostgresApplicationRecorder:
    parts = urlsplit(url)
    datastore = PostgresDatastore(
        dbname=parts.path[1:],
        host=parse_qs(parts.query)["host"][0],
        port="5432",
        user=parts.username or "",
        password="",
        pool_size=POOL,
    )
    recorder = PostgresApplicationRecorder(datastore)
    recorder.create_table()
    return recorder


class App:
    def __init__(self, recorder: PostgresApplicationRecorder) -> None:
        self._recorder = recorder
        self._threads = ThreadPoolExecutor(POOL)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = 200, b'{"ok":true}'
        if scope["method"] == "POST":
            length = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._append, scope["path"], body
            )
            status, answer = 201, json.dumps({"ok": True, "length": length}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _append(self, path: str, body: bytes) -> int:
        _, _, key, event = path.split("/")
        asked = json.loads(body)
        version = int(asked["metadata"]["previous_length"]) + 1
        state = json.dumps({"data": asked["data"], "actor": asked["metadata"]["actor"]}).encode()
        self._recorder.insert_events([StoredEvent(UUID(key), version, event, state)])
        return version


async def serve() -> None:
    config = uvicorn.Config(
        App(open_recorder(os.environ["PEER_POSTGRES_URL"])),
        lifespan="off",
        loop="none",
        access_log=False,
        log_level="error",
    )
    with socket.socket(fileno=int(os.environ["SLUICE_LISTEN_FD"])) as listening:
        await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(serve())
