from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.catalog.migrate import migrate
from tests.conftest import PARTITIONS
from tests.deploy.front import NGINX
from tests.deploy.shipped import Shipped, postgres_by_conf, redis_by_conf, server_of
from tests.servers import open_folder


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


collect_ignore = [] if NGINX else ["test_nginx.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if NGINX is None:
        terminalreporter.write_line(
            "deploy/nginx.conf: read, not run: nginx or openssl is missing (apt-get install nginx-light)"
        )
