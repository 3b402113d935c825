"""uvicorn's request and response, with what asgi_extension.py adds: an answer that is whole is one write. And
requests that need neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.http.asgi_extension import AT_ONCE, ROOM, WHOLE
from gateway.http.server.fast_path import FastPath

logger = logging.getLogger("sluice.edge")

_NOTHING: Final[dict[bytes, bytes]] = {}

_CLOSE: Final = b"connection: close\r\n"


class Exchange(RequestResponseCycle):
    """One request and its answer."""

    task: asyncio.Task[None]
    tasks: set[asyncio.Task[None]]
    """The server's, which waits for them when it stops."""
    linger: Callable[[], None]
    """Ends the connection in place of `transport.close` while the client may still be sending the body: that
    would be reset, and the answer lost with it."""
    room: Callable[[int], str | None]
    """Why so many bytes can't be sent now; None: they can."""
    _body_given = False
    _no_more = False

    async def run_asgi(self, app: Any) -> None:
        try:
            await super().run_asgi(app)
        finally:
            self.tasks.discard(self.task)

    @property
    def authorization(self) -> bytes | None:
        return dict(self.scope["headers"]).get(b"authorization")

    async def receive(self) -> Any:
        """As ASGI has it. That the client has closed its direction behind its body, and may be gone, is
        told by one more part, which is empty."""
        if self._body_given:
            return await super().receive()
        if self.more_body or self.waiting_for_100_continue or self.disconnected:
            message: Any = await super().receive()
            self._body_given = not message.get("more_body")
        else:  # the whole body is here, as it is of nearly every append: nothing to wait for
            self._body_given = True
            self.flow.resume_reading()
            body, self.body = bytes(self.body), bytearray()
            self.message_event.clear()
            message = {"type": "http.request", "body": body, "more_body": False}
        if self._body_given and self._no_more:
            self.message_event.set()
        return message

    def client_sends_no_more(self) -> None:
        self._no_more = True
        self.message_event.set()

    async def send(self, message: Any) -> None:
        if message["type"] != WHOLE:
            if message["type"] == AT_ONCE:
                message["function"] = self._send_at_once
            elif message["type"] == ROOM:
                message["refused"] = self.room(message["bytes"])
            elif self.chunked_encoding and message.get("more_body") and not self.response_complete:
                await self._send_part(message.get("body", b""))
            else:
                await self._send_by_uvicorn(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_started:
            raise RuntimeError("an answer was sent after another had begun")
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        head: bytes = message["head"]
        if _CLOSE in head:
            self.keep_alive = False
        elif not self.keep_alive:
            head += _CLOSE
        self.transport.write(_answer(message["status"], head, body))
        self.message_event.set()
        if not self.keep_alive:
            self._end()
        self.on_response()

    async def _send_by_uvicorn(self, message: Any) -> None:
        if self.scope["http_version"] == "1.0":
            # It knows no chunks (RFC 9112 section 6.1): what has no length ends with the connection.
            self.chunked_encoding = False
            self.expected_content_length = len(message.get("body", b""))
        last = self.response_started and not message.get("more_body")
        if not (last and self.more_body and not self.keep_alive):
            await super().send(message)
            return
        self.keep_alive = True  # uvicorn would close
        await super().send(message)
        self._end()

    def _end(self) -> None:
        if self.more_body and not self.disconnected:
            self.linger()
        else:
            self.transport.close()

    async def _send_part(self, body: bytes) -> None:
        """As uvicorn does, but without a copy: what the feed sends goes to many. Waits for the client to take
        the parts before, not this one: an empty part is the wait for that (follow.taken)."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if body and not self.disconnected:
            self._write_part(body)

    def _send_at_once(self, body: bytes) -> bool:
        if self.flow.write_paused or self.transport.is_closing() or not self.chunked_encoding:
            return False
        if body:
            self._write_part(body)
        return True

    def _write_part(self, body: bytes) -> None:
        self.transport.writelines((b"%x\r\n" % len(body), body, b"\r\n"))


class FastExchange:
    """A whole request for the fast path: what its connection looks at until it is answered."""

    __slots__ = (
        "_begin", "_on_response", "_transport", "authorization", "body", "disconnected", "found",
        "keep_alive", "method", "response_complete", "target",
    )  # fmt: skip

    scope: ClassVar = {"method": "POST"}
    more_body: ClassVar = False
    response_started: ClassVar = False

    def __init__(
        self,
        transport: asyncio.Transport,
        on_response: Callable[[], None],
        begin: Callable[[FastExchange], None],
        request: tuple[bytes, bytes, dict[bytes, bytes], bytes],
    ) -> None:
        """`begin` hands it to the application; `request`: method, target, headers by name, body."""
        self._transport = transport
        self._on_response = on_response
        self._begin = begin
        self.method, self.target, self.found, self.body = request
        self.authorization = self.found.get(b"authorization")
        self.disconnected = self.response_complete = False
        self.keep_alive = True

    def take(self, fast_path: FastPath) -> None:
        """The fast path has it, or the application. Raises nothing."""
        reply, give_up = self.reply, self._give_up
        try:
            taken = fast_path.take(self.method, self.target, self.found, self.body, reply, give_up)
        except Exception:  # a bug before anything was handed over: the application judges the request instead
            logger.exception("fast_path_failed", extra={"method": self.method.decode("ascii")})
            self._begin(self)
            self.disconnected = True  # an answer that comes to it all the same is not sent
            return
        if not taken:
            self._begin(self)
        elif self.method == b"POST":  # what is freed at once is still in the cache
            self.found, self.body = _NOTHING, b""

    def _give_up(self) -> None:
        self._begin(self)

    @property
    def message_event(self) -> asyncio.Event:
        """No caller waits for it."""
        return asyncio.Event()

    def reply(self, status: int, head: bytes, body: bytes) -> None:
        self.response_complete = True
        if self.disconnected:
            return
        if not self.keep_alive:
            head += _CLOSE
        self._transport.write(_answer(status, head, body))
        if not self.keep_alive:
            self._transport.close()
        self._on_response()


def _answer(status: int, head: bytes, body: bytes) -> bytes:
    return b"%b%b\r\n%b" % (STATUS_LINE[status], head, body)
