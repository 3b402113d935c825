"""The fast path as the server is given it: ordinary appends and reads, from the parser to the log."""

from __future__ import annotations

from collections.abc import Callable

from gateway.http.api.webhooks import PREFIX as WEBHOOKS
from gateway.http.cors import ANY, varied
from gateway.http.fast_path.appends import FastAppends
from gateway.http.fast_path.reads import FastReads
from gateway.http.fast_path.several import PATH, FastSeveral
from gateway.http.server.fast_path import Reply


class FastRequests:
    """Implements `gateway.http.server.fast_path.FastPath`."""

    def __init__(
        self,
        appends: FastAppends,
        several: FastSeveral,
        reads: FastReads,
        origins: frozenset[str] | None,
    ) -> None:
        """`origins` are those of pages that may call, if any."""
        self._cors = origins is not None
        self._more = b"".join([b"%b: %b\r\n" % header for header in varied(origins or frozenset({ANY}))])
        self._appends = appends
        self._several = several
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
        if self._more and not target.startswith(WEBHOOKS):  # which no page calls
            reply = _with(reply, self._more)
        if method == b"POST" and target == PATH:
            return self._several.take(headers, body, reply)
        if method == b"POST":
            return self._appends.take(target, headers, body, reply)
        return not body and self._reads.take(target, headers, reply, give_up)


def _with(reply: Reply, more: bytes) -> Reply:
    def replying(status: int, head: bytes, body: bytes) -> None:
        reply(status, head + more, body)

    return replying
