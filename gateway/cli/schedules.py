"""`sluice schedules`: timers, through a running gateway."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from gateway.cli.gateway_items import Items, LimitOption, Through
from gateway.cli.gateways import KeyOption, UrlOption
from gateway.cli.output import JsonOption

app = typer.Typer(no_args_is_help=True, help="Timers: list, show, cancel, run and move them.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The timer's id.")]


@app.command("list")
def list_(
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only timers that are pending, fired, cancelled or parked."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="Only timers set by events of this aggregate type."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--of", metavar="KEY", help="Only timers set by events of this aggregate.")
    ] = None,
    limit: LimitOption = 50,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List timers by the time at which they are due."""
    asked = {"state": state, "type": of, "key": key}
    TIMERS.print_all(asked, limit, Through(url, api_key, as_json))


@app.command()
def show(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Print a timer as JSON."""
    TIMERS.print_one(schedule, Through(url, api_key, as_json))


@app.command()
def cancel(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Cancel a timer: it never fires."""
    TIMERS.act(schedule, "cancel", Through(url, api_key, as_json), lambda _: "cancelled")


@app.command()
def run(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Fire a timer now, or a parked one again."""
    TIMERS.act(schedule, "run", Through(url, api_key, as_json), lambda _: "due now")


@app.command()
def move(
    schedule: IdArgument,
    due_at: Annotated[str, typer.Argument(metavar="TIME", help="The new time: RFC 3339 or Unix seconds.")],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the time at which a timer is due."""
    through = Through(url, api_key, as_json)
    body = {"due_at": int(due_at) if re.fullmatch("[0-9]{1,15}", due_at) else due_at}
    TIMERS.act(schedule, "move", through, lambda timer: f"due at {timer['due_at']}", body)


def _row(timer: dict[str, Any]) -> list[str]:
    emit, trigger = timer["emit"], timer.get("trigger")
    emits = f"{emit['aggregate_type']}.{emit['event_type']} {emit['id'] or 'new'}"
    by = "" if trigger is None else f"{trigger['aggregate_type']}.{trigger['type']} {trigger['key']}"
    return [timer["id"], timer["state"], timer["due_at"], emits, by, timer["reason"] or ""]


TIMERS = Items("schedules", "schedule", ("id", "state", "due", "emits", "set by", "reason"), _row)
