"""How commands reach Postgres: the option, the settings, a prepared connection."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.setting_files import read_file
from gateway.config import ConfigError, one, told_as_given

PostgresOption = Annotated[
    str | None,
    typer.Option("--postgres", metavar="URL", help="Postgres URL; default: SLUICE_POSTGRES_URL."),
]

DEVELOPMENT = Path(".sluice/run/env")
"""The settings of an instance that `sluice dev` runs, or has run, in this folder."""


def is_database_set() -> bool:
    """Whether the environment says which database to use."""
    return any(os.environ.get(name) for name in ("SLUICE_POSTGRES_URL", "SLUICE_POSTGRES_URL_FILE"))


def postgres_url(option: str | None) -> str:
    """The option if given, else what the environment says. Raises ConfigError."""
    environ = {"SLUICE_POSTGRES_URL": option} if option else os.environ
    try:
        with told_as_given(postgres=option):
            return str(one("postgres_url", environ, read_file))
    except ConfigError as fault:
        if option or is_database_set() or not DEVELOPMENT.exists():
            raise
        hint = f"For the instance in this folder, first run `. {DEVELOPMENT}`"
        raise ConfigError((*fault.faults, hint)) from fault


@asynccontextmanager
async def prepared(url: str) -> AsyncIterator[Any]:
    """A connection to a database at this release's version. Raises CatalogError, also for what Postgres
    refuses meanwhile."""
    from gateway.catalog.database import connect
    from gateway.catalog.migrate import require_prepared
    from gateway.catalog.model import CatalogError
    from gateway.postgres.connection_errors import UNANSWERED

    conn = await connect(url)
    try:
        await require_prepared(conn)
        yield conn
    except UNANSWERED as error:
        raise CatalogError(f"Postgres refused: {error}") from error
    finally:
        await conn.close()
