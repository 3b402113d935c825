from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.catalog.migrate import migrate
from tests.conftest import PARTITIONS
from tests.deploy.front import NGINX
from tests.deploy.shipped import Shipped, postgres_by_conf, redis_by_conf, server_of
from tests.deploy.tls import find_postgres_with_tls, find_redis_with_tls
from tests.support.servers import open_folder


@pytest.fixture(scope="session")
async def shipped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shipped]:
    """What an operator has after following docs/operations.md."""
    secrets = tmp_path_factory.mktemp("secrets")
    with open_folder() as folder, contextlib.ExitStack() as ending:
        redis, postgres = redis_by_conf(folder), postgres_by_conf(folder)
        for server in (redis_server := server_of(redis), postgres_server := server_of(postgres)):
            ending.callback(server.keeper.stop, hurried=lambda: True)
        await redis_server.start()
        await postgres_server.start()
        found = Shipped(redis, redis_server, postgres)
        postgres.psql("postgres-roles.sql", "postgres", **password_files(secrets))
        await migrate(found.owner_url, PARTITIONS)
        postgres.psql("postgres-grants.sql", "sluice", "sluice_owner")
        yield found


def password_files(folder: Path) -> dict[str, str]:
    """The variables that postgres-roles.sql reads."""
    environ = {}
    for role in ("OWNER", "GATEWAY"):
        file = folder / role.lower()
        file.write_text(f"a password of the {role.lower()}")
        environ[f"{role}_PASSWORD_FILE"] = str(file)
    return environ


def _missing() -> Iterator[tuple[str, str]]:
    """A test file that can't run here, and what it needs."""
    if NGINX is None:
        yield "test_nginx.py", "nginx and openssl (apt-get install nginx-light openssl)"
    if find_redis_with_tls() is None or find_postgres_with_tls() is None:
        yield (
            "test_tls_servers.py",
            "a Redis and a Postgres with TLS (apt-get install redis-server postgresql)",
        )


MISSING = dict(_missing())
collect_ignore = list(MISSING)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for file, needed in MISSING.items():
        terminalreporter.write_line(f"NOT RUN: tests/deploy/{file}, which needs {needed}", red=True)
