"""`sluice sagas`: the state of sagas, through a running gateway."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.gateway_items import Items, LimitOption, Through
from gateway.cli.gateways import KeyOption, UrlOption
from gateway.cli.output import JsonOption

app = typer.Typer(no_args_is_help=True, help="Sagas: list and show them; retry or abandon stuck ones.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The saga's id.")]


@app.command("list")
def list_(
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", help="Only sagas that are running, completed, compensated, stuck or abandoned."
        ),
    ] = None,
    limit: LimitOption = 50,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sagas, the most recently changed first."""
    _SAGAS.print_all({"state": state}, limit, Through(url, api_key, as_json))


@app.command()
def show(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Print a saga as JSON."""
    _SAGAS.print_one(saga, Through(url, api_key, as_json))


@app.command()
def retry(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Compensate a stuck saga once more."""
    _SAGAS.act(saga, "retry", Through(url, api_key, as_json), _state)


@app.command()
def abandon(
    saga: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """End a stuck saga as it is, without further compensation."""
    _SAGAS.act(saga, "abandon", Through(url, api_key, as_json), _state)


def _state(saga: dict[str, Any]) -> str:
    return str(saga["state"])


def _row(saga: dict[str, Any]) -> list[str]:
    data = saga["data"]
    trigger = data["trigger"]
    by = f"{trigger['aggregate_type']}.{trigger['type']} {trigger['key']}"
    return [saga["id"], saga["name"], saga["state"], saga["changed_at"], by, data.get("reason") or ""]


_SAGAS = Items("sagas", "saga", ("id", "saga", "state", "changed", "begun by", "reason"), _row)
