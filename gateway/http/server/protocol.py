"""HTTP/1.1 framing that can be trusted: what uvicorn and llhttp let through, refused before the app sees it.

Owns: the limits of a request's header, the deadlines of header and body, what is offered to the fast path.
Must not know: routes, keys, JSON bodies.

llhttp, left strict, refuses two lengths, a length beside a coding, folded lines, bare CR or LF, control
characters and malformed names. What remains for this class: how much header there may be (no other part has a
limit), `Host`, protocols other than HTTP, codings other than `chunked`, versions other than 1.0 and 1.1,
fragments, targets in absolute form; trailers (uvicorn adds them to the headers of the request under way);
`Upgrade` (llhttp stops reading at one, and the body behind it would be taken for the next request); and that
a refusal waits for the answers before it. Source: RFC 9112.
tests/http/test_protocol.py pins each over a socket.

An ordinary request pays one comparison for each of these; what is out of the ordinary is looked at twice. One
with the header of the one before, byte for byte but for target, length, ids, keys and signatures, is not
parsed again: many clients send only such (framing.Head).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, ClassVar, Final

import httptools

from gateway.http.bounds import Connections
from gateway.http.server.connection import Connection
from gateway.http.server.exchange import Exchange, FastExchange
from gateway.http.server.fast_path import FastPath
from gateway.http.server.framing import (
    HASH,
    SLASH,
    Head,
    Untrusted,
    blame,
    check_host,
    head_of,
    origin_form,
)
from gateway.http.unread import Unread
from gateway.together import Together

logger = logging.getLogger("sluice.edge")

HEADERS_MAX: Final = 100
"""Headers of one request: browsers and proxies send about 20."""

HEADER_BYTES_MAX: Final = 64 * 1024
"""Bytes of request line and headers together, counted as lines of `name: value` without padding."""

HEADER_TIMEOUT_S: Final = 10.0
"""From a header's first byte (or the connection's start) to its last: a header is one packet or two."""

BODY_TIMEOUT_S: Final = 30.0
"""How long a body may pause while the app waits for more of it."""

DRAINED_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of a body is read on, unheard, once its request has been answered: what an honest client may have
had under way, so more than the largest body that is accepted. Beyond it the connection ends."""

HOLD_S: Final = 0.003
"""How long a request whose header came without its body waits for its body before the app sees it, which may
answer at once: far less than a client notices, far more than lies between two writes of one program."""

PIECES_MAX: Final = 4096
PIECE_BYTES_LEAST: Final = 16
"""The least that further chunks of a body have on average: each takes a call of Python, and what is read from
a socket at once holds 40,000 of one byte."""

SLICE_BYTES: Final = 4096
"""Of requests that came many at once: so many bytes are parsed in one go, a few milliseconds."""
LINE_MAX: Final = 64
"""Requests that may wait in line while more are parsed."""

TRAILERS_MAX: Final = 1000
"""Headers behind a body, which are passed over."""

HELD_PIECES_MAX: Final = 64
"""Of a body that may be the fast path's."""

UNLIKE_MAX: Final = 3
"""So often another header may follow than the one before, and then this connection keeps none: its client
sends one of its own with each request."""


def make_protocol(
    headers_max: int = HEADERS_MAX,
    header_bytes_max: int = HEADER_BYTES_MAX,
    header_timeout_s: float = HEADER_TIMEOUT_S,
    body_timeout_s: float = BODY_TIMEOUT_S,
    *,
    fast_path: FastPath | None = None,
    connections: Connections | None = None,
    unread: Unread | None = None,
    signed_below: tuple[bytes, str] | None = None,
) -> type[asyncio.Protocol]:
    """A protocol class with these limits, for `uvicorn.Config(http=…, ws="none")`. `signed_below` is a path
    below which a signature is the key, and the sentence that refuses one: all that a sender learns."""
    given = {
        "headers_max": headers_max,
        "header_bytes_max": header_bytes_max,
        "header_timeout_s": header_timeout_s,
        "body_timeout_s": body_timeout_s,
        "together": None if fast_path is None else Together(partial(FastExchange.take, fast_path=fast_path)),
        "clients": connections,
        "unread": unread,
        "signed_below": signed_below,
    }
    return type("StrictProtocol", (StrictProtocol,), given)


class StrictProtocol(Connection):
    """One connection: reading and refusing."""

    headers_max: ClassVar[int] = HEADERS_MAX
    header_bytes_max: ClassVar[int] = HEADER_BYTES_MAX
    header_timeout_s: ClassVar[float] = HEADER_TIMEOUT_S
    body_timeout_s: ClassVar[float] = BODY_TIMEOUT_S
    together: ClassVar[Together[FastExchange] | None] = None
    """The way to the fast path; None: there is none."""
    signed_below: ClassVar[tuple[bytes, str] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trailers = _Nowhere()  # is `self.headers` except while a header is being read
        self.headers = self._trailers
        self._chunk = b""  # what is being parsed
        self._chunk_at = 0  # before it no request of the chunk begins that is still to come
        self._line_here = False  # whether the newest request began in this chunk
        self._host: bytes | None = None  # of the newest request: looked at where another one comes
        self._bytes_most = 0  # upper bound of the header's bytes: all chunks since the one it began in
        self._bytes_least = 0  # lower bound: the chunks that held nothing else
        self._mid_body = False  # the last chunk but those of whole requests ended within a body
        self._empty_bytes = 0  # bytes received since a body last grew
        self._held: list[tuple[bytes, bytes]] | None = None  # headers of a request for the fast path
        self._held_found: dict[bytes, bytes] = {}  # the same by name
        self._held_body = b""
        self._pieces = self._piece_bytes = 0  # of the newest body: calls of `on_body`, and their bytes
        self._between = True  # the parser is between two messages
        self._chunk_begins = False  # with a message, which has not begun yet
        self._leads = False  # the newest message began with this chunk
        self._last: Head | None = None  # of the request that was parsed last, with nothing behind it
        self._unlike = 0  # headers since one was like the one before

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._over:
            self._arm(self.header_timeout_s, self._give_up)

    # ---- reading ----

    def data_received(self, data: bytes) -> None:
        if not self._rest and (len(data) <= SLICE_BYTES or data.count(b" HTTP/1.") <= LINE_MAX):
            self._received(data)
            return
        begins = not self._rest
        self._rest += data
        self.flow.pause_reading()
        if begins:
            self._take_slice()

    def _take_slice(self) -> None:
        """Parses some of what was read at once, while few requests wait in line: it may hold thousands, each
        of which would take its time now, and memory until its turn."""
        if self._over or self.transport.is_closing():
            self._rest = b""
        elif len(self.pipeline) > LINE_MAX:
            return
        else:
            part, self._rest = self._rest[:SLICE_BYTES], self._rest[SLICE_BYTES:]
            self._received(part)
        if self._rest:
            self.loop.call_soon(self._take_slice)
        else:
            self.flow.resume_reading()

    def _line_moved(self) -> None:
        if self._rest and len(self.pipeline) == LINE_MAX:
            self.loop.call_soon(self._take_slice)

    def _received(self, data: bytes) -> None:
        if self._over:
            return
        self._unset_keepalive_if_required()
        if self._last is not None and self._take_like_the_last(self._last, data):
            return
        self._chunk_begins, self._leads = self._between, False
        headers, cycle, held_before = self.headers, self.cycle, self._held
        self._chunk, self._chunk_at = data, 0
        self._bytes_most = len(data) if headers is self._trailers else self._bytes_most + len(data)
        held = len(cycle.body) if self._mid_body and isinstance(cycle, Exchange) else 0
        upgrade_at = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as fault:
            if self._held is not None:
                self._begin_held(self._held)
            self._refuse(*blame(fault))
            return
        except httptools.HttpParserUpgrade as stop:
            upgrade_at = stop.args[0]
        if self._held is not None:
            if self._held is not held_before and not self._held_body:
                # Many clients send header and body by two writes: the other is a moment away.
                self._arm(HOLD_S, self._hold_no_longer)
                return
            self._begin_held(self._held)
        if upgrade_at is not None and not self._pass_upgrade(memoryview(data)[upgrade_at:]):
            return
        newest = self.cycle
        if self.headers is not self._trailers:
            self._amid_header(len(data), began_before=self.headers is headers)
        elif newest is None or newest.response_complete:
            self._amid_nothing(len(data))
        elif newest.more_body:
            grown = newest is not cycle or (isinstance(newest, Exchange) and len(newest.body) > held)
            self._amid_body(len(data), grown=grown)
        elif self._timer is not None:
            self._disarm()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """The client sends no more. What it has asked for is answered all the same; a stream that it has
        already begun to get by GET ends. True keeps our direction open."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        if cycle.response_started and cycle.scope["method"] == "GET":
            return False
        cycle.keep_alive = False
        self._over = True
        if isinstance(cycle, Exchange):
            cycle.client_sends_no_more()
        return True

    def _amid_header(self, chunk_bytes: int, *, began_before: bool) -> None:
        self._line_here = False
        self._bytes_least = self._bytes_least + chunk_bytes if began_before else 0
        if self._bytes_least > self.header_bytes_max:
            self._refuse(431, f"Request line and headers exceed {self.header_bytes_max} bytes.")
        elif not began_before or self._timer is None:
            self._arm(self.header_timeout_s, self._give_up)

    def _amid_nothing(self, chunk_bytes: int) -> None:
        """The chunk was blank lines, or the body of a request that is already answered."""
        self._empty_bytes += chunk_bytes
        if self._empty_bytes > DRAINED_BYTES_MAX:
            self._linger()
        elif self._timer is None or self._mid_body:
            self._mid_body = False
            self._arm(self.header_timeout_s, self._give_up)

    def _amid_body(self, chunk_bytes: int, *, grown: bool) -> None:
        """Chunk extensions and trailers are ignored: a body must grow from time to time."""
        self._mid_body = True
        self._empty_bytes = 0 if grown else self._empty_bytes + chunk_bytes
        if self._empty_bytes > self.header_bytes_max:
            self._refuse(400, _ENDLESS)
        elif grown or self._timer is None:
            self._arm(self.body_timeout_s, self._stall)

    def _stall(self) -> None:
        """A body has not grown in time."""
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._close()
        elif self.flow.read_paused:  # the app takes its time, not the client
            self._arm(self.body_timeout_s, self._stall)
        else:
            self._refuse(408, f"No part of the body arrived for {self.body_timeout_s:g} s.")

    def _give_up(self) -> None:
        """A header, or the rest of an answered request, has not come in time."""
        if self.flow.read_paused:  # what comes is not read: requests wait in line
            self._arm(self.header_timeout_s, self._give_up)
        elif self.cycle is None or self.cycle.response_complete:
            self._close()
        else:  # the last of the answers under way ends the connection
            self._over = True
            self.cycle.keep_alive = False

    # ---- the parser and its callbacks ----

    def _pass_upgrade(self, rest: memoryview) -> bool:
        """Reads on where llhttp has stopped at an `Upgrade`, in `rest`. False if that was refused."""
        try:
            while True:
                header = self._header_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                chunk = self._chunk
                self._chunk, self._chunk_at = header, 0
                self.parser.feed_data(header)
                self._chunk, self._chunk_at = chunk, len(chunk) - len(rest)
                try:
                    self.parser.feed_data(rest)
                    return True
                except httptools.HttpParserUpgrade as stop:
                    rest = rest[stop.args[0] :]
        except httptools.HttpParserError as fault:
            self._refuse(*blame(fault))
            return False

    def _should_upgrade(self) -> bool:
        """Asked by uvicorn only where llhttp stops at an `Upgrade`. True makes it pass over the end of the
        message, which is then sent through again as the plain request that it is to us."""
        return True

    def _header_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(option for option in options if option.lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        """In place of uvicorn's, which makes the scope here: most requests need none (fast_path.py)."""
        self._leads, self._chunk_begins, self._between, self._last = self._chunk_begins, False, False, None
        self.url = b""
        self.expect_100_continue = False
        self._pieces = self._piece_bytes = self._trailers.passed = 0
        self.headers = []
        self._line_here = True
        self._http_version = "1.1"

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp leaves blanks behind the value, which are no part of it (RFC 9110 section 5.5)."""
        headers = self.headers
        headers.append((name.lower(), value.rstrip(b" \t")))
        if len(headers) > self.headers_max:  # what is read at once may have 40,000
            raise Untrusted(431, f"The request has more than {self.headers_max} headers.")

    def on_headers_complete(self) -> None:
        """In place of uvicorn's, which parses more than an origin form needs: that pays for the checks."""
        headers, parser = self.headers, self.parser
        method = parser.get_method()
        found = dict(headers)
        each_once = len(found) == len(headers)
        keep_alive = parser.should_keep_alive()  # where no `Connection` is sent, true of 1.1 only
        if (
            not keep_alive
            or parser.should_upgrade()
            or not each_once
            or self._host is None
            or found.get(b"host") != self._host
            or not self._chunk.startswith(b" HTTP/", self._chunk_at + len(method) + 1 + len(self.url))
            or not _UNUSUAL.isdisjoint(found)
            or self._bytes_most > self.header_bytes_max
            or self.url[0] != SLASH
            or HASH in self.url
        ):
            self._examine(headers, found)
            if parser.should_upgrade():
                return
            keep_alive = keep_alive and self._http_version == "1.1"
        if self._timer is not None:
            self._disarm()
        self.headers = self._trailers
        if (
            self.together is not None
            and keep_alive
            and each_once
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and method in _FAST
        ):
            self._held, self._held_found, self._held_body = headers, found, b""
        else:
            self._begin(headers, keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._piece_bytes += len(body)
        if self._pieces > HELD_PIECES_MAX:
            self._is_in_many_pieces()
        if self._held is not None:
            self._held_body += body
        else:
            super().on_body(body)

    def _is_in_many_pieces(self) -> None:
        """The body of the newest request. Raises Untrusted."""
        if self._held is not None:  # which copies what came before with each piece
            self._begin_held(self._held)
        if self._piece_bytes < (self._pieces - PIECES_MAX) * PIECE_BYTES_LEAST:
            raise Untrusted(400, f"The chunks of the body have less than {PIECE_BYTES_LEAST} bytes each.")

    def on_message_complete(self) -> None:
        self._between = True
        if self._held is None:
            super().on_message_complete()
            return
        method, target, found, body = self.parser.get_method(), self.url, self._held_found, self._held_body
        self._take(method, target, found, body)
        # Nothing of it is kept until the next one comes: what is freed at once is still in the cache.
        self._held, self._held_found, self._held_body = None, {}, b""
        if self._leads and self._unlike < UNLIKE_MAX:
            self._last = head_of(self._chunk, method, target, found, body)

    def _take(self, method: bytes, target: bytes, found: dict[bytes, bytes], body: bytes) -> None:
        """A request for the fast path, with all that came with it."""
        assert self.together is not None
        request = method, target, found, body
        self.cycle = ride = FastExchange(
            self.transport, self.on_response_complete, self._begin_after_all, request
        )
        self.together.add(ride, self.loop)

    def _take_like_the_last(self, last: Head, data: bytes) -> bool:
        """Whether the chunk is one whole request with the last one's header: it needs no parser."""
        cycle = self.cycle
        if cycle is None or not cycle.response_complete or self.flow.write_paused:
            return False
        again = last.again(data)
        if again is None or len(data) - len(again[2]) > self.header_bytes_max:
            self._unlike += 1
            return False
        target, found, body = again
        self._take(last.method, target, found, body)
        self.url, self._unlike = target, 0
        if self._timer is not None:
            self._disarm()
        return True

    def _begin_held(self, headers: list[tuple[bytes, bytes]]) -> None:
        """The request goes the usual way, with what came of its body so far: that is kept once."""
        body, self._held, self._held_found, self._held_body = self._held_body, None, {}, b""
        self._begin(headers, keep_alive=True)
        if body:
            super().on_body(body)

    def _hold_no_longer(self) -> None:
        """The body has not come at once."""
        if self._held is not None:
            self._begin_held(self._held)
            self._mid_body, self._empty_bytes = True, 0
            self._arm(self.body_timeout_s, self._stall)

    def _examine(self, headers: list[tuple[bytes, bytes]], found: dict[bytes, bytes]) -> None:
        """All that can be wrong with a header. Raises Untrusted; brings the target into origin form."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._within_limits(method, headers)
        self._is_http(method)
        if version not in ("1.0", "1.1"):
            raise Untrusted(400, f"HTTP/{version} is not supported; send HTTP/1.1.")
        self._http_version = version
        once = b"host" in found and len(found) == len(headers)
        hosts = 1 if once else [name for name, _ in headers].count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise Untrusted(400, f"A request has exactly one Host header; this one has {hosts}.")
        self._host = found.get(b"host")
        if self._host is not None:
            check_host(self._host)
        if b"transfer-encoding" in found:
            codings = {_token(value) for name, value in headers if name == b"transfer-encoding"}
            if version == "1.0" or codings != {b"chunked"}:
                raise Untrusted(400, "Only `Transfer-Encoding: chunked` is supported, in HTTP/1.1.")
        if b"expect" in found and version == "1.1":
            self.expect_100_continue = _token(found[b"expect"]) == b"100-continue"
        self.url = origin_form(method, self.url)

    def _is_http(self, method: bytes) -> None:
        """llhttp takes RTSP and ICE too, without a word. Raises Untrusted where the request line names
        another protocol; one that came in pieces is not looked at."""
        if self._line_here:
            line = method + b" " + self.url + b" HTTP/"
            at = self._chunk.find(line, self._chunk_at)
            if at < 0:
                raise Untrusted(400, "The request line must end in ` HTTP/1.1`.")
            self._chunk_at = at + len(line)

    def _within_limits(self, method: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        if self._bytes_most > self.header_bytes_max:
            total = len(method) + len(self.url) + len(b"  HTTP/1.1\r\n\r\n")
            total += sum([len(name) + len(value) + len(b": \r\n") for name, value in headers])
            if total > self.header_bytes_max:
                raise Untrusted(431, f"Request line and headers exceed {self.header_bytes_max} bytes.")

    # ---- refusing ----

    def _refuse(self, status: int, sentence: str) -> None:
        """Ends the connection with a refusal, once all earlier requests are answered."""
        self._over = True
        logger.info("request_refused", extra={"status": status, "reason": sentence})
        if status == 431 and self.signed_below is not None and self.url.startswith(self.signed_below[0]):
            status, sentence = 401, self.signed_below[1]  # one that is so long is none
        words = self._refusal(status, sentence)
        cycle = self.cycle
        in_header = self.headers is not self._trailers
        if cycle is None or (in_header and cycle.response_complete):
            self._say(words)
        elif in_header:
            self._say_after_the_others(words)
        # else the fault is in the body of the newest request, which so will never be complete
        elif self.pipeline:
            self.pipeline.popleft()
            self._say_after_the_others(words)
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._linger() if cycle.response_started else self._say(words)


class _Nowhere(list[tuple[bytes, bytes]]):
    """Takes the trailers: they come too late to mean anything."""

    passed = 0

    def append(self, header: tuple[bytes, bytes], /) -> None:
        """Raises Untrusted."""
        self.passed += 1
        if self.passed > TRAILERS_MAX:
            raise Untrusted(400, _ENDLESS)


_ENDLESS: Final = "The chunk extensions or trailers of the body are too long."
_FAST: Final = (b"GET", b"POST")
_UNUSUAL: Final = frozenset((b"connection", b"expect", b"transfer-encoding"))


def _token(value: bytes) -> bytes:
    return value.strip(b" \t").lower()
