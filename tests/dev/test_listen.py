"""The listening sockets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from gateway.dev.failure import CannotStart
from gateway.dev.listen import listen, url


@contextlib.contextmanager
def listening(port: int, workers: int) -> Iterator[list[socket.socket]]:
    sockets = listen("127.0.0.1", port, workers)
    try:
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_port_0_takes_one_free_port_for_all_workers(workers: int) -> None:
    with listening(0, workers) as sockets:
        assert len(sockets) == workers
        assert len({sock.getsockname() for sock in sockets}) == 1


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("second", [1, 2])
def test_a_port_that_is_taken_is_refused_shared_or_not(first: int, second: int) -> None:
    with listening(0, first) as sockets:
        port = sockets[0].getsockname()[1]
        with pytest.raises(CannotStart, match=rf"127\.0\.0\.1:{port}.*--port"):
            listen("127.0.0.1", port, second)


def test_connections_are_spread_over_all_workers() -> None:
    with listening(0, 2) as sockets, contextlib.ExitStack() as connections:
        for sock in sockets:
            sock.setblocking(False)
        for _ in range(64):
            connections.enter_context(socket.create_connection(sockets[0].getsockname()))
        for sock in sockets:
            accepted, _ = sock.accept()
            accepted.close()


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(CannotStart, match="can't listen on"):
        listen("203.0.113.1", 0, 1)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]")],
)
def test_the_url_is_one_that_a_client_here_can_use(host: str, shown: str) -> None:
    with listening(0, 1) as sockets:
        assert url(host, sockets[0]) == f"http://{shown}:{sockets[0].getsockname()[1]}"
