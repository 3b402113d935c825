"""`sluice keys`: API keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from gateway.catalog.model import Scope, Tenant
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
    say,
)

if TYPE_CHECKING:
    from gateway.catalog.keys import Listed, Minted
    from gateway.catalog.narrowness import Only

app = typer.Typer(
    help="API keys: a key is shown once, when it is created; commands name it by its handle.",
    no_args_is_help=True,
)

DAYS_MAX = 36_500  # a hundred years: further on, dates end

_T = TypeVar("_T")
HandleArgument = Annotated[str, typer.Argument(help="The key's handle, as `sluice keys list` shows it.")]


@app.command()
def create(
    scope: Annotated[
        Literal["read", "write", "admin", "operator"],
        typer.Option(help="Each scope includes the ones before it; `operator` manages tenants."),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="The tenant's name; a key of scope `operator` needs none.")
    ] = None,
    name: Annotated[str, typer.Option(help="A label for lists.")] = "",
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="90s, 15m, 1h, 7d, 4w, 1y, or a number of days; default: never."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Restrict the key to order, order/ID or order.was_paid; repeatable."
        ),
    ] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is never shown again. A warning names each type of --only that the
    tenant's deployed spec does not have."""
    if tenant is None and scope != Scope.OPERATOR.text:
        raise typer.BadParameter("only a key of scope `operator` needs no tenant", param_hint="--tenant")
    lifetime, narrowed = _lifetime(expires_in), _narrowed(only)

    async def work(conn: Any) -> tuple[Minted, list[str]]:
        from gateway.catalog import keys

        owner = await _owner(conn, tenant)
        minted = await keys.create(
            conn, owner, Scope[scope.upper()], name=name, expires_in=lifetime, only=narrowed
        )
        return minted, [] if narrowed is None else await _undeclared(conn, owner, narrowed)

    minted, unknown = _on_catalog(postgres, work)
    _print_minted(minted, as_json)
    for each in unknown:
        say(f"warning: {each}", err=True)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
    limit: LimitOption = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List keys with their state, without the keys themselves."""

    async def work(conn: Any) -> list[Listed]:
        from gateway.catalog import keys, tenants

        owner = await tenants.named(conn, tenant) if tenant is not None else None
        return await keys.every(conn, owner)

    rows = [_shown(key) for key in limited(_on_catalog(postgres, work), limit)]
    if as_json:
        print_json(rows)
    else:
        columns = [
            "handle", "tenant", "scope", "only", "status", "name", "created_at", "expires_at", "last_used_at",
        ]  # fmt: skip
        cells = [{**row, "only": None if row["only"] is None else ", ".join(row["only"])} for row in rows]
        print_table(columns, [[cell(row[column]) for column in columns] for row in cells])


@app.command()
def rotate(
    handle: HandleArgument,
    grace: Annotated[
        int | None,
        typer.Option(
            metavar="HOURS",
            min=0,
            max=24 * DAYS_MAX,
            help="How long the old key stays valid; default: until it is revoked.",
        ),
    ] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a successor of a key; both are valid until the old one is revoked or its grace is over."""

    async def work(conn: Any) -> Minted:
        from gateway.catalog import keys

        return await keys.rotate(conn, handle, grace=None if grace is None else timedelta(hours=grace))

    _print_minted(_on_catalog(postgres, work), as_json)


@app.command()
def revoke(handle: HandleArgument, postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """End a key. Every gateway refuses it within 5 seconds."""

    async def work(conn: Any) -> None:
        from gateway.catalog import keys

        await keys.revoke(conn, handle)

    _on_catalog(postgres, work)
    confirm(f"key {handle} is revoked", as_json, handle=handle)


def _on_catalog(postgres: str | None, work: Callable[[Any], Awaitable[_T]]) -> _T:
    async def run(url: str) -> _T:
        async with prepared(url) as conn:
            return await work(conn)

    return asyncio.run(run(postgres_url(postgres)))


def _print_minted(minted: Minted, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "key": minted.text,
                "handle": minted.handle,
                "tenant": minted.tenant,
                "scope": minted.scope.text,
                "only": minted.only,
                "name": minted.name,
                "expires_at": moment(minted.expires_at),
            }
        )
        return
    say(minted.text)
    expiry = f"expires {moment(minted.expires_at)}" if minted.expires_at else "never expires"
    only = f" only {', '.join(minted.only)}," if minted.only else ""
    say(
        f"key {minted.handle} of tenant {minted.tenant}, scope {minted.scope.text},{only} {expiry}; "
        "it is not shown again",
        err=True,
    )


def _lifetime(text: str | None) -> timedelta | None:
    from gateway.catalog.keys import lifetime_of

    if text is None:
        return None
    found = lifetime_of(f"{text}d" if text.isdecimal() else text)
    if found is None:
        why = "write 90s, 15m, 1h, 7d, 4w or 1y, at most a hundred years"
        raise typer.BadParameter(why, param_hint="--expires-in")
    return found


def _narrowed(names: list[str] | None) -> Only | None:
    from gateway.catalog.narrowness import NAMES_MAX, read_only

    if not names:
        return None
    found = read_only(names)
    if isinstance(found, str):
        why = f"{found!r} is not a type, type/id or type.event_type"
        raise typer.BadParameter(why, param_hint="--only")
    if len(found.names) > NAMES_MAX:
        raise typer.BadParameter(f"a key has at most {NAMES_MAX} of them", param_hint="--only")
    return found


def _shown(key: Listed) -> dict[str, Any]:
    return {
        "handle": key.handle,
        "tenant": key.tenant,
        "name": key.name,
        "scope": key.scope.text,
        "only": key.only,
        "status": key.status,
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "last_used_at": moment(key.last_used_at),
        "revoked_at": moment(key.revoked_at),
        "rotated_from": key.rotated_from,
        "made_by": key.made_by,
    }


async def _undeclared(conn: Any, owner: Tenant, only: Only) -> list[str]:
    """What may be a slip of the pen, or is declared later: with no spec yet, everything is."""
    from gateway.catalog import specs
    from gateway.catalog.narrowness import undeclared

    deployed = await specs.stored(conn, owner.id)
    return [] if deployed is None else list(undeclared(only, specs.declared_events(deployed.document)))


async def _owner(conn: Any, tenant: str | None) -> Tenant:
    from gateway.catalog import tenants
    from gateway.catalog.database import change

    if tenant is not None:
        return await tenants.named(conn, tenant)
    async with change(conn) as (changing, _):
        return await tenants.operators(changing)
