"""Connections with plain sockets, for one thread at a time. Errors are OSErrors, as everywhere."""

from __future__ import annotations

import select
import socket
import ssl

from gateway.client.http1 import Address

READ_BYTES = 65536


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, data: bytes) -> None:
        """Raises OSError where the connection has ended."""
        self._sock.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        """What has arrived, b"" once the connection has ended. Raises OSError, also in time: TimeoutError."""
        self._sock.settimeout(timeout_s)
        try:
            return self._sock.recv(READ_BYTES)
        except TimeoutError:
            raise TimeoutError("it took too long") from None

    @property
    def idle(self) -> bool:
        """Whether it could serve a request: it is there, and nothing arrived that was not asked for."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._sock.close()


def connect(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> Connection:
    """Raises OSError."""
    try:
        sock = socket.create_connection((address.host, address.port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise
    except TimeoutError:
        raise TimeoutError(f"no connection within {timeout_s:g} s") from None
    return Connection(sock)
