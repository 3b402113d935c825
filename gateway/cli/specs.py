"""`sluice spec`: check a spec, compare it, deploy it, show and go back to what was deployed; in the database
directly or, with --url, through a running gateway (spec_access.py)."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.catalog.model import CatalogError
from gateway.cli.database import PostgresOption, is_database_set, postgres_url
from gateway.cli.gateways import KEY_REFUSED
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, cell, moment, print_json, print_table, refuse_faults, say
from gateway.cli.spec_access import (
    compared_in,
    deployed_in,
    fault_list,
    gateway_of,
    history_in,
    over_http,
    refused_examples_in,
    rolled_back_in,
    shown_in,
)
from gateway.cli.spec_reading import read_spec
from gateway.cli.spec_status import status
from gateway.cli.spec_try import try_spec

if TYPE_CHECKING:  # other commands start without the schema compiler
    from spec.errors import Faults
    from spec.model import Spec

app = typer.Typer(help="The spec of a tenant: aggregates, events, schemas, handlers.", no_args_is_help=True)

REVISION_MAX = 2**31 - 1

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The spec, as JSON; - reads stdin.")]
TenantOption = Annotated[str, typer.Option(help="The tenant's name; over HTTP the key determines it.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A running gateway, instead of a database; default: SLUICE_URL if no database is set.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Deploy even if stored events do not match.")]
IfRevisionOption = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        metavar="N",
        min=0,
        max=REVISION_MAX,
        help="Deploy only if revision N is deployed now (0: none).",
    ),
]
RevisionArgument = Annotated[
    int,
    typer.Argument(
        metavar="REVISION", min=1, max=REVISION_MAX, help="The revision, as `sluice spec history` lists it."
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="A key for the gateway; prefer SLUICE_KEY or SLUICE_KEY_FILE."),
]


@app.command()
def check(
    file: FileArgument,
    tenant: Annotated[
        str, typer.Option(help="The tenant whose secrets and earlier revisions are used.")
    ] = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print every fault of a spec; exit 1 if there is one. Sagas that begin themselves again without end are
    printed on stderr; they are no fault. The secrets that the spec names must exist
    here; `***` stands for the deployed secret. If a database is set, upcasts are tried on the examples of
    the schemas that were deployed before."""
    from gateway.catalog.secrets import Secrets
    from gateway.catalog.spec_use import of_itself
    from spec.errors import Faults
    from spec.model import Spec

    document = read_input(file)
    parsed, masked = read_spec(document, Secrets(os.environ).of(tenant))
    if not isinstance(parsed, Faults) and (postgres or is_database_set()):
        parsed = _with_examples(postgres_url(postgres), tenant, parsed, document)
    faults = [each for each in parsed if each.pointer not in masked] if isinstance(parsed, Faults) else []
    notices = [each.as_json() for each in of_itself(parsed)] if isinstance(parsed, Spec) else []
    if as_json:
        print_json({"ok": not faults, "faults": fault_list(faults), "notices": notices})
    else:
        for line in _fault_lines(fault_list(faults)):
            say(line)
        _say_notices(notices)
        for pointer in sorted(masked):
            say(f"{pointer}  `***` stands for the deployed secret", err=True)
        say(f"{file}: {_counted(len(faults), 'fault')}", err=bool(faults))
    if faults:
        raise typer.Exit(1)


def _with_examples(url: str, tenant: str, spec: Spec, document: bytes) -> Spec | Faults:
    """The spec, or what of its steps between revisions does not do for the examples of earlier schemas."""
    if not any(each.revised for each in spec.aggregate_types.values()):
        return spec
    try:
        return asyncio.run(refused_examples_in(url, tenant, spec, document)) or spec
    except CatalogError as error:
        say(f"the examples of earlier revisions were not tried: {error}", err=True)
        return spec


@app.command()
def deploy(
    file: FileArgument,
    force: ForceOption = False,
    if_revision: IfRevisionOption = None,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a spec: every gateway uses it within 5 seconds. Deploying the same document again changes
    nothing."""
    document = read_input(file)
    if gateway := gateway_of(url, postgres, key):
        query = {"force": "true"} if force else {}
        answer = over_http("PUT", gateway, key, document, query, if_revision=if_revision)
    else:
        answer = asyncio.run(deployed_in(postgres_url(postgres), tenant, document, force, if_revision))
    _tell_deployed(answer, as_json)


@app.command()
def rollback(
    revision: RevisionArgument,
    force: ForceOption = False,
    if_revision: IfRevisionOption = None,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy an earlier revision once more, with its secrets, as the next revision. Events stored since
    then can prevent it, as with `deploy`."""
    if gateway := gateway_of(url, postgres, key):
        body, query = json.dumps({"revision": revision}).encode(), {"force": "true"} if force else {}
        answer = over_http("POST", gateway, key, body, query, "/rollback", if_revision)
    else:
        answer = asyncio.run(rolled_back_in(postgres_url(postgres), tenant, revision, force, if_revision))
    _tell_deployed(answer, as_json)


@app.command()
def diff(
    file: FileArgument,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what deploying a spec would change, which stored events prevent it, and which aggregates
    would be read differently; nothing is deployed. Exit 1 if the spec would be refused."""
    document = read_input(file)
    if gateway := gateway_of(url, postgres, key):
        answer = over_http("POST", gateway, key, document, {}, "/diff")
    else:
        answer = asyncio.run(compared_in(postgres_url(postgres), tenant, document))
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        _tell_plan(answer)
    else:
        _explain(answer)
    if not answer["ok"] or answer["conflicts"]:
        raise typer.Exit(1)


@app.command()
def history(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the revisions that were deployed, the newest first."""
    if gateway := gateway_of(url, postgres, key):
        answer = over_http("GET", gateway, key, None, {"limit": str(limit)}, "/history")
    else:
        answer = asyncio.run(history_in(postgres_url(postgres), tenant, limit))
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        rows = [
            (str(each["revision"]), cell(moment(_utc(each["deployed_at"]))), str(each["bytes"]))
            for each in answer["revisions"]
        ]
        print_table(("revision", "deployed", "bytes"), rows)
    else:
        _explain(answer)
    if not answer["ok"]:
        raise typer.Exit(1)


@app.command()
def show(
    revision: Annotated[
        int | None, typer.Option(min=1, max=REVISION_MAX, help="An earlier revision.", metavar="N")
    ] = None,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the deployed spec, or an earlier one; with --json as {"ok", "revision", "spec"} in one line."""
    if gateway := gateway_of(url, postgres, key):
        answer = over_http("GET", gateway, key, None, {"revision": str(revision)} if revision else {})
    else:
        answer = asyncio.run(shown_in(postgres_url(postgres), tenant, revision))
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        print_json(answer["spec"], indent=2)
        say(f"revision {answer['revision']}", err=True)
    else:
        _explain(answer)
    if not answer["ok"]:
        raise typer.Exit(1)


@app.command()
def graph(
    file: FileArgument,
    form: Annotated[
        Literal["text", "dot", "mermaid"],
        typer.Option("--form", metavar="FORM", help="The format: text, dot or mermaid."),
    ] = "text",
    as_json: JsonOption = False,
) -> None:
    """Print which events each event implies or schedules, and which sagas and projections it leads to."""
    from spec.errors import Faults
    from spec.graph import arrows, drawn
    from spec.webhooks.sources import RedactedEnviron

    parsed, _ = read_spec(read_input(file), RedactedEnviron())
    if isinstance(parsed, Faults):
        refuse_faults("The spec has faults.", parsed)
    if as_json:
        print_json({"ok": True, "arrows": [each._asdict() for each in arrows(parsed)]})
        return
    for line in drawn(parsed, form):
        say(line)


app.command("try")(try_spec)
app.command()(status)


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_SHOWN_CHARS = 200  # of a value; --json has all of it


def _tell_deployed(answer: dict[str, Any], as_json: bool) -> None:
    """Exit 1 where it was refused."""
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        state = "is deployed" if answer.get("changed", True) else "is deployed already, unchanged"
        say(f"revision {answer['revision']} {state}")
        _say_notices(answer.get("notices", []))
    else:
        _explain(answer)
        if answer.get("code") == "spec_conflict":
            say("--force deploys it anyway.", err=True)
    if not answer["ok"]:
        raise typer.Exit(1)


def _say_notices(notices: list[dict[str, str]]) -> None:
    for each in notices:
        say(f"{each['pointer']}  {each['notice']}", err=True)


def _tell_plan(plan: dict[str, Any]) -> None:
    for each in plan["changes"]:
        values = [_short(each[name]) for name in ("was", "now") if name in each]
        say(f"{_SIGNS[each['change']]} {each['pointer'] or '/'}  {' → '.join(values)}")
    for each in plan["conflicts"]:
        say(f"! {each['pointer'] or '/'}  {each['error']}")
    for each in plan["notices"]:
        say(f"  {each['pointer'] or '/'}  {each['notice']}")
    deployed = f"revision {plan['revision']}" if plan["revision"] else "no deployed spec"
    found = [_counted(len(plan["changes"]), "difference")]
    if plan["conflicts"]:
        found.append(f"{_counted(len(plan['conflicts']), 'conflict')} with stored data")
    say(f"compared with {deployed}: {', '.join(found)}", err=True)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _fault_lines(faults: list[dict[str, str]]) -> list[str]:
    return [f"{fault['pointer'] or '/'}  {fault['code']}  {fault['error']}" for fault in faults]


def _explain(answer: dict[str, Any]) -> None:
    refused = answer.get("code") == "unauthorized"
    lines = [
        f"the gateway {KEY_REFUSED}" if refused else answer["error"],
        *_fault_lines(answer.get("faults", [])),
    ]
    lines += [f"{conflict['pointer']}  {conflict['error']}" for conflict in answer.get("conflicts", [])]
    for line in lines:
        say(line, err=True)


def _counted(count: int, thing: str) -> str:
    return f"no {thing}s" if not count else f"{count} {thing}{'s' if count > 1 else ''}"
