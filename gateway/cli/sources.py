"""`sluice sources`: which aggregate a foreign system's id stands for, and the other way round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import typer

from gateway.catalog.model import CatalogError
from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.output import JsonOption, confirm, print_json, print_table
from gateway.names.source_ids import SourceId, Unusable, read
from spec.identifiers import Refused, identify, is_name, singleton_fault

app = typer.Typer(help="Ids that foreign systems use for your aggregates.", no_args_is_help=True)

TenantOption = Annotated[str, typer.Option(help="The tenant's name.")]
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="The foreign system.")]
ScopeArgument = Annotated[
    str, typer.Argument(metavar="SCOPE", help='The scope within it; "" if it has only one.')
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, as the foreign system spells it.")]


@app.command()
def key(
    source: SourceArgument,
    scope: ScopeArgument,
    source_id: IdArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the key that an id maps to; exit 1 if it is unknown."""
    found = asyncio.run(_key(postgres_url(postgres), tenant, _read(source, scope, source_id)))
    if found is None:
        raise CatalogError(f"{source} has no {source_id!r} in scope {scope!r}: no request has named it")
    confirm(found, as_json, key=found)


@app.command()
def find(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The aggregate's key.")],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the foreign ids of an aggregate."""
    found = asyncio.run(_source_ids(postgres_url(postgres), tenant, _canonical(key)))
    if as_json:
        print_json(
            [{"source": each.source, "scope": each.scope, "source_id": each.source_id} for each in found]
        )
    else:
        print_table(["source", "scope", "id"], [(each.source, each.scope, each.source_id) for each in found])


@app.command()
def link(
    source: SourceArgument,
    scope: ScopeArgument,
    source_id: IdArgument,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The aggregate's key; the aggregate may be empty.")
    ],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Map an id to an aggregate of yours. An existing mapping never changes."""
    stored = asyncio.run(
        _link(postgres_url(postgres), tenant, _read(source, scope, source_id), _canonical(key))
    )
    if stored != _canonical(key):
        raise CatalogError(f"{source_id!r} is mapped to {stored} already, and a mapping never changes")
    confirm(stored, as_json, key=stored)


@app.command()
def rename(
    source: SourceArgument,
    scope: ScopeArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The scope's new name.")],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a scope another name; all ids in it keep their keys."""
    asyncio.run(_rename(postgres_url(postgres), tenant, source, scope, name))
    confirm(f"scope {scope!r} of {source} is now {name!r}", as_json, source=source, scope=name)


def _read(source: str, scope: str, source_id: str) -> SourceId:
    found = read(source, scope, source_id)
    if isinstance(found, Unusable):
        raise typer.BadParameter(found.reason)
    return found


def _canonical(key: str) -> str:
    """A singleton is taken as it is spelled: which ones there are is the spec's to say."""
    verdict = identify(key, (key,) if is_name(key) and singleton_fault(key) is None else ())
    if isinstance(verdict, Refused):
        raise typer.BadParameter(verdict.reason, param_hint="KEY")
    return verdict.canonical


async def _key(url: str, tenant: str, wanted: SourceId) -> str | None:
    from gateway.catalog.source_ids import known_key

    async with _tenant(url, tenant) as (conn, owner):
        return await known_key(conn, owner, wanted)


async def _source_ids(url: str, tenant: str, key: str) -> tuple[SourceId, ...]:
    from gateway.catalog.source_ids import source_ids_of

    async with _tenant(url, tenant) as (conn, owner):
        return await source_ids_of(conn, owner, key)


async def _link(url: str, tenant: str, wanted: SourceId, key: str) -> str:
    from gateway.catalog.source_ids import link as store

    async with _tenant(url, tenant) as (conn, owner):
        return (await store(conn, owner, wanted, key)).key


async def _rename(url: str, tenant: str, source: str, scope: str, name: str) -> None:
    from gateway.catalog.source_ids import rename_scope

    async with _tenant(url, tenant) as (conn, owner):
        await rename_scope(conn, owner, source, scope, name)


@asynccontextmanager
async def _tenant(url: str, name: str) -> AsyncIterator[tuple[Any, UUID]]:
    from gateway.catalog import tenants

    async with prepared(url) as conn:
        yield conn, (await tenants.named(conn, name)).id
