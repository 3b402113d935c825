"""`sluice relay`: the process that delivers subscriptions, and how an operator handles deliveries."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.database import PostgresOption, postgres_url
from gateway.cli.outgoing import (
    EventOption,
    NameArgument,
    TenantOption,
    event_id,
    on_subscriptions,
    opened,
    there,
)
from gateway.cli.output import JsonOption, cell, confirm, print_json, print_table, refuse, say
from gateway.cli.setting_files import read_file
from gateway.config import Config

if TYPE_CHECKING:
    from gateway.relay.standing import Standing

app = typer.Typer(
    help="Run a relay, or manage deliveries.",
    epilog="Without a command, `sluice relay` runs a relay until SIGTERM. Declarations, waiting events and "
    "attempts: `sluice subscriptions`.",
)


@app.callback(invoke_without_command=True)
def relay(context: typer.Context) -> None:
    """Without a command, run a relay until SIGTERM: it delivers subscriptions. Settings come from SLUICE_*;
    any number may run in addition to the gateways' own. The commands act on deliveries."""
    if context.invoked_subcommand is not None:
        return
    config = Config.from_environ(os.environ, read_file)
    from gateway.outbound import serve_relay

    serve_relay(config)


@app.command()
def status(
    tenant: Annotated[str | None, typer.Option(help="Only subscriptions of this tenant.")] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every subscription: its lag, and the events that wait."""
    rows, off = _standings(postgres, tenant)
    if as_json:
        print_json([dataclasses.asdict(each) for each in rows])
        return
    columns = [
        "tenant",
        "name",
        "target",
        "state",
        "lag",
        "behind",
        "retrying",
        "parked",
        "failing for",
        "relay",
    ]
    print_table(columns, [_row(each) for each in rows])
    for each in rows:
        if each.why:
            say(f"{each.tenant}/{each.name}: {each.why}")
    if off:
        say(f"nothing is delivered: {off}; `sluice adopt` allows it", err=True)


def _standings(postgres: str | None, tenant: str | None) -> tuple[list[Standing], str | None]:
    """And why no relay delivers, where none does."""

    async def run() -> tuple[list[Standing], str | None]:
        from gateway.catalog import tenants
        from gateway.relay.home import not_adopted
        from gateway.relay.standing import standing

        async with opened(postgres_url(postgres)) as (subscriptions, pool):
            owner = None if tenant is None else (await tenants.named(pool, tenant)).id
            await subscriptions.declare(owner)
            return await standing(pool, owner), await not_adopted(pool)

    from gateway.postgres.errors import PostgresTrouble

    try:
        return asyncio.run(run())
    except PostgresTrouble as trouble:
        refuse(f"Postgres: {trouble}")


def _row(each: Standing) -> list[str]:
    failing_s = None if each.failing_since is None else time.time() - each.failing_since
    return [
        each.tenant, each.name, each.kind, each.state, f"{each.lag_events:,}", _span(each.lag_s),
        str(each.retrying + each.claimed), str(each.parked),
        cell(None if failing_s is None else _span(failing_s)), cell(each.owner),
    ]  # fmt: skip


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@app.command()
def replay(
    name: NameArgument,
    event: EventOption = None,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver parked events again: at once, and then by the full retry schedule."""
    wanted = None if event is None else event_id(event)
    done = on_subscriptions(postgres, tenant, lambda all_, owner: all_.replay(owner, name, wanted))
    count = there(done, name, tenant)
    confirm(f"{count} parked events will be delivered again", as_json, name=name, events=count)


@app.command()
def skip(
    name: NameArgument,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The parked event's id.")],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Skip a parked event; later events of its aggregate are delivered again."""
    wanted = event_id(event)
    done = on_subscriptions(postgres, tenant, lambda all_, owner: all_.skip(owner, name, wanted))
    if not there(done, name, tenant):
        refuse(f"no event {wanted} is parked there: `sluice subscriptions waiting {name}` lists them")
    confirm(f"event {wanted} is skipped", as_json, name=name, event_id=str(wanted))


@app.command()
def pause(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop deliveries of a subscription until it is resumed."""
    done = on_subscriptions(postgres, tenant, lambda all_, owner: all_.pause(owner, name))
    there(done or None, name, tenant)
    confirm(f"{name} is paused", as_json, name=name, state="paused")


@app.command()
def resume(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume deliveries of a subscription that was paused or disabled."""
    done = on_subscriptions(postgres, tenant, lambda all_, owner: all_.resume(owner, name))
    there(done or None, name, tenant)
    confirm(f"{name} is resumed", as_json, name=name, state="active")
