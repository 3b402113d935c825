"""The fast path as the server is given it: ordinary appends and reads, from the parser to the log."""

from __future__ import annotations

from collections.abc import Callable

from gateway.http.fast_path.appends import FastAppends
from gateway.http.fast_path.reads import FastReads
from gateway.http.server.fast_path import Reply


class FastRequests:
    """Implements `gateway.http.server.fast_path.FastPath`."""

    def __init__(self, appends: FastAppends, reads: FastReads, *, cors: bool) -> None:
        self._cors = cors
        self._appends = appends
        self._reads = reads

    def take(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        reply: Reply,
        give_up: Callable[[], None],
    ) -> bool:
        if self._cors and b"origin" in headers:  # its answer has more headers
            return False
        if method == b"POST":
            return self._appends.take(target, headers, body, reply)
        return not body and self._reads.take(target, headers, reply, give_up)
