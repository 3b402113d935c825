"""`sluice tenants`: whose events they are."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gateway.catalog.model import Tenant
from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.output import JsonOption, print_json, print_table, say

app = typer.Typer(help="Whose events they are.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="a-z, then up to 62 of a-z, 0-9, _ and -; it never changes."),
    ],
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a tenant."""
    tenant = asyncio.run(_create(postgres_url(postgres), name))
    if as_json:
        print_json(_shown(tenant))
    else:
        say(f"tenant {tenant.name} created: id {tenant.id}, handle {tenant.handle}")


@app.command("list")
def list_(postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """List the tenants."""
    tenants = asyncio.run(_every(postgres_url(postgres)))
    if as_json:
        print_json([_shown(tenant) for tenant in tenants])
    else:
        print_table(
            ["name", "id", "handle"], [[tenant.name, str(tenant.id), tenant.handle] for tenant in tenants]
        )


def _shown(tenant: Tenant) -> dict[str, str]:
    return {"id": str(tenant.id), "name": tenant.name, "handle": tenant.handle}


async def _create(url: str, name: str) -> Tenant:
    from gateway.catalog import tenants

    async with prepared(url) as conn:
        return await tenants.create(conn, name)


async def _every(url: str) -> list[Tenant]:
    from gateway.catalog import tenants

    async with prepared(url) as conn:
        return await tenants.every(conn)
