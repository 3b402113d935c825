"""Followers of the feed that read and forget, in a process of their own.

    python -m tests.bench.drain HOST PORT KEY COUNT QUERY

Says `ready` when all are connected; reads until its standard input ends and nothing has come for a while,
then says how many bytes came to all, to each at least and at most, and how many events to the first. The
kernel drops the others' bytes where it can (Linux): their readers share the machine with what is measured.
"""

from __future__ import annotations

import selectors
import socket
import sys

READ_BYTES = 256 * 1024
DROP = socket.MSG_TRUNC if sys.platform == "linux" else 0
QUIET_S = 0.5
EVENT = b"\ndata: "


def drain(host: str, port: int, key: str, count: int, query: str) -> tuple[int, int, int, int]:
    """Bytes of all of them together, and the least and the most of one; events of the first."""
    waiting = selectors.DefaultSelector()
    followers = [_connected(host, port, key, query) for _ in range(count)]
    came = dict.fromkeys(followers, 0)
    for each in followers:
        waiting.register(each, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    buffer, events, rest, until_s = bytearray(READ_BYTES), 0, b"", None
    while found := waiting.select(until_s):
        for ready, _ in found:
            if ready.fileobj is sys.stdin:
                waiting.unregister(sys.stdin)
                until_s = QUIET_S
                continue
            following = ready.fileobj
            assert isinstance(following, socket.socket)
            if following is followers[0]:
                received = following.recv(READ_BYTES)
                came[following] += len(received)
                received = rest + received
                events += received.count(EVENT)
                rest = received[-len(EVENT) + 1 :]
            else:
                came[following] += following.recv_into(buffer, 0, DROP)
    return sum(came.values()), min(came.values()), max(came.values()), events


def _connected(host: str, port: int, key: str, query: str) -> socket.socket:
    following = socket.create_connection((host, port))
    request = (
        f"GET /_/feed?{query} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    )
    following.sendall(request.encode())
    if not following.recv(READ_BYTES).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("a follower was refused")
    following.setblocking(False)
    return following


if __name__ == "__main__":
    host, port, key, count, query = sys.argv[1:]
    print(*drain(host, int(port), key, int(count), query), flush=True)
