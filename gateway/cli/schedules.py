"""`sluice schedules`: timers, through a running gateway."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway, fetched, posted
from gateway.cli.output import JsonOption, print_json, print_table, say

app = typer.Typer(no_args_is_help=True, help="Timers: list, show, cancel, run and move them.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Which timer.")]


@app.command("list")
def list_(
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="pending, fired, cancelled or parked.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Set by events of this aggregate type.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--of", metavar="KEY", help="Set by events of the aggregate with this key.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most this many.")] = 50,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List timers by the time at which they are due."""
    asked = {"limit": str(limit), "state": state, "type": of, "key": key}
    params = {name: text for name, text in asked.items() if text is not None}
    found = at_gateway(
        url, api_key, lambda client: fetched(client, ("_", "schedules"), params), as_json=as_json
    )
    if as_json:
        print_json(found)
        return
    columns = ["id", "state", "due", "emits", "set by", "reason"]
    print_table(columns, [_row(each) for each in found["items"]], fold=("reason",))


@app.command()
def show(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Print one as JSON."""
    found = at_gateway(
        url, api_key, lambda client: fetched(client, ("_", "schedules", schedule)), as_json=as_json
    )
    print_json(found if as_json else found["schedule"])


@app.command()
def cancel(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """One never fires."""
    _act(schedule, "cancel", {}, "cancelled", url, api_key, as_json=as_json)


@app.command()
def run(
    schedule: IdArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Fire a timer now, or a parked one again."""
    _act(schedule, "run", {}, "due now", url, api_key, as_json=as_json)


@app.command()
def move(
    schedule: IdArgument,
    due_at: Annotated[str, typer.Argument(metavar="TIME", help="RFC 3339: 2030-01-01T09:00:00Z.")],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the time at which a timer is due."""
    _act(schedule, "move", {"due_at": due_at}, f"due at {due_at}", url, api_key, as_json=as_json)


def _act(
    schedule: str,
    what: str,
    body: dict[str, str],
    done: str,
    url: str | None,
    api_key: str | None,
    *,
    as_json: bool,
) -> None:
    path = ("_", "schedules", schedule, what)
    found = at_gateway(url, api_key, lambda client: posted(client, path, body), as_json=as_json)
    if as_json:
        print_json(found)
    else:
        say(f"{schedule} is {done}")


def _row(timer: dict[str, Any]) -> list[str]:
    emit, trigger = timer["emit"], timer.get("trigger")
    emits = f"{emit['aggregate_type']}.{emit['event_type']} {emit['id'] or 'new'}"
    by = "" if trigger is None else f"{trigger['aggregate_type']}.{trigger['type']} {trigger['key']}"
    return [timer["id"], timer["state"], timer["due_at"], emits, by, timer["reason"] or ""]
