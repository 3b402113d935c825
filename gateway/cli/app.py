"""The command tree, and the commands that run an instance or prepare one."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway import __version__
from gateway.catalog.model import CatalogError, CatalogUnavailable
from gateway.cli import (
    adopt,
    aggregates,
    find,
    ids,
    imports,
    keys,
    names,
    operations,
    projections,
    relay,
    sagas,
    schedules,
    serving,
    sources,
    specs,
    subscriptions,
    tags,
    tenants,
    timeline,
    webhooks,
)
from gateway.cli.database import PostgresOption, postgres_url
from gateway.cli.output import Failed, JsonOption, print_failure, print_json, say
from gateway.cli.setting_files import read_file
from gateway.config import one
from gateway.setting_rows import WORKERS_MAX


class _Commands(TyperGroup):
    """`dev` brings servers and supervision with it, so it is imported when it is asked for."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as fault:
            fault.message = _plain(fault.message)
            raise
        except (CatalogError, CatalogUnavailable) as refused:
            print_failure(Failed((str(refused),), {}), ctx)
        except Failed as failed:
            print_failure(failed, ctx)
        raise typer.Exit(1)

    def list_commands(self, ctx: Any) -> list[str]:
        return ["dev", *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name != "dev":
            return super().get_command(ctx, cmd_name)
        from gateway.dev.command import dev

        alone = typer.Typer(add_completion=False)
        alone.command("dev")(dev)
        return typer.main.get_command(alone)


_WHOLE_NUMBER = "Input should be a valid integer"


def _plain(message: str) -> str:
    """The sentence of the library that reads options, without its own vocabulary."""
    if message.startswith(_WHOLE_NUMBER):
        return "it must be a whole number."
    message = message.removeprefix("Value error, ")
    found = message.removeprefix("Input should be ")
    return message if found == message else f"it must be {found.rstrip('.')}."


app = typer.Typer(
    cls=_Commands,
    help="Sluice: event sourcing over plain HTTP, on the Redis and Postgres you already run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(specs.app, name="spec")
app.add_typer(ids.app, name="ids")
app.add_typer(keys.app, name="keys")
app.add_typer(names.app, name="names")
app.add_typer(sources.app, name="sources")
app.add_typer(tags.app, name="tags")
app.add_typer(tenants.app, name="tenants")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(projections.app, name="projections")
app.add_typer(schedules.app, name="schedules")
app.add_typer(sagas.app, name="sagas")
app.add_typer(relay.app, name="relay")
app.add_typer(subscriptions.app, name="subscriptions")


def _tell_version(asked: bool) -> None:
    if asked:
        say(f"sluice {__version__}")
        raise typer.Exit


@app.callback()
def sluice(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def serve(
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=WORKERS_MAX, help="Gateway processes behind the port; default: SLUICE_WORKERS, else 1."
        ),
    ] = None,
) -> None:
    """Run a gateway. Settings come from SLUICE_*; any number of gateways share one Redis and Postgres."""
    serving.serve(workers)


@app.command()
def migrate(postgres: PostgresOption = None, as_json: JsonOption = False) -> None:
    """Prepare the database, or migrate it to this release. It is safe to run it again, or twice at once."""
    url, partitions = postgres_url(postgres), one("partitions", os.environ, read_file)
    from gateway.catalog.migrate import migrate as run

    applied = asyncio.run(run(url, partitions))
    if as_json:
        print_json({"ok": True, "applied": list(applied)})
        return
    for name in applied:
        say(f"applied {name}")
    if not applied:
        say("nothing to apply: the database is at this release's version")


_COMMANDS: tuple[Callable[..., None], ...] = (
    aggregates.show,
    timeline.events,
    timeline.tail,
    aggregates.append,
    find.find,
    operations.audit,
    operations.doctor,
    operations.repair,
    operations.rewind,
    adopt.adopt,
)
for _command in _COMMANDS:
    app.command()(_command)
app.command("import")(imports.import_)


def _without_line_breaks(group: typer.Typer) -> None:
    """In lists of commands they would stay, and the terminal wraps each line by itself."""
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join([paragraphs[0].replace("\n", " "), *paragraphs[1:]])
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        _without_line_breaks(inner.typer_instance)


_without_line_breaks(app)
