"""How the commands about subscriptions reach them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from gateway.cli.database import postgres_url
from gateway.cli.output import refuse
from gateway.cli.setting_files import read_file
from gateway.config import one

if TYPE_CHECKING:
    from gateway.relay.outbox import Outbox
    from gateway.relay.subscriptions import Subscriptions

_T = TypeVar("_T")
_STATEMENT_S: Final = 60.0

TenantOption = Annotated[str, typer.Option(help="The tenant's name.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]
EventOption = Annotated[
    str | None, typer.Option("--event", metavar="ID", help="Only this event; default: all.")
]


def on_subscriptions(
    postgres: str | None, tenant: str, work: Callable[[Subscriptions, UUID], Awaitable[_T]]
) -> _T:
    """What the work returns; ends the command with 1 and a sentence where Postgres fails it."""

    async def run() -> _T:
        from gateway.catalog import tenants

        async with opened(postgres_url(postgres)) as (subscriptions, pool):
            owner = await tenants.named(pool, tenant)
            return await work(subscriptions, owner.id)

    from gateway.postgres.errors import PostgresTrouble

    try:
        return asyncio.run(run())
    except PostgresTrouble as trouble:
        refuse(f"Postgres: {trouble}")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Subscriptions, Any]]:
    """The subscriptions of a prepared database, and the pool they are reached by. Raises CatalogError."""
    from gateway.catalog.secrets import Secrets
    from gateway.relay.subscriptions import Subscriptions

    async with outbox_of(url) as (outbox, pool):
        allow_private = bool(one("allow_private_targets", os.environ, read_file))
        yield Subscriptions(pool, outbox, Secrets(os.environ).of, allow_private=allow_private), pool


@asynccontextmanager
async def outbox_of(url: str) -> AsyncIterator[tuple[Outbox, Any]]:
    """The events of a prepared database, and the pool they are reached by. Raises CatalogError."""
    from gateway.cli.database import prepared
    from gateway.log.epoch.settling import settling_without_log
    from gateway.log.postgres import Postgres, open_pool
    from gateway.relay.outbox import Outbox

    async with prepared(url):
        pool = await open_pool(url, 2, _STATEMENT_S)
    postgres = Postgres(pool, _STATEMENT_S)
    async with pool, settling_without_log(url, postgres, _STATEMENT_S) as settling:
        yield Outbox(postgres, (await postgres.instance()).partitions, settling.stands), pool


def event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an event's id: an event's id is a UUID") from None


def there(found: _T | None, name: str, tenant: str) -> _T:
    """`found`, or the end of the command."""
    if found is None:
        refuse(f"tenant {tenant} has no subscription {name!r}: `sluice subscriptions list` shows them")
    assert found is not None
    return found
