"""`sluice names`: aliases of aggregates: look up, list, import, export, retire."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from gateway.cli.database import PostgresOption
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, confirm, print_json, print_table, refuse, say
from gateway.cli.servers import RedisOption, at_database, at_place, watched
from gateway.cli.setting_files import read_file

if TYPE_CHECKING:
    import asyncpg

    from gateway.aliases.public_to_hash import Migration
    from gateway.aliases.store import Found, Rebuilt
    from gateway.config import Config
    from gateway.operations.names import Imported
    from gateway.operations.place import Place

app = typer.Typer(
    help="Aliases: public ids, hash ids, and the aggregates that they name.", no_args_is_help=True
)

ROWS_AT_ONCE = 1000
"""Of a table: a longer one is printed in parts, so that it need not be held as a whole."""
TenantOption = Annotated[str, typer.Option(help="The tenant's name.")]
AliasArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="An alias such as VNO-42, with or without @.")
]


@app.command()
def resolve(
    alias: AliasArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the full alias, with the type and key of its aggregate; exit 1 if no alias or several match."""

    async def work(pool: asyncpg.Pool) -> list[Found]:
        from gateway.operations import names

        return await names.resolve(pool, await names.tenant_of(pool, tenant), alias)

    found = at_database(postgres, work)
    if not found:
        refuse(f"there is no alias {alias}")
    if len(found) > 1:
        refuse(f"{alias} could be any of these:", *(each.alias.text for each in found))
    if as_json:
        print_json({"ok": True, **_shown(found[0])})
    else:
        say(f"{found[0].alias.text} {found[0].aggregate_type} {found[0].key}")


@app.command("list")
def list_(
    tenant: TenantOption = "main",
    of_type: Annotated[
        str | None, typer.Option("--type", help="Only names of aggregates of this type.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many; default: all.")] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the names of a tenant, including retired ones."""

    async def work(pool: asyncpg.Pool) -> list[Found]:
        from gateway.operations import names

        some: list[Found] = []
        more, count = False, 0
        async for each in names.every(pool, await names.tenant_of(pool, tenant), of_type):
            if limit is not None and count == limit:
                say(f"only the first {limit:,} are listed: raise --limit, or narrow by --type", err=True)
                break
            count += 1
            some.append(each)
            if len(some) == ROWS_AT_ONCE and not as_json:
                _print_names(some, show_header=not more)
                some, more = [], True
        if not as_json and (some or not more):
            _print_names(some, show_header=not more)
        return some

    found = at_database(postgres, work)
    if as_json:
        print_json([_shown(each) for each in found])


def _print_names(found: list[Found], *, show_header: bool) -> None:
    rows = [
        [each.alias.text, each.aggregate_type, each.key, "retired" if each.retired else ""] for each in found
    ]
    print_table(["alias", "type", "key", ""], rows, show_header=show_header)


@app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines; - writes stdout.")] = "-",
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
) -> None:
    """Write all names of a tenant, one JSON object a line, for `sluice names import`."""

    async def work(pool: asyncpg.Pool) -> int:
        from gateway.aliases.transfer import exported
        from gateway.operations import names

        count = 0
        owner = await names.tenant_of(pool, tenant)
        with watched("export") as watcher, _writing(file) as out:
            async for found in names.every(pool, owner):
                out.write(exported(found))
                count += 1
                watcher.advance(1)
            out.flush()
        return count

    count = at_database(postgres, work)
    say(f"{_counted(count)} written", err=True)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines; - reads stdin.")],
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give aggregates the names in a file, all or none. Counters of public ids continue after the
    greatest number in the file."""
    lines = _lines(file)
    config = _config(postgres, redis)

    async def work(place: Place) -> Imported | str:
        from gateway.aliases.transfer import CannotImport
        from gateway.operations import names

        owner = await names.tenant_of(place.pool, tenant)
        with watched("import") as watcher:
            try:
                return await names.bring_in(place, config, owner, lines, watcher)
            except CannotImport as faults:
                return str(faults)

    imported = at_place(postgres, redis, work)
    if isinstance(imported, str):
        refuse(imported, "nothing was changed")
    else:
        sentence = f"{_counted(imported.new)} imported, {imported.known} already present"
        confirm(sentence, as_json, imported=imported.new, present=imported.known)


class From(StrEnum):
    PUBLIC = "public"


class To(StrEnum):
    HASH = "hash"


@app.command()
def migrate(
    from_: Annotated[From, typer.Option("--from", help="The kind of the present names.")],
    to: Annotated[To, typer.Option("--to", help="The kind of names to add.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")
    ] = False,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give every aggregate with a public id a hash id too, all or none, with the prefix of the spec's
    `hash_ids`. Print a line for each, such as `VNO-1 bd-k86gaq`. Both names resolve from then on."""
    config = _config(postgres, redis)

    async def work(place: Place) -> tuple[Migration, int]:
        from gateway.operations import names

        owner = await names.tenant_of(place.pool, tenant)
        return await names.public_to_hash(place, config, owner, dry_run=dry_run)

    migration, new = at_place(postgres, redis, work)
    if as_json:
        pairs = [{"public": str(pair.public), "hash": str(pair.hash)} for pair in migration.pairs]
        print_json({"ok": True, "written": not dry_run, "new": new, "names": pairs})
        return
    for pair in migration.pairs:
        say(f"{pair.public} {pair.hash}")
    would = "would be new; nothing was written" if dry_run else "are new"
    say(f"{new} hash ids {would}, {len(migration.pairs) - new} existed already", err=True)
    if migration.once:
        types = ", ".join(migration.once)
        say(f"`hash_ids` does not list {types}: new aggregates of them get no hash id", err=True)


@app.command()
def retire(
    alias: AliasArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop showing an alias. It still resolves, and is never given to another aggregate."""
    text = _retire(alias, tenant, postgres, redis, restore=False)
    confirm(f"{text} is retired", as_json, alias=text, retired=True)


@app.command()
def restore(
    alias: AliasArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a retired alias again."""
    text = _retire(alias, tenant, postgres, redis, restore=True)
    confirm(f"{text} is restored", as_json, alias=text, retired=False)


@app.command()
def rebuild(
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the tables of names from the events; exit 1 if they differed."""

    async def work(pool: asyncpg.Pool) -> Rebuilt:
        from gateway.operations import names

        return await names.rebuild(pool, await names.tenant_of(pool, tenant))

    rebuilt = at_database(postgres, work)
    if as_json:
        print_json({"ok": rebuilt.unchanged, "names": rebuilt.names, "differences": not rebuilt.unchanged})
    elif rebuilt.unchanged:
        say(f"{_counted(rebuilt.names)} rebuilt, no differences")
    else:
        refuse(f"{_counted(rebuilt.names)} rebuilt; the tables differed from the events")
    if not rebuilt.unchanged:
        raise typer.Exit(1)


def _retire(alias: str, tenant: str, postgres: str | None, redis: str | None, *, restore: bool) -> str:
    config = _config(postgres, redis)

    async def work(place: Place) -> str:
        from gateway.operations import names

        owner = await names.tenant_of(place.pool, tenant)
        return (await names.retire(place, config, owner, alias, restore=restore)).text

    return at_place(postgres, redis, work)


def _config(postgres: str | None, redis: str | None) -> Config:
    """The settings of a gateway: this command works as one for a moment."""
    import os

    from gateway.config import Config, told_as_given

    given = {"SLUICE_POSTGRES_URL": postgres, "SLUICE_REDIS_URL": redis}
    environ = {**os.environ, **{name: url for name, url in given.items() if url}}
    with told_as_given(postgres=postgres, redis=redis):
        return Config.from_environ(environ, read_file)


def _lines(file: str) -> Iterable[bytes]:
    return read_input(file).splitlines()


def _writing(file: str) -> Any:
    from contextlib import nullcontext

    if file == "-":
        return nullcontext(sys.stdout.buffer)
    try:
        out: BinaryIO = Path(file).open("wb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be written: {error.strerror}", param_hint="FILE") from None
    return out


def _counted(names: int) -> str:
    return "1 name" if names == 1 else f"{names} names"


def _shown(found: Found) -> dict[str, Any]:
    shown = {"aggregate_type": found.aggregate_type, "key": found.key, "alias": found.alias.text}
    return {**shown, "retired": True} if found.retired else shown
