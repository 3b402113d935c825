"""`sluice spec`: check a spec, deploy it, show what is deployed; in the database directly or, with --url,
through a running gateway. Answers have the shape that the gateway gives them, whichever way they come."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from typing import Annotated, Any

import typer

from gateway.catalog.model import CatalogError
from gateway.cli.database import PostgresOption, is_database_set, postgres_url, prepared
from gateway.cli.gateways import api_key
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, print_json, say
from gateway.config import ConfigError, redacted

app = typer.Typer(
    help="What a tenant declares: its aggregates, events, schemas, handlers.", no_args_is_help=True
)

HTTP_TIMEOUT_S = 30.0  # a removal waits until every gateway has closed for it

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="JSON; - reads stdin.")]
TenantOption = Annotated[str, typer.Option(help="Whose spec; over HTTP the key says it.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A running gateway instead of the database; else SLUICE_URL, where no database is set.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="For a gateway; better in SLUICE_KEY or the file SLUICE_KEY_FILE."),
]


@app.command()
def check(
    file: FileArgument,
    tenant: Annotated[str, typer.Option(help="Whose secrets of the environment are looked for.")] = "main",
    as_json: JsonOption = False,
) -> None:
    """Print every fault of a spec; exit 1 where there is one. Secrets that it names are looked for here; a
    `***` is taken for the secret that is deployed there."""
    from gateway.catalog.secrets import Secrets
    from spec.errors import Faults
    from spec.parse import parse

    document = read_input(file)
    parsed = parse(document, Secrets(os.environ).of(tenant))
    masked = _masks(document) if isinstance(parsed, Faults) else frozenset()
    faults = [each for each in parsed if each.pointer not in masked] if isinstance(parsed, Faults) else []
    if as_json:
        print_json({"ok": not faults, "faults": _faults(faults)})
    else:
        for line in _fault_lines(_faults(faults)):
            say(line)
        for pointer in sorted(masked):
            say(f"{pointer}  is taken for the secret that is deployed there", err=True)
        say(f"{file}: {_counted(len(faults), 'fault')}", err=bool(faults))
    if faults:
        raise typer.Exit(1)


@app.command()
def deploy(
    file: FileArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Deploy even if stored events do not match.")
    ] = False,
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a spec: every gateway follows within 5 seconds. The same document again changes nothing."""
    document = read_input(file)
    if gateway := _gateway(url, postgres, key):
        answer = _over_http("PUT", gateway, key, document, {"force": "true"} if force else {})
    else:
        answer = asyncio.run(_deploy(postgres_url(postgres), tenant, document, force))
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        state = "is deployed" if answer.get("changed", True) else "is deployed already, unchanged"
        say(f"revision {answer['revision']} {state}")
        for each in answer.get("notices", []):
            say(f"{each['pointer']}  {each['notice']}", err=True)
    else:
        _explain(answer)
    if not answer["ok"]:
        raise typer.Exit(1)


@app.command()
def show(
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the deployed spec; with --json as {"ok", "revision", "spec"} in one line."""
    if gateway := _gateway(url, postgres, key):
        answer = _over_http("GET", gateway, key, None, {})
    else:
        answer = asyncio.run(_show(postgres_url(postgres), tenant))
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        print_json(answer["spec"], indent=2)
        say(f"revision {answer['revision']}", err=True)
    else:
        _explain(answer)
    if not answer["ok"]:
        raise typer.Exit(1)


def _gateway(url: str | None, postgres: str | None, key: str | None) -> str | None:
    """The gateway to speak to, None for the database: an option goes before the environment, and there the
    database before a gateway, which serves one tenant by its key. A key in an option is for a gateway."""
    if url and postgres:
        raise ConfigError(("--url and --postgres say two places: give one of them",))
    database = postgres or (not key and is_database_set())
    return url or (None if database else os.environ.get("SLUICE_URL") or None)


async def _deploy(url: str, tenant: str, document: bytes, force: bool) -> dict[str, Any]:
    from gateway.catalog import specs, tenants
    from gateway.catalog.secrets import Secrets
    from gateway.cli.outgoing import opened
    from spec.errors import Faults

    async with opened(url) as (subscriptions, pool):
        owner = await tenants.named(pool, tenant)
        look = partial(subscriptions.undeclarable, owner.id)
        secrets = Secrets(os.environ).of(tenant)
        match await specs.deploy(pool, owner.id, document, secrets, force=force, look=look):
            case specs.Accepted(revision, changed, notices):
                accepted: dict[str, Any] = {"ok": True, "revision": revision, "changed": changed}
                if notices:
                    accepted["notices"] = [{"pointer": each.pointer, "notice": each.text} for each in notices]
                return accepted
            case specs.Conflicts(_, conflicts):
                listed = [{"pointer": conflict.pointer, "error": conflict.error} for conflict in conflicts]
                return _refusal("spec_conflict", specs.CONFLICT, conflicts=listed)
            case Faults() as faults:
                return _refusal("invalid_spec", specs.INVALID, faults=_faults(faults))
            case specs.RevisionMismatch():
                raise AssertionError("no revision was expected")


async def _show(url: str, tenant: str) -> dict[str, Any]:
    from gateway.catalog import specs, tenants

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        stored = await specs.stored(conn, owner.id)
    if stored is None:
        return _refusal("not_found", f"tenant {tenant} has no spec yet: `sluice spec deploy FILE`")
    return {"ok": True, "revision": stored.revision, "spec": json.loads(specs.bare(stored.document))}


def _over_http(
    method: str, url: str, key: str | None, body: bytes | None, query: dict[str, str]
) -> dict[str, Any]:
    import httpx

    from gateway.client import Refused
    from gateway.client.connection import authorization

    try:
        bearer = authorization(api_key(key))
    except Refused as refused:
        raise ConfigError((refused.error,)) from None
    try:
        response = httpx.request(
            method,
            f"{url.rstrip('/')}/_/spec",
            content=body,
            params=query,
            headers={"Authorization": bearer, "Content-Type": "application/json"},
            timeout=HTTP_TIMEOUT_S,
        )
    except (httpx.InvalidURL, ValueError):  # their texts quote it, perhaps with a password
        raise CatalogError(f"the gateway at {redacted(url)} can't be asked: that is no URL") from None
    except httpx.HTTPError as error:
        raise CatalogError(f"the gateway at {redacted(url)} can't be asked: {error}") from error
    answer = _json_object(response.content)
    if not (answer.get("ok") is True and "revision" in answer) and "error" not in answer:
        status = response.status_code
        raise CatalogError(f"what answers at {redacted(url)} is no Sluice gateway: status {status}")
    return answer


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _masks(document: bytes) -> frozenset[str]:
    """Where secrets read `***`; `deploy` puts those in their places that are deployed."""
    import msgspec

    from spec.webhooks.secrets import masks

    try:
        return masks(msgspec.json.decode(document))
    except (ValueError, RecursionError):  # which is a fault by itself
        return frozenset()


def _refusal(code: str, error: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "code": code, "error": error, **more}


def _faults(faults: Any) -> list[dict[str, str]]:
    return [{"code": fault.code, "pointer": fault.pointer, "error": fault.error} for fault in faults]


def _fault_lines(faults: list[dict[str, str]]) -> list[str]:
    return [f"{fault['pointer'] or '/'}  {fault['code']}  {fault['error']}" for fault in faults]


def _explain(answer: dict[str, Any]) -> None:
    lines = [answer["error"], *_fault_lines(answer.get("faults", []))]
    lines += [f"{conflict['pointer']}  {conflict['error']}" for conflict in answer.get("conflicts", [])]
    for line in lines:
        say(line, err=True)


def _counted(count: int, thing: str) -> str:
    return f"no {thing}s" if not count else f"{count} {thing}{'s' if count > 1 else ''}"
