"""An instance of the test's own, with gateways' logs to fill it and `place` as the commands look at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gateway.log.log import Log
from gateway.operations.place import Place, open_place
from tests.support import drive
from tests.support.drive import Gateway, open_gateway

OpenLog = Callable[..., Awaitable[Log]]


@pytest.fixture
def home(postgres_url: str, redis_url: str) -> drive.Place:
    return drive.Place(postgres_url, redis_url)


@pytest.fixture
async def open_log(home: drive.Place) -> AsyncIterator[OpenLog]:
    """Opens a gateway's log there; all are stopped at the end."""
    gateways: list[Gateway] = []

    async def open_one(**limits: float) -> Log:
        gateways.append(await open_gateway(home, **limits))
        return gateways[-1].log

    yield open_one
    for each in gateways:
        await each.close()


@pytest.fixture
async def log(open_log: OpenLog) -> Log:
    return await open_log()


@pytest.fixture
async def place(home: drive.Place) -> AsyncIterator[Place]:
    async with open_place(home.postgres_url, home.redis_url, 2.0) as opened:
        yield opened
