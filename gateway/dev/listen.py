"""The listening sockets: held open here and handed down, so that none refuses while its gateway restarts."""

from __future__ import annotations

import socket

from gateway.dev.failure import CannotStart

BACKLOG = 2048
"""Connections that wait while a gateway starts again; the kernel caps it at its own limit (somaxconn)."""
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared, not bound


def listen(host: str, port: int, workers: int) -> list[socket.socket]:
    """One listening socket a worker, all on one address; the kernel spreads connections over them.

    Port 0 takes a free one. Raises CannotStart when the address can't be had.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        first = _bound(family, address, shared=False)  # finds out whether the port is taken, shared or not
        if workers == 1:
            return [first]
        address = (address[0], first.getsockname()[1], *address[2:])
        first.close()
        return [_bound(family, address, shared=True) for _ in range(workers)]
    except OSError as fault:
        raise CannotStart(
            f"can't listen on {host}:{port}: {fault.strerror or fault}. Stop what listens "
            "there, or choose another place with --host and --port."
        ) from None


def url(host: str, listening: socket.socket) -> str:
    """The base URL under which a client on this machine reaches the socket."""
    name = WILDCARDS.get(host, host)
    port = listening.getsockname()[1]
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
