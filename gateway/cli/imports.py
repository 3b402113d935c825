"""`sluice import`: the records of a JSONL file, each an event where it says something new."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, print_json, say
from gateway.cli.servers import watched

if TYPE_CHECKING:
    from gateway.client import Client, Imported, ImportOptions

RESULTS = ("new", "unchanged", "edited", "renamed", "linked")


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON Lines, one record a line; - reads stdin.")
    ],
    of_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="The type of the aggregates.")],
    event: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="The event type of a record; default: the type's only one."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field that is the record's external ref.")
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="TYPE:ID", help="The actor; default: system_importer:test_data_importer."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported, and write nothing.")
    ] = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import records: each goes to the aggregate of its external ref, else of its content, else to a new one.

    A record with nothing new is not written, so a file can be imported again, for example after an
    interruption."""
    from gateway.client import Actor, Imported, Refused

    options: ImportOptions = {"dry_run": dry_run}
    if event is not None:
        options["event"] = event
    if ref is not None:
        options["ref"] = ref
    if actor is not None:
        kind, _, identity = actor.partition(":")
        options["actor"] = Actor(kind, identity)
    texts = read_input(file).split(b"\n")
    records = [(line, text) for line, text in enumerate(texts, 1) if text.strip()]

    def work(client: Client) -> Counter[str]:
        counts: Counter[str] = Counter()
        with watched("import") as watcher:
            watcher.begin(len(records))
            outcomes = client.import_records(of_type, [text for _, text in records], **options)
            for (line, _), outcome in zip(records, outcomes, strict=True):
                if isinstance(outcome, Imported):
                    counts[outcome.result] += 1
                    if dry_run and not as_json and outcome.result != "unchanged":
                        say(f"line {line}: {_told(outcome)}")
                elif isinstance(outcome, Refused):
                    counts["refused"] += 1
                    say(f"line {line}: {outcome.code}: {outcome.error}", err=True)
                else:  # the gateway is away; the import may be made again
                    raise outcome
                watcher.advance(1)
        return counts

    def told(client: Client) -> Counter[str]:
        try:
            return work(client)
        except Refused as refused:
            if (refused.code, refused.path) != ("missing_field", "event"):
                raise
            why = f"{of_type!r} has several events: name the one that a record becomes"
            raise typer.BadParameter(why, param_hint="--event") from None

    counts = at_gateway(url, api_key, told, as_json=as_json)
    if as_json:
        print_json({name: counts[name] for name in (*RESULTS, "refused")})
    else:
        would = " would be" if dry_run else ""
        say(", ".join([f"{counts[name]}{would} {name}" for name in (*RESULTS, "refused")]))
    if counts["refused"]:
        raise typer.Exit(1)


def _told(imported: Imported) -> str:
    was = f" from {imported.was}" if imported.was is not None else ""
    return f"{imported.result}{was} {imported.key or ''}".rstrip()
