"""`sluice subscriptions`: events that go out, and their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import typer

from gateway.cli.database import PostgresOption
from gateway.cli.input import read_input
from gateway.cli.outgoing import EventOption, NameArgument, TenantOption, event_id, on_subscriptions, there
from gateway.cli.output import JsonOption, cell, confirm, print_json, print_table, refuse, refuse_faults

if TYPE_CHECKING:
    from gateway.relay.subscriptions import Subscriptions

app = typer.Typer(
    help="Subscriptions: which events go out, and where to.",
    epilog="To replay or skip parked events, pause or resume, and for the lag of all: `sluice relay`.",
    no_args_is_help=True,
)

LIMIT_MAX = 1000


@app.command("list")
def list_(
    tenant: TenantOption = "main", postgres: PostgresOption = None, as_json: JsonOption = False
) -> None:
    """List a tenant's subscriptions, without their secrets."""
    rows = on_subscriptions(postgres, tenant, lambda all_, owner: all_.every(owner))
    if as_json:
        print_json(rows)
        return
    columns = ["name", "target", "state", "lag", "retrying", "parked", "declared"]
    print_table(columns, [_row(each) for each in rows])


def _row(each: dict[str, Any]) -> list[str]:
    target = each["target"]
    declared = "in the spec" if each["declared"] else ""
    counts = [str(each[name]) for name in ("lag_events", "retrying", "parked")]
    return [each["name"], target.get("url") or target["type"], each["state"], *counts, cell(declared)]


@app.command()
def show(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a subscription as JSON, without its secrets."""
    found = on_subscriptions(postgres, tenant, lambda all_, owner: all_.shown(owner, name))
    print_json(there(found, name, tenant), indent=None if as_json else 2)


@app.command()
def put(
    name: NameArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The subscription, as JSON; - reads stdin.")],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create or change a subscription. Its cursor stays, unless `start` changes."""
    from gateway.relay.subscription_rows import Declared, NoPosition, Put, TooMany
    from spec.subscriptions import NAME_GRAMMAR, is_subscription_name

    if not is_subscription_name(name):
        raise typer.BadParameter(f"{name!r} is not a valid name of a subscription: {NAME_GRAMMAR}")
    document = _read(file)

    async def work(all_: Subscriptions, owner: UUID) -> Any:
        return await all_.undeclared(owner, document) or await all_.put(owner, name, document)

    match on_subscriptions(postgres, tenant, work):
        case Put(created):
            confirm(f"{name} is {'created' if created else 'changed'}", as_json, name=name, created=created)
        case Declared():
            refuse(f"{name} is declared in the spec; change it there")
        case TooMany():
            refuse("the tenant has reached its limit of subscriptions")
        case NoPosition(why):
            refuse(f"/start  {why}")
        case faults:
            refuse_faults("The subscription has faults.", faults)


def _read(file: str) -> dict[str, Any]:
    from gateway.admit.strict_json import Malformed, decode

    document = decode(read_input(file))
    if isinstance(document, Malformed):
        raise typer.BadParameter(
            f"{file}: {document.reason.replace('The body', 'the document', 1)}", param_hint="FILE"
        )
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{file} is not a JSON object", param_hint="FILE")
    return document


@app.command()
def delete(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a subscription; events that it has not sent stay in the feed."""
    from gateway.relay.subscription_rows import Declared

    done = on_subscriptions(postgres, tenant, lambda all_, owner: all_.end(owner, name))
    if isinstance(done, Declared):
        refuse(f"{name} is declared in the spec; remove it there")
    there(done or None, name, tenant)
    confirm(f"{name} is deleted", as_json, name=name)


@app.command()
def waiting(
    name: NameArgument,
    state: Annotated[
        Literal["retrying", "claimed", "parked"] | None, typer.Option(help="Only events in this state.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, metavar="N", help="At most this many.")] = 100,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the events that are retrying, claimed or parked."""
    found = on_subscriptions(postgres, tenant, lambda all_, owner: all_.waiting(owner, name, state, limit))
    columns = ["event_id", "aggregate_type", "key", "version", "state", "attempts", "error"]
    _print(there(found, name, tenant), columns, as_json)


@app.command()
def attempts(
    name: NameArgument,
    event: EventOption = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, metavar="N", help="At most this many.")] = 100,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List delivery attempts, newest first; with --json, also the responses."""
    wanted = None if event is None else event_id(event)
    found = on_subscriptions(postgres, tenant, lambda all_, owner: all_.attempts(owner, name, wanted, limit))
    columns = ["event_id", "attempt", "outcome", "status", "took_ms", "error"]
    _print(there(found, name, tenant), columns, as_json)


def _print(rows: list[dict[str, Any]], columns: list[str], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [[cell(row[column]) for column in columns] for row in rows])
