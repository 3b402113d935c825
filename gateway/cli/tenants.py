"""`sluice tenants`: tenants, made, listed, suspended, deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from gateway.catalog.model import CatalogError, Tenant
from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.output import (
    JsonOption,
    LimitOption,
    cell,
    confirm,
    limited,
    moment,
    print_json,
    print_table,
    refuse,
    say,
)
from gateway.cli.servers import watched

if TYPE_CHECKING:
    from gateway.catalog.tenants import Standing

app = typer.Typer(help="Tenants: each has its own spec, events, keys and names.", no_args_is_help=True)

_LOOK_EVERY_S: Final = 0.5
_UNBEGUN_S: Final = 30.0
"""Gateways that follow the catalog begin within some seconds."""
_T = TypeVar("_T")
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The tenant's name, as `sluice tenants list` shows it.")
]


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="a-z, then up to 62 of a-z, 0-9, _ and -. It never changes."),
    ],
    tenant_id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="A UUIDv7; default: a new one.")
    ] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a tenant."""
    chosen = None if tenant_id is None else _uuid7(tenant_id)

    async def work(conn: Any) -> Tenant:
        from gateway.catalog import tenants

        return await tenants.create(conn, name, tenant_id=chosen)

    tenant = _on_catalog(postgres, work)
    if as_json:
        print_json({"id": str(tenant.id), "name": tenant.name, "handle": tenant.handle, "status": "active"})
    else:
        say(f"tenant {tenant.name} created: id {tenant.id}, handle {tenant.handle}")


@app.command("list")
def list_(limit: LimitOption = None, postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """List the tenants, and whether each is active, suspended or being deleted."""
    found = limited(_on_catalog(postgres, _every), limit)
    if as_json:
        print_json([_shown(each) for each in found])
    else:
        rows = [[cell(each.name), str(each.id), each.handle, each.status] for each in found]
        print_table(["name", "id", "handle", "status"], rows)


@app.command()
def suspend(name: NameArgument, postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """Refuse all requests of a tenant from now on, on every gateway within 5 seconds. Nothing is lost."""
    _suspend(name, postgres, suspended=True)
    confirm(f"tenant {name} is suspended", as_json, name=name, status="suspended")


@app.command()
def resume(name: NameArgument, postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """Accept the requests of a suspended tenant again."""
    _suspend(name, postgres, suspended=False)
    confirm(f"tenant {name} is active", as_json, name=name, status="active")


@app.command()
def delete(
    name: NameArgument,
    confirmed: Annotated[bool, typer.Option("--yes", help="Delete it; this cannot be undone.")] = False,
    wait: Annotated[
        bool, typer.Option(help="Show the progress until the deletion is complete; a gateway carries it out.")
    ] = True,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a tenant with all its data. Its keys are invalid at once."""
    if not confirmed:
        refuse(f"this deletes all events of {name} permanently: confirm with --yes")

    async def work(conn: Any) -> Standing:
        from gateway.catalog import tenants

        tenant = await tenants.named(conn, name)
        standing = await tenants.delete(conn, tenant.id)
        return await _followed(conn, standing) if wait else standing

    standing = _on_catalog(postgres, work)
    if as_json:
        print_json(_shown(standing))
    else:
        say(f"tenant {name} is {'deleted' if standing.status == 'deleted' else 'being deleted'}")


async def _followed(conn: Any, standing: Standing) -> Standing:
    """How it stands once it is deleted, with progress on a terminal."""
    from gateway.catalog import tenants

    with watched("events") as watcher:
        begun, done, announced = time.monotonic(), 0, False
        while standing.deletion is not None and standing.status != "deleted":
            if standing.deletion.events and not announced:
                watcher.begin(standing.deletion.events)
                announced = True
            watcher.advance(standing.deletion.deleted - done)
            done = standing.deletion.deleted
            if done == 0 and time.monotonic() - begun > _UNBEGUN_S:
                raise CatalogError("no gateway carries it out: start one, and the deletion continues")
            await asyncio.sleep(_LOOK_EVERY_S)
            standing = await tenants.standing(conn, standing.id)
    return standing


def _suspend(name: str, postgres: str | None, *, suspended: bool) -> None:
    async def work(conn: Any) -> None:
        from gateway.catalog import tenants

        tenant = await tenants.named(conn, name)
        await tenants.suspend(conn, tenant.id, suspended=suspended)

    _on_catalog(postgres, work)


def _shown(standing: Standing) -> dict[str, object]:
    shown: dict[str, object] = {
        "id": str(standing.id),
        "name": standing.name,
        "handle": standing.handle,
        "status": standing.status,
    }
    if standing.deletion is not None:
        shown["events_deleted"] = standing.deletion.deleted
        shown["finished_at"] = moment(standing.deletion.finished_at)
    return shown


def _uuid7(text: str) -> UUID:
    try:
        found = UUID(text)
    except ValueError:
        found = UUID(int=0)
    if found.version != 7 or str(found) != text.lower():
        raise typer.BadParameter("a tenant's id is a UUIDv7.", param_hint="--id")
    return found


def _on_catalog(postgres: str | None, work: Callable[[Any], Awaitable[_T]]) -> _T:
    async def run(url: str) -> _T:
        async with prepared(url) as conn:
            return await work(conn)

    return asyncio.run(run(postgres_url(postgres)))


async def _every(conn: Any) -> list[Standing]:
    from gateway.catalog import tenants

    found: list[Standing] = []
    more = await tenants.page(conn, "", tenants.TENANTS_PAGE_MAX)
    while more:
        found += more
        more = await tenants.page(conn, more[-1].name or "", tenants.TENANTS_PAGE_MAX)
    return found
