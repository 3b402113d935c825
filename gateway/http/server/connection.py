"""One connection and the requests on it, one after another.

Owns: the line of requests and the order of their answers, the task of each, the timer, how a connection ends.
Must not know: what a trustworthy request is (protocol.py).

In place of what uvicorn does for each request with a timer and a callback: an append pays for neither.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from uvicorn._types import HTTPScope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.http.asgi_extension import EXTENSION
from gateway.http.bounds import Connections
from gateway.http.correlation import NAME, correlation_id_in
from gateway.http.request import Refused
from gateway.http.response import PRIVATE
from gateway.http.server.exchange import Exchange, FastExchange
from gateway.http.unread import Unread

LINGER_S: Final = 2.0
"""How long a connection that ends amid a request is read on, unheard: closing at once would reset it, and the
client would never see why (RFC 9112 section 9.6)."""


_EXTENSIONS: Final[dict[str, dict[object, object]]] = {EXTENSION: {}}
_CODES: Final = {401: "unauthorized", 429: "rate_limited"}


class Connection(HttpToolsProtocol):
    """What is true of every connection, whatever is asked on it."""

    cycle: Exchange | FastExchange | None  # type: ignore[assignment]  # the newest; None before the first
    clients: ClassVar[Connections | None] = None
    """Of all connections; None: they are not counted."""
    unread: ClassVar[Unread | None] = None
    """What clients have not read yet; None: it is not bounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None  # on the loop's clock; None while something is under way
        self._over = False  # nothing more is read from this connection
        self._http_version = "1.1"
        self._connections = self.clients
        self._counted_as: str | None = None  # by whom this connection is held; None: it is not counted
        self._let_in = True
        self._rest = b""  # what was read, and is not parsed yet
        self._running: Exchange | _LastWords | None = None  # of those in line the one that is at work

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, lambda: bool(self.pipeline or self._rest))
        if self._connections is not None:
            try:
                self._counted_as = self._connections.begin(self, self.client)
            except Refused as refused:
                self._turn_away(refused.refusal.error, self._connections)

    def _turn_away(self, why: str, connections: Connections) -> None:
        """One connection too many: it is told so before it asks, while there are few of them."""
        self._let_in, self._over = False, True
        if connections.begin_end():
            self._say(self._refusal(429, why))
        else:
            self.transport.abort()
            self._connections = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self.unread is not None:
            self.unread.end(self)
        if self._connections is not None:
            if self._counted_as is not None:
                self._connections.end(self, self._counted_as)
            elif not self._let_in:
                self._connections.ended()
        running = self._running
        if isinstance(running, Exchange) and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def has_proven_a_key(self) -> bool:
        return self.unread is not None and self._holder(self.unread) != ""

    def give_way(self) -> None:
        if self._connections is not None and self._counted_as is not None:
            self._connections.end(self, self._counted_as)
            self._counted_as = None
        self.transport.abort()

    # ---- what the client does not read ----

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.unread is not None and not self.transport.is_closing():
            self.unread.end(self)

    def _await_reader(self) -> None:
        """The client has to take what was written."""
        if self.unread is not None:
            self.unread.begin(self, self.transport, self._holder(self.unread))

    def _holder(self, unread: Unread) -> str:
        cycle = (
            self._running if isinstance(self.cycle, Exchange) and self._running is not None else self.cycle
        )
        return unread.holder_of(cycle.authorization if isinstance(cycle, Exchange | FastExchange) else None)

    def _room(self, size: int) -> str | None:
        """None where the request at work may be answered by so many bytes; else why it may not."""
        if self.unread is None:
            return None
        holder = self._holder(self.unread)
        return None if self.unread.has_room(holder, size) else self.unread.refused(holder)

    def _close(self) -> None:
        """Behind what was written, which the client has to take."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._await_reader()

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- between requests ----

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn cancels a timer and starts another for each request. Here one runs on, and looks when it is
        due."""
        self._idle_since = None

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self._await_reader()
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            self._line_moved()
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def _line_moved(self) -> None:
        """A request that waited in line is at work."""

    def _look_again_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for the whole time."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # the answer under way starts the timer
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_again_in(left_s)
        elif not self.transport.is_closing():
            self._close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """As uvicorn does, but for a callback of each task: the cycle itself says when it has ended."""
        assert isinstance(cycle, Exchange | _LastWords)
        self._running = cycle
        cycle.task = self.loop.create_task(cycle.run_asgi(app))
        cycle.tasks = self.tasks
        self.tasks.add(cycle.task)

    # ---- a request ----

    def _begin(self, headers: list[tuple[bytes, bytes]], *, keep_alive: bool) -> None:
        """Starts the request, or lines it up behind those before it."""
        previous = self.cycle
        self.cycle = cycle = self._cycle(self.parser.get_method(), self.url, headers, keep_alive)
        cycle.waiting_for_100_continue = self.expect_100_continue
        if previous is None or previous.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _begin_after_all(self, ride: FastExchange) -> None:
        """The same for one that the fast path can't answer. It is whole, and the first in line."""
        if ride.disconnected:
            return
        cycle = self._cycle(ride.method, ride.target, list(ride.found.items()), ride.keep_alive)
        cycle.body += ride.body
        cycle.more_body = False
        if self.cycle is ride:
            self.cycle = cycle
        self._start_asgi_task(cycle, self.app)

    def _cycle(
        self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], keep_alive: bool
    ) -> Exchange:
        raw_path, _, query = target.partition(b"?")
        path = raw_path.decode("ascii")
        scope: HTTPScope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": self._http_version,
            "method": method.decode("ascii"),
            "scheme": self.scheme or "http",
            "path": self.root_path + (unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + raw_path,
            "query_string": query,
            "root_path": self.root_path,
            "headers": headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state.copy(),
            "extensions": _EXTENSIONS,
        }
        cycle = Exchange(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.linger = self._linger
        cycle.room = self._room
        return cycle

    # ---- the end ----

    def _say_after_the_others(self, words: bytes) -> None:
        last: Any = _LastWords(lambda: self._say(words))
        self.pipeline.appendleft((last, self.app))

    def _refusal(self, status: int, sentence: str) -> bytes:
        code = _CODES.get(status, "bad_request")
        body = json.dumps({"ok": False, "code": code, "error": sentence}).encode()
        headers = dict(self.server_state.default_headers) | {
            b"sluice-api": b"1",
            b"content-type": b"application/json",
            b"content-length": str(len(body)).encode(),
            b"connection": b"close",
            **dict(PRIVATE),
            NAME: correlation_id_in(self._newest_headers()).encode(),
        }
        if status == 401:
            headers[b"www-authenticate"] = b"Bearer"
        if status == 429:
            headers[b"retry-after"] = b"1"
        lines = b"".join([name + b": " + value + b"\r\n" for name, value in headers.items()])
        return STATUS_LINE[status] + lines + b"\r\n" + (b"" if self.parser.get_method() == b"HEAD" else body)

    def _newest_headers(self) -> Iterable[tuple[bytes, bytes]]:
        """Of the request that is being read, as far as they have come."""
        cycle = self.cycle
        if self.headers or cycle is None or cycle.response_complete:
            return self.headers
        found: Any = cycle.scope.get("headers", ())
        return tuple(found)

    def _say(self, words: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(words)
            self._linger()

    def _linger(self) -> None:
        """Ends our side of the connection, and the other after a while."""
        self._over = True
        if self.transport.can_write_eof():  # not of TLS
            self.transport.write_eof()
        self.flow.resume_reading()
        self._arm(LINGER_S, self._close)


class _Flow(FlowControl):
    """Reads on only while no request waits in line: uvicorn reads on whenever one of them starts, and a chunk
    holds thousands, so the line of a client that never stops sending would grow without end."""

    def __init__(self, transport: asyncio.Transport, waits: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._waits = waits

    def resume_reading(self) -> None:
        if not self._waits():
            super().resume_reading()


class _LastWords:
    """Stands in the line of requests for a refusal."""

    task: asyncio.Task[None]
    tasks: set[asyncio.Task[None]]

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say

    async def run_asgi(self, app: object) -> None:
        self._say()
        self.tasks.discard(self.task)
