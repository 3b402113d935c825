"""A URL may name several hosts of Postgres, of which some do not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import asyncpg
import pytest

from gateway.dev.postgres_server import SOCKET_NAME
from gateway.log.postgres import connect, open_pool
from gateway.postgres.connecting import addresses
from tests.faults.link import Link
from tests.support.drive import Place
from tests.support.ports import free_port
from tests.support.servers import Servers

PATIENCE_S = 40.0


@pytest.fixture
async def answering(servers: Servers) -> AsyncIterator[int]:
    """The port of a Postgres."""
    link = Link(servers.postgres_server.socket_folder / SOCKET_NAME)
    await link.open()
    yield link.port
    await link.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose server stands still: the kernel accepts connections, and no process reads them."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


@pytest.fixture
def refusing() -> int:
    return free_port()


def _url(place: Place, *ports: int) -> str:
    database = place.postgres_url.partition("?")[0].rpartition("/")[2]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://sluice@{hosts}/{database}?target_session_attrs=read-write&sslmode=disable"


async def test_a_host_that_stands_still_does_not_keep_the_next_one_waiting(
    place: Place, silent: int, refusing: int, answering: int
) -> None:
    """It would keep it for all of this time."""
    url = _url(place, silent, refusing, answering)
    async with asyncio.timeout(PATIENCE_S / 2):
        connection = await connect(url, PATIENCE_S)
        await connection.close()
        pool = await open_pool(url, 2, PATIENCE_S)
        assert await pool.fetchval("SELECT 1") == 1
        await pool.close()


async def test_where_no_host_answers_the_time_ends(place: Place, silent: int, refusing: int) -> None:
    with pytest.raises(TimeoutError):
        await connect(_url(place, silent, refusing), 0.6)


async def test_where_no_host_fits_the_reason_is_told(place: Place, answering: int, refusing: int) -> None:
    with pytest.raises(OSError):
        await connect(_url(place, refusing, refusing), PATIENCE_S)
    standby = _url(place, answering, answering).replace("read-write", "standby")
    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connect(standby, PATIENCE_S)


def test_each_host_has_a_url_with_everything_else_as_it_is() -> None:
    assert addresses("postgresql://a:b%40@h1:1,[::1]:2,h3/db?x=1,2") == [
        "postgresql://a:b%40@h1:1/db?x=1,2",
        "postgresql://a:b%40@[::1]:2/db?x=1,2",
        "postgresql://a:b%40@h3/db?x=1,2",
    ]
    assert addresses("postgresql:///db?host=/run/postgres") == ["postgresql:///db?host=/run/postgres"]
