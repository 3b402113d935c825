"""`sluice sagas`: how sagas stand, through a running gateway."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway, fetched, posted
from gateway.cli.output import JsonOption, print_json, print_table, say

app = typer.Typer(no_args_is_help=True, help="Sagas: list and show them; retry or abandon stuck ones.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Which saga.")]


@app.command("list")
def list_(
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="running, completed, compensated, stuck or abandoned."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most this many.")] = 50,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sagas, those that changed last first."""
    params = {"limit": str(limit)} | ({} if state is None else {"state": state})
    found = at_gateway(url, api_key, lambda client: fetched(client, ("_", "sagas"), params), as_json=as_json)
    if as_json:
        print_json(found)
        return
    columns = ["id", "saga", "state", "changed", "begun by", "reason"]
    print_table(columns, [_row(each) for each in found["items"]], fold=("reason",))


@app.command()
def show(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Print one as JSON."""
    found = at_gateway(url, api_key, lambda client: fetched(client, ("_", "sagas", saga)), as_json=as_json)
    print_json(found if as_json else found["saga"])


@app.command()
def retry(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Compensate a stuck saga once more."""
    _act(saga, "retry", url, api_key, as_json=as_json)


@app.command()
def abandon(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """End a stuck saga as it is; nothing more of it is compensated."""
    _act(saga, "abandon", url, api_key, as_json=as_json)


def _act(saga: str, what: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    path = ("_", "sagas", saga, what)
    found = at_gateway(url, api_key, lambda client: posted(client, path, {}), as_json=as_json)
    if as_json:
        print_json(found)
    else:
        say(f"{saga} is {found['saga']['state']}")


def _row(saga: dict[str, Any]) -> list[str]:
    data = saga["data"]
    trigger = data["trigger"]
    by = f"{trigger['aggregate_type']}.{trigger['type']} {trigger['key']}"
    return [saga["id"], saga["name"], saga["state"], saga["changed_at"], by, data.get("reason") or ""]
