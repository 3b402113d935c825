# Made by deploy/synchronous.py from async_pool.py: change that one.
"""A client's connections, for any threads. The newest idle one serves the next request, without a search."""

from __future__ import annotations

import ssl
import threading
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from gateway.client.http1 import Address, Garbled, Response, request_bytes
from gateway.client.retry import Answer, Lost, Request
from gateway.client.sync_network import Connection, connect

CONNECTIONS_MAX = 100
"""At a time, beside followers': further requests wait for one of them."""
CONNECT_S = 5.0
ANSWER_S = 15.0
"""Without a byte. An append is answered within 10 s (SLUICE_APPEND_DEADLINE_S), a read within 5."""


class Pool:
    def __init__(self, address: Address, head: bytes) -> None:
        self._address = address
        self._head = head
        self._tls = ssl.create_default_context() if address.tls else None
        self._idle: list[Connection] = []
        self._slots = threading.Semaphore(CONNECTIONS_MAX)
        self._closed = False

    def close(self) -> None:
        """Ends all that are idle; those in use end with their requests."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def exchange(self, request: Request) -> Answer | Lost:
        """The answer, or that there was none."""
        message = request_bytes(self._address, self._head, request)
        with self._slots:
            while True:
                connection = self._idle_one()
                fresh = connection is None
                if connection is None:
                    try:
                        connection = connect(self._address, self._tls, CONNECT_S)
                    except OSError as trouble:
                        return Lost(f"can't connect to {self._address.url}: {_text(trouble)}", sent=False)
                got = self._ask(connection, message, ANSWER_S + request.wait_s)
                if got is not None:
                    return got
                if fresh:
                    return Lost(f"no answer from {self._address.url}: the connection was closed", sent=True)
                # It had been closed while it was idle: such requests may be repeated at once, and all others
                # of a client may be repeated anyway.

    def _ask(self, connection: Connection, message: bytes, timeout_s: float) -> Answer | Lost | None:
        """None where the connection ended before a byte of the answer."""
        response, arrived = Response(), False
        try:
            connection.send(message)
            while not response.complete:
                received = connection.receive(timeout_s)
                arrived = arrived or bool(received)
                if received:
                    response.feed(received)
                elif arrived:
                    response.end()
                else:
                    raise ConnectionResetError("the connection was closed")
            self._settle(connection, response)
        except ConnectionError as trouble:
            return self._lost(trouble) if arrived else None
        except OSError as trouble:
            return self._lost(trouble)
        finally:
            if not response.reusable:
                connection.close()
        return Answer(response.status, response.headers, response.taken())

    def _lost(self, trouble: OSError) -> Lost:
        return Lost(f"no answer from {self._address.url}: {_text(trouble)}", sent=True)

    def _settle(self, connection: Connection, response: Response) -> None:
        if response.reusable and not self._closed:
            self._idle.append(connection)
        elif response.reusable:
            connection.close()

    def _idle_one(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.idle:
                return connection
            connection.close()

    @contextmanager
    def streamed(self, request: Request, timeout_s: float) -> Iterator[Streamed]:
        """A response whose body is read as it arrives, over a connection of its own. Raises OSError; a
        silence of `timeout_s` is a TimeoutError."""
        connection = connect(self._address, self._tls, CONNECT_S)
        try:
            response = Response()
            connection.send(request_bytes(self._address, self._head, request))
            while not response.status:
                received = connection.receive(timeout_s)
                response.feed(received) if received else response.end()
            yield Streamed(connection, response, timeout_s)
        finally:
            connection.close()


class Streamed:
    def __init__(self, connection: Connection, response: Response, timeout_s: float) -> None:
        self._connection = connection
        self._response = response
        self._timeout_s = timeout_s
        self.status = response.status
        self.headers = response.headers

    def answer(self) -> Answer:
        """As a whole."""
        content = b"".join([part for part in self.parts()])
        return Answer(self.status, self.headers, content)

    def parts(self) -> Generator[bytes, None, None]:
        """The body as it arrives, decompressed. Raises OSError."""
        unpacked = zlib.decompressobj(31) if self.headers.get("content-encoding") == "gzip" else None
        while True:
            if part := self._response.taken():
                try:
                    yield part if unpacked is None else unpacked.decompress(part)
                except zlib.error as fault:
                    raise Garbled(f"what arrived is damaged: {fault}") from fault
            if self._response.complete:
                return
            received = self._connection.receive(self._timeout_s)
            self._response.feed(received) if received else self._response.end()


def _text(trouble: OSError) -> str:
    return trouble.strerror or str(trouble) or type(trouble).__name__
