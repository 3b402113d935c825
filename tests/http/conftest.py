"""One gateway for all tests of the HTTP contract, a tenant for each of them.

`client` has the tenant's admin key, `reader` and `writer` the lesser ones, `stranger` none. `outbox` is the
database. Tests that stop gateways or change settings start their own (serving.py) on `own_config`.

What they share ends with the last of them: a gateway takes a fortieth of a core while no client calls it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.relay.live import Live
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import Child, Served, child_serving, serving


@asynccontextmanager
async def database(servers: Servers, template: str) -> AsyncIterator[Config]:
    """Settings of a gateway on a database of its own. Webhooks have as long as appends: a machine that stands
    still for 2.5 s would have a delivery refused."""
    async with cloned(servers, template) as url:
        yield Config(
            redis_url=servers.redis_url,
            postgres_url=url,
            webhook_response_timeout_s=Config.append_deadline_s,
        )


LIVES: WeakSet[Live] = WeakSet()
"""Of all gateways of this process. To look for them among all objects would disturb other threads: what is
half made is among those too."""


@pytest.fixture(scope="session", autouse=True)
def _lives() -> Iterator[None]:
    init = Live.__init__

    def noted(self: Live, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        LIVES.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Live, "__init__", noted)
        yield


@pytest.fixture(scope="package")
async def config(servers: Servers, template: str) -> AsyncIterator[Config]:
    """Settings of a gateway on the database that most of these tests share."""
    async with database(servers, template) as config:
        yield config


@pytest.fixture(scope="module")
async def own_config(servers: Servers, template: str) -> AsyncIterator[Config]:
    """The same on a database that only this module uses: a gateway there starts with few tenants."""
    async with database(servers, template) as config:
        yield config


@pytest.fixture(scope="module")
async def own_outbox(own_config: Config) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(own_config.postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
async def own_tenant(own_outbox: asyncpg.Pool) -> Account:
    return await open_account(own_outbox)


@pytest.fixture(scope="module")
async def own_gateway(own_config: Config) -> AsyncIterator[Served]:
    async with serving(own_config) as served:
        yield served


@pytest.fixture
async def own_client(own_gateway: Served, own_tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it: the outbox that it reads holds what this module has appended, not a whole suite's."""
    async with new_client(own_gateway.url, own_tenant.admin) as client:
        yield client


@pytest.fixture(scope="package")
async def outbox(config: Config) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(config.postgres_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture(scope="package")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture(scope="package")
async def second_gateway(config: Config, gateway: Served) -> AsyncIterator[Served]:
    """Another one of the same instance."""
    async with serving(replace(config)) as served:
        yield served


@pytest.fixture(scope="package")
async def child(config: Config, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Child]:
    """Another one, as a process of its own."""
    folder: Path = tmp_path_factory.mktemp("child")
    async with child_serving(config.postgres_url, config.redis_url, folder) as started:
        yield started


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


@pytest.fixture
async def writer(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.write) as client:
        yield client


@pytest.fixture
async def reader(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.read) as client:
        yield client


@pytest.fixture
async def stranger(gateway: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, None) as client:
        yield client


@pytest.fixture
async def neighbour(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    """With the admin key of another tenant that declares the same."""
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        yield client
