"""Followers of the feed that read and forget, in a process of their own.

    python -m tests.bench.drain HOST PORT KEY COUNT QUERY CODING

`CODING` is the one that they accept, gzip or identity. Says `ready` when all are connected; reads until its
standard input ends and nothing has come for a while, then says how many bytes came to all, to each at least
and at most, and how many events to the first, and waits to be killed. The kernel drops the others' bytes
where it can (Linux): their readers share the machine with what is measured.
"""

from __future__ import annotations

import selectors
import signal
import socket
import sys
import zlib
from collections.abc import Callable

READ_BYTES = 256 * 1024
DROP = socket.MSG_TRUNC if sys.platform == "linux" else 0
QUIET_S = 0.5
EVENT = b"\ndata: "


def drain(host: str, port: int, key: str, count: int, query: str, coding: str) -> tuple[int, int, int, int]:
    """Bytes of all of them together, and the least and the most of one; events of the first."""
    waiting = selectors.DefaultSelector()
    followers = [_connected(host, port, key, query, coding) for _ in range(count)]
    came = dict.fromkeys(followers, 0)
    for each in followers:
        waiting.register(each, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    buffer, events, rest, until_s = bytearray(READ_BYTES), 0, b"", None
    decoded = _gunzipped() if coding == "gzip" else bytes
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
                received = rest + decoded(received)
                events += received.count(EVENT)
                rest = received[-len(EVENT) + 1 :]
            else:
                came[following] += following.recv_into(buffer, 0, DROP)
    return sum(came.values()), min(came.values()), max(came.values()), events


def _gunzipped() -> Callable[[bytes], bytes]:
    """What becomes of the bytes of a connection, one call after the other: out of their chunks, inflated."""
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
    waiting = b""

    def gunzipped(received: bytes) -> bytes:
        nonlocal waiting
        waiting += received
        whole, begun = [], 0
        while (end := waiting.find(b"\r\n", begun)) > 0:
            first, size = end + 2, int(waiting[begun:end], 16)
            if len(waiting) < first + size + 2:
                break
            whole.append(inflate(waiting[first : first + size]))
            begun = first + size + 2
        waiting = waiting[begun:]
        return b"".join(whole)

    return gunzipped


def _connected(host: str, port: int, key: str, query: str, coding: str) -> socket.socket:
    following = socket.create_connection((host, port))
    request = (
        f"GET /_/feed?{query} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Accept: text/event-stream\r\nAccept-Encoding: {coding}\r\n\r\n"
    )
    following.sendall(request.encode())
    head = b""
    while not head.endswith(b"\r\n\r\n") and (received := following.recv(1)):
        head += received
    said = {b"content-encoding: gzip"} if coding == "gzip" else set()
    if not head.startswith(b"HTTP/1.1 200") or not said <= set(head.lower().split(b"\r\n")):
        raise RuntimeError("a follower was refused")
    following.setblocking(False)
    return following


if __name__ == "__main__":
    host, port, key, count, query, coding = sys.argv[1:]
    print(*drain(host, int(port), key, int(count), query, coding), flush=True)
    # Who measures reads this process' CPU time next, which ends with it: it waits to be killed, for a minute.
    signal.alarm(60)
    signal.pause()
