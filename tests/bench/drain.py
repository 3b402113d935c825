"""Followers of the feed that read and forget, in a process of their own.

    python -m tests.bench.drain HOST PORT KEY COUNT QUERY

Says `ready` when all are connected; reads until its standard input ends, then says how many bytes came.
"""

from __future__ import annotations

import selectors
import socket
import sys

READ_BYTES = 256 * 1024


def drain(host: str, port: int, key: str, count: int, query: str) -> int:
    """Bytes of all of them together."""
    waiting = selectors.DefaultSelector()
    request = (
        f"GET /_/feed?{query} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    )
    for _ in range(count):
        following = socket.create_connection((host, port))
        following.sendall(request.encode())
        if not following.recv(READ_BYTES).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("a follower was refused")
        following.setblocking(False)
        waiting.register(following, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    came, buffer = 0, bytearray(READ_BYTES)
    while True:
        for ready, _ in waiting.select():
            if ready.fileobj is sys.stdin:
                return came
            assert isinstance(ready.fileobj, socket.socket)
            came += ready.fileobj.recv_into(buffer)


if __name__ == "__main__":
    host, port, key, count, query = sys.argv[1:]
    print(drain(host, int(port), key, int(count), query), flush=True)
