"""A gateway whose Redis and Postgres are reached over TLS, as docs/operations.md has it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from gateway.catalog.migrate import migrate
from gateway.dev.service_process import ServiceProcess
from tests.conftest import PARTITIONS
from tests.deploy.shipped import ROOT
from tests.deploy.tls import (
    PostgresByTls,
    RedisByTls,
    find_postgres_with_tls,
    find_redis_with_tls,
    postgres_by_tls,
    redis_by_tls,
)
from tests.support.accounts import open_account
from tests.support.calls import appended, length_of, new_client, new_id
from tests.support.certificates import certificate
from tests.support.servers import Server, open_folder
from tests.support.serving import child_serving


@dataclass(frozen=True, slots=True)
class Secured:
    """Both running, Postgres migrated. `another_ca` has signed neither's certificate."""

    redis: RedisByTls
    postgres: PostgresByTls
    another_ca: Path

    @property
    def redis_url(self) -> str:
        return self.redis.url(self.redis.ca)

    @property
    def postgres_url(self) -> str:
        return self.postgres.url(verified(self.postgres.ca))


def verified(ca: Path) -> str:
    return f"sslmode=verify-full&sslrootcert={ca}"


@pytest.fixture(scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    redis_binary, postgres_binaries = find_redis_with_tls(), find_postgres_with_tls()
    assert redis_binary is not None and postgres_binaries is not None
    folders = [tmp_path_factory.mktemp(name) for name in ("redis", "certificates", "another")]
    with open_folder() as folder, contextlib.ExitStack() as ending:
        redis = redis_by_tls(redis_binary, folders[0])
        postgres = postgres_by_tls(postgres_binaries, folder, folders[1])
        for service in (redis, postgres):
            server = Server(ServiceProcess(service, print))
            ending.callback(server.keeper.stop, hurried=lambda: True)
            await server.start()
        found = Secured(redis, postgres, certificate("localhost", folders[2])[0])
        await migrate(found.postgres_url, PARTITIONS)
        yield found


async def test_a_gateway_works_over_connections_that_are_verified(secured: Secured, tmp_path: Path) -> None:
    urls = secured.postgres_url, secured.redis_url
    async with (
        asyncpg.create_pool(secured.postgres_url, min_size=1, max_size=1) as pool,
        child_serving(*urls, tmp_path) as child,
        new_client(child.served.url, (await open_account(pool)).write) as client,
    ):
        key = new_id()
        await appended(client, "order", key, "was_noted")
        assert await length_of(client, key) == 1
        plain = await pool.fetchval(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
            "WHERE NOT ssl AND client_addr IS NOT NULL"
        )
        assert plain == 0
        assert "direct_mode" not in child.log and "backend_unavailable" not in child.log


def doctor(redis_url: str, postgres_url: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_POSTGRES_URL": postgres_url,
        "COLUMNS": "300",
    }
    argv = [sys.executable, "-m", "gateway", "doctor"]
    return subprocess.run(argv, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("server", ["redis", "postgres"])
@pytest.mark.parametrize(
    ("another_ca", "host", "why"),
    [
        (True, "localhost", "certificate verify failed: self-signed certificate"),
        (False, "127.0.0.1", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
def test_a_certificate_of_another_host_is_refused_with_the_reason(
    secured: Secured, server: str, another_ca: bool, host: str, why: str
) -> None:
    urls = {"redis": secured.redis_url, "postgres": secured.postgres_url}
    service = secured.redis if server == "redis" else secured.postgres
    ca = secured.another_ca if another_ca else service.ca
    if server == "redis":
        urls["redis"] = secured.redis.url(ca, host)
    else:
        urls["postgres"] = secured.postgres.url(verified(ca), host)
    done = doctor(urls["redis"], urls["postgres"])
    assert done.returncode != 0, done.stdout
    assert why in " ".join((done.stdout + done.stderr).split()), done.stdout + done.stderr


async def test_a_server_that_takes_only_tls_is_not_reached_without(secured: Secured) -> None:
    plain = secured.redis_url.replace("rediss://", "redis://").partition("?")[0]
    for urls in ((plain, secured.postgres_url), (secured.redis_url, secured.postgres.url("sslmode=disable"))):
        assert doctor(*urls).returncode != 0
