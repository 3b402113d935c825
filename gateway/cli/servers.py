"""How the commands around a log reach Postgres and Redis, and show how far they have come."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.cli.database import postgres_url
from gateway.cli.output import refuse
from gateway.cli.setting_files import read_file
from gateway.cli.streams import UNWRITTEN
from gateway.config import ConfigError, one, told_as_given

if TYPE_CHECKING:
    import asyncpg

    from gateway.operations.audit import Watcher
    from gateway.operations.place import Place

_T = TypeVar("_T")

RedisOption = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="Redis URL; default: SLUICE_REDIS_URL.")
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", metavar="P", min=0, help="Only this partition; default: all.")
]


def at_place(postgres: str | None, redis: str | None, work: Callable[[Place], Awaitable[_T]]) -> _T:
    """What the work returns. Where a server fails it, ends the command with 1 and a sentence."""

    async def run() -> _T:
        async with _opened(postgres, redis) as place:
            return await work(place)

    return _run(run())


def at_database(postgres: str | None, work: Callable[[asyncpg.Pool], Awaitable[_T]]) -> _T:
    """The same for what needs no Redis."""

    async def run() -> _T:
        from gateway.operations.place import open_database

        async with open_database(postgres_url(postgres)) as pool:
            return await work(pool)

    return _run(run())


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    import asyncpg

    from gateway.log.redis.scripts import RedisTrouble
    from gateway.operations.place import OperationFailed
    from gateway.postgres.errors import PostgresTrouble

    try:
        return asyncio.run(work)
    except (OperationFailed, OSError) as trouble:
        if isinstance(trouble, OSError) and trouble.errno in UNWRITTEN:
            raise
        refuse(str(trouble))
    except (PostgresTrouble, asyncpg.PostgresError) as trouble:
        refuse(f"Postgres: {trouble}")
    except RedisTrouble as trouble:
        refuse(f"Redis: {trouble}")


@asynccontextmanager
async def _opened(postgres: str | None, redis: str | None) -> AsyncIterator[Place]:
    from gateway.operations.place import open_place

    environ = {"SLUICE_REDIS_URL": redis} if redis else os.environ
    settings: list[Any] = []
    faults: list[str] = []
    for read in (
        partial(one, "redis_url", environ, read_file),
        partial(one, "redis_timeout_s", os.environ, read_file),
        partial(postgres_url, postgres),
    ):
        try:
            with told_as_given(redis=redis):
                settings.append(read())
        except ConfigError as fault:
            faults += fault.faults
    if faults:
        raise ConfigError(tuple(faults))
    redis_url, timeout_s, database_url = settings
    async with open_place(database_url, redis_url, timeout_s) as place:
        yield place


def watched(doing: str) -> AbstractContextManager[Watcher]:
    """A progress bar on a terminal, nothing elsewhere. On stderr: stdout is for results."""
    if not sys.stderr.isatty():
        return nullcontext(_Silent())
    return _Bar(doing)


class _Silent:
    def begin(self, rows: int) -> None:
        return

    def advance(self, rows: int) -> None:
        return

    def now(self, doing: str) -> None:
        return


class _Bar:
    """Rows done, of how many, how fast, and how long it will take."""

    def __init__(self, doing: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(doing, total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, rows: int) -> None:
        self._progress.update(self._task, total=rows)

    def advance(self, rows: int) -> None:
        self._progress.advance(self._task, rows)

    def now(self, doing: str) -> None:
        self._progress.update(self._task, description=doing)
