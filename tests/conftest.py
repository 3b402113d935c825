"""Servers for the whole suite: started once, a database of its own for each test, gone with the test process.

`servers`, `redis_url`: shared by all tests of a run; no test stops these. `postgres_url`: a migrated database
of the test's own, an instance of its own too, so that its keys in Redis are of no other. `start_servers`:
starts pairs that belong to one test, to be killed, paused and wiped at will.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from tests.support.bugs import is_asyncpg_s
from tests.support.databases import cloned, empty, execute
from tests.support.servers import INITIALIZED, Servers, open_folder, servers_in
from tests.support.warm import WARM_STARTS

TEMPLATE = "template_migrated"
PARTITIONS = 16


class _Bugs(logging.Handler):
    """Keeps what is logged of exceptions: no code of the gateway, and no callback of the event loop, is to
    raise one that nothing foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self.met: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        reason = getattr(record, "reason", record.getMessage())
        if error is not None and not is_asyncpg_s(reason, type(error).__name__):
            self.met.append(self.format(record))


@pytest.fixture(autouse=True)
def bugs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which the gateway meets a bug, which it logs and lives with; and one that is marked
    with `bug`, since it makes one, where none is logged."""
    logged = _Bugs()
    logging.getLogger().addHandler(logged)
    yield
    logging.getLogger().removeHandler(logged)
    if request.node.get_closest_marker("bug") is None:
        assert not logged.met, "\n".join(logged.met)
    else:
        assert logged.met, "the bug that this test makes is not logged"


@pytest.fixture(scope="session", autouse=True)
def initialized() -> Iterator[None]:
    """What initdb makes is made once for all servers of the run, those of campaigns included."""
    with open_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(INITIALIZED, str(folder / "data"))
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_starts() -> Iterator[None]:
    """Gateways of campaigns are forked from a process that has imported all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WARM_STARTS, "1")
        yield


@pytest.fixture(scope="session")
async def servers() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder)
        try:
            await pair.start()
            yield pair
        finally:
            pair.close()


@pytest.fixture(scope="session")
def redis_url(servers: Servers) -> str:
    return servers.redis_url


@pytest.fixture(scope="session")
async def template(servers: Servers) -> str:
    """The name of a migrated database that has no connections, so that it can be cloned."""
    from gateway.catalog.migrate import migrate

    await execute(servers.database_url("postgres"), f"CREATE DATABASE {TEMPLATE}")
    await migrate(servers.database_url(TEMPLATE), PARTITIONS)
    return TEMPLATE


@pytest.fixture
async def postgres_url(servers: Servers, template: str) -> AsyncIterator[str]:
    async with cloned(servers, template) as url:
        yield url


@pytest.fixture
async def empty_postgres_url(servers: Servers) -> AsyncIterator[str]:
    """A database with nothing in it."""
    async with empty(servers) as url:
        yield url


@pytest.fixture
async def start_servers() -> AsyncIterator[Callable[..., Awaitable[Servers]]]:
    """Starts a pair of the test's own at each call: `await start_servers()`. Its database is empty."""
    with contextlib.ExitStack() as ending:

        async def start(*, durable: bool = False) -> Servers:
            pair = servers_in(ending.enter_context(open_folder()), durable=durable)
            ending.callback(pair.close)
            await pair.start()
            return pair

        yield start
