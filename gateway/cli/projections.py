"""`sluice projections`: the state of lists and projections, and how an operator changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from gateway.cli.database import PostgresOption, postgres_url
from gateway.cli.input import read_input
from gateway.cli.outgoing import TenantOption
from gateway.cli.output import (
    JsonOption,
    cell,
    confirm,
    print_json,
    print_json_text,
    print_table,
    refuse,
    refuse_faults,
    say,
)
from gateway.cli.spec_reading import read_spec

if TYPE_CHECKING:
    from gateway.follow.standing import Stands
    from gateway.relay.outbox import Outbox
    from spec.model import Spec

app = typer.Typer(
    help="Inspect and operate lists and projections.",
    epilog="The list of a type is named `list:order` here.",
    no_args_is_help=True,
)

_T = TypeVar("_T")
_BAR: Final = 24
SHOWN_DEFAULT, SHOWN_MAX = 20, 100_000

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The projection's name, or `list:` and a type.")
]


def _run(work: Callable[[Outbox, Any], Awaitable[_T]], postgres: str | None) -> _T:
    """What the work returns; ends the command with 1 and a sentence where Postgres fails it."""
    from gateway.cli.outgoing import outbox_of
    from gateway.postgres.errors import PostgresTrouble

    async def run() -> _T:
        async with outbox_of(postgres_url(postgres)) as (outbox, pool):
            return await work(outbox, pool)

    try:
        return asyncio.run(run())
    except PostgresTrouble as trouble:
        refuse(f"Postgres: {trouble}")


def _standings(postgres: str | None, tenant: str) -> list[Stands]:
    async def read(outbox: Outbox, pool: Any) -> list[Stands]:
        from gateway.catalog import tenants
        from gateway.follow.declarations import Declarations
        from gateway.follow.reading import Reading
        from gateway.follow.standing import standings

        owner = await tenants.named(pool, tenant)
        builds = await Declarations(pool, outbox).every(owner.id)
        return await standings(Reading(pool), builds)

    return _run(read, postgres)


def _full_name(each: Stands) -> str:
    return each.name if each.kind == "projection" else f"list:{each.name}"


def _document(each: Stands) -> dict[str, Any]:
    """As it is printed: with the name that commands take."""
    return {**each.document, "name": _full_name(each)}


def _at(name: str) -> tuple[str, str]:
    """Kind and name."""
    return ("list", name.removeprefix("list:")) if name.startswith("list:") else ("projection", name)


@app.command("list")
def list_(
    tenant: TenantOption = "main", postgres: PostgresOption = None, as_json: JsonOption = False
) -> None:
    """List a tenant's lists and projections."""
    every = _standings(postgres, tenant)
    if as_json:
        print_json([_document(each) for each in every])
        return
    rows = []
    for each in every:
        figures = each.shown.figures
        counts = [f"{figures[name]:,}" for name in ("rows", "behind", "does_not_fit")]
        rows.append([_full_name(each), each.state, *counts, cell("building" if each.beside else None)])
    print_table(["name", "state", "rows", "behind", "does not fit", "beside it"], rows)


@app.command()
def show(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the status of a list or projection as JSON, with the latest events that did not fit."""
    print_json(_document(_found(name, tenant, postgres)), indent=None if as_json else 2)


def _found(name: str, tenant: str, postgres: str | None) -> Stands:
    found = next((each for each in _standings(postgres, tenant) if _full_name(each) == name), None)
    if found is None:
        _refuse_unknown(name, tenant)
    assert found is not None
    return found


def _refuse_unknown(name: str, tenant: str) -> None:
    refuse(f"tenant {tenant} has no projection {name!r}: `sluice projections list` shows them")


@app.command()
def status(
    tenant: TenantOption = "main", postgres: PostgresOption = None, as_json: JsonOption = False
) -> None:
    """Show the lag of each list and projection, and the progress of builds."""
    every = _standings(postgres, tenant)
    if as_json:
        print_json([_document(each) for each in every])
        return
    print_table(["name", "state", "behind", "build", "events/s", "left"], [_row(each) for each in every])


def _row(each: Stands) -> list[str]:
    behind = f"{each.shown.behind:,}"
    if each.beside is None:
        return [_full_name(each), each.state, behind, "", "", ""]
    figures = each.beside.figures
    left = "?" if figures["eta_s"] is None else _span(figures["eta_s"])
    done = each.beside.done
    filled = int(done * _BAR)
    bar = f"{'█' * filled}{'░' * (_BAR - filled)} {100 * done:3.0f} %"
    return [_full_name(each), each.state, behind, bar, f"{figures['rate']:,.0f}", left]


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@app.command("try")
def try_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The spec; - reads stdin.")],
    name: Annotated[str, typer.Option("--name", help="The projection's name, or `list:` and a type.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Fold only this many events, from the first.")
    ] = None,
    rows: Annotated[
        int,
        typer.Option(min=0, max=SHOWN_MAX, help="The number of rows to print, in the order of their keys."),
    ] = SHOWN_DEFAULT,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fold stored events by a spec that is not deployed; nothing is stored."""
    spec = _spec(file)
    kind, of = _at(name)
    declared = of in spec.projections or (kind == "list" and of in spec.aggregate_types)
    if not declared or (kind == "list" and spec.aggregate_types[of].listed is None):
        refuse(f"{file} declares no {name}")

    async def fold(outbox: Outbox, pool: Any) -> Any:
        from gateway.catalog import tenants
        from gateway.follow.trial import fold_trial

        owner = await tenants.named(pool, tenant)
        return await fold_trial(pool, outbox, owner.id.bytes, spec, kind, of, limit)

    trial = _run(fold, postgres)
    import msgspec

    listed = [
        {"key": key, "data": msgspec.Raw(row.data), "length": row.length}
        for key, row in sorted(trial.rows.items())[:rows]
    ]
    misfits = [msgspec.structs.asdict(each) for each in trial.misfits]
    figures = {"events": trial.events, "rows": len(trial.rows), "does_not_fit": trial.does_not_fit}
    if as_json:
        whole = {**figures, "cut": trial.cut, "items": listed, "misfits": misfits}
        print_json_text(msgspec.json.encode(whole), indent=0)
        return
    for each in listed:
        print_json_text(msgspec.json.encode(each), indent=0)
    say(f"{trial.events:,} events{' of more' if trial.cut else ''}, {len(trial.rows):,} rows", err=True)
    for each in misfits:
        where = f"{each['aggregate_type']}/{each['key']} version {each['version']}"
        say(f"does not fit: {where}: {each['error']}", err=True)
    say(f"{trial.does_not_fit:,} did not fit", err=True)


def _spec(file: str) -> Spec:
    from spec.errors import Faults
    from spec.webhooks.sources import RedactedEnviron

    spec, _ = read_spec(read_input(file), RedactedEnviron())
    if isinstance(spec, Faults):
        refuse_faults("The spec has faults.", spec)
    return spec


def _act(name: str, tenant: str, postgres: str | None, act: str, *args: Any) -> None:
    async def work(outbox: Outbox, pool: Any) -> bool:
        from gateway.catalog import tenants
        from gateway.follow.declarations import Declarations

        owner: UUID = (await tenants.named(pool, tenant)).id
        kind, of = _at(name)
        return bool(await getattr(Declarations(pool, outbox), act)(owner, kind, of, *args))

    if not _run(work, postgres):
        _found(name, tenant, postgres)
        refuse(f"{name} is dropped: `sluice projections rebuild {name}` builds it again")


@app.command()
def rebuild(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the rows from the first event; the present rows are served meanwhile. A running build
    restarts."""
    _act(name, tenant, postgres, "rebuild")
    confirm(f"{name} is being built: `sluice projections status` says how far it is", as_json, name=name)


@app.command()
def pause(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop folding events until `resume`; the present rows are still served."""
    _act(name, tenant, postgres, "set_paused", True)
    confirm(f"{name} is paused", as_json, name=name)


@app.command()
def resume(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue folding events of a paused list or projection."""
    _act(name, tenant, postgres, "set_paused", False)
    confirm(f"{name} is resumed", as_json, name=name)


@app.command()
def drop(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a running build; if there is none, delete all rows until a rebuild."""
    _act(name, tenant, postgres, "drop")
    confirm(f"{name} is dropped", as_json, name=name)


@app.command()
def sql(
    name: NameArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print SQL that creates a view of the rows for other programs, with a column for each field of `by`."""

    async def work(outbox: Outbox, pool: Any) -> str | None:
        from gateway.catalog import tenants
        from gateway.follow.declarations import Declarations
        from gateway.follow.reading import Reading
        from gateway.follow.view_sql import create_view

        owner: UUID = (await tenants.named(pool, tenant)).id
        at = _at(name)
        builds = [
            each for each in await Declarations(pool, outbox).every(owner) if (each.kind, each.name) == at
        ]
        if not builds:
            return None
        shown = next((each for each in builds if each.state == "serving"), builds[-1])
        return create_view(owner, *at, shown.fields, await Reading(pool).types(shown))

    text = _run(work, postgres)
    if text is None:
        _refuse_unknown(name, tenant)
    confirm(str(text), as_json, sql=text)
