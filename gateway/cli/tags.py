"""`sluice tags`: the tags of what is stored."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gateway.catalog.model import CatalogError
from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.output import JsonOption, print_json, say
from gateway.cli.servers import watched

app = typer.Typer(help="The tags of stored events.", no_args_is_help=True)

TenantOption = Annotated[str, typer.Option(help="The tenant's name.")]


@app.command()
def backfill(
    tenant: TenantOption = "main", postgres: PostgresOption = None, as_json: JsonOption = False
) -> None:
    """Add to stored events the tags that the deployed spec declares and that they lack. Gateways continue
    to serve; it is safe to run it again."""
    events, given = asyncio.run(_backfill(postgres_url(postgres), tenant))
    if as_json:
        print_json({"events": events, "tags": given})
    else:
        say(f"{events:,} events read, {given:,} tags given")


async def _backfill(url: str, name: str) -> tuple[int, int]:
    from gateway.catalog import specs, tag_history, tenants
    from gateway.catalog.closing import followed
    from gateway.catalog.spec_use import Conflict

    async with prepared(url) as conn:
        tenant = await tenants.named(conn, name)
        current = await specs.stored(conn, tenant.id)
        if current is None:
            raise CatalogError(f"{name} has no spec yet: `sluice spec deploy FILE`")
        spec = await specs.readable_now(current)
        if isinstance(spec, Conflict):
            raise CatalogError(spec.error)
        await followed(conn)  # what a gateway appends by an earlier spec would be passed by
        events = given = 0
        with watched("giving tags") as progress:
            progress.begin(await tag_history.count_events(conn, tenant.id, spec))
            async for read, tags in tag_history.backfill(conn, tenant.id, spec):
                progress.advance(read)
                events, given = events + read, given + tags
    return events, given
