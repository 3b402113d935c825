"""`sluice audit`, `doctor`, `repair`, `rewind`: what operators run around a log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.database import PostgresOption
from gateway.cli.output import JsonOption, print_json, print_table, say, say_parts
from gateway.cli.servers import PartitionOption, RedisOption, at_place, watched
from gateway.cli.setting_files import read_file
from gateway.config import Config, one

if TYPE_CHECKING:
    from gateway.operations.findings import Diagnosis
    from gateway.operations.place import Place
    from gateway.operations.repair import Plan
    from gateway.operations.report import Report


def audit(
    partition: PartitionOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Check every journal entry and stream in Redis, not a sample.")
    ] = False,
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the invariants on the live system and print each violation; exit 1 if there is one."""

    async def work(place: Place) -> Report:
        from gateway.operations.audit import audit as run

        with watched("audit") as watcher:
            return await run(place, watcher, partition=partition, deep=deep)

    report = at_place(postgres, redis, work)
    if as_json:
        print_json(report.as_json())
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: Report) -> None:
    from gateway.operations.report import INVARIANTS, SHOWN_MAX

    print_table(
        ["", "invariant", "checked"],
        [
            [
                "broken" if report.broken[each.name] else "ok",
                each.holds,
                f"{report.checked[each.name]:,} {each.unit}",
            ]
            for each in INVARIANTS
        ],
    )
    for violation in report.violations:
        say(str(violation))
    for name, broken in report.broken.items():
        if broken > SHOWN_MAX:
            say(f"{name}: {broken - SHOWN_MAX:,} more violations")
    for sentence in report.unchecked:
        say(sentence, err=True)


def doctor(postgres: PostgresOption = None, redis: RedisOption = None, as_json: JsonOption = False) -> None:
    """Check the settings of Redis and Postgres on which durability depends, and print what they guarantee.

    Run it with the settings of a gateway."""
    config = _numbers()

    async def work(place: Place) -> Diagnosis:
        from gateway.bounded_memory import most
        from gateway.operations.doctor import diagnose

        each = most(config, place.instance.partitions)
        of_all = None if each is None else each * config.workers
        return await diagnose(place, config.journal_retention_s, of_all)

    diagnosis = at_place(postgres, redis, work)
    if as_json:
        print_json(diagnosis.as_json())
    else:
        _print_diagnosis(diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(1)


def _numbers() -> Config:
    """A gateway's settings as far as they are numbers: a doctor reads no secret that it doesn't need. Raises
    ConfigError."""
    numbers = [each.name for each in fields(Config) if isinstance(each.default, int | float)]
    values = {name: one(name, os.environ, read_file) for name in numbers}
    return Config(redis_url="", postgres_url="", **values)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    rows = [[str(each.verdict), each.server, each.name, each.found] for each in diagnosis.findings]
    print_table(["", "server", "setting", "found"], rows, show_header=False, fold=("setting", "found"))
    for each in diagnosis.findings:
        if each.means:
            say(f"{each.verdict}: {each.server}, {each.name}: {each.means}")
    say()
    for promise in diagnosis.promises:
        verdict = ("yes", "green") if promise.kept else ("NO ", "red")
        say_parts(verdict, (f"{promise.promise} ({promise.why})", None))


def repair(
    partition: PartitionOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit the events that Postgres has lost, from the journal in Redis; exit 1 if some stay lost."""

    report: list[str] = []
    tell = report.append if as_json else say

    async def work(place: Place) -> bool:
        from gateway.operations.exclusive import exclusive
        from gateway.operations.repair import repair as carry_out

        whole = True
        async with exclusive(place):
            async for plan in _plans(place, partition):
                whole = whole and not plan.unmended
                tell(plan.told)
                if not dry_run and plan.of_use:
                    await carry_out(place, plan)
        return whole

    whole = at_place(postgres, redis, work)
    if as_json:
        print_json({"ok": whole, "changed": not dry_run, "report": report})
        if not whole:
            raise typer.Exit(1)
        return
    if dry_run:
        say("nothing was changed: run it without --dry-run to repair", err=True)
    if not whole:
        say(
            "events that are in no journal can only be given up: `sluice rewind --accept-data-loss`", err=True
        )
        raise typer.Exit(1)
    if not dry_run:
        say("gateways continue by themselves within seconds; `sluice audit` checks what was restored")


def rewind(
    accept_data_loss: Annotated[
        bool,
        typer.Option("--accept-data-loss", help="Rewind; without this option, only show what would be lost."),
    ] = False,
    partition: PartitionOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder for the lost events; default: a new one here."),
    ] = None,
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up events that Postgres has lost; those that Redis still has are written to files."""
    folder = out or Path(f"sluice-rewind-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    window = int(one("identity_window", os.environ, read_file))

    report: list[str] = []
    tell = report.append if as_json else say

    async def work(place: Place) -> int:
        from gateway.operations.exclusive import exclusive
        from gateway.operations.lost_events import LostEvents
        from gateway.operations.rewind import rewind as give_up
        from gateway.operations.rewind import weigh

        files, events = LostEvents(folder), 0
        async with exclusive(place):
            async for plan in _plans(place, partition):
                loss = await weigh(place, plan, files)
                events += loss.found.count
                tell(loss.told)
                if plan.restores:
                    tell(f"  `sluice repair` could restore seq {plan.standing.row.seq + 1}…{plan.end.seq}")
                if accept_data_loss:
                    tell(f"  given up; it continues in epoch {await give_up(place, loss, window)}")
        return events

    events = at_place(postgres, redis, work)
    if as_json:
        print_json({"ok": True, "changed": accept_data_loss, "events": events, "report": report})
        if not accept_data_loss:
            raise typer.Exit(1)
        return
    if events:
        say(f"the lost events that Redis has are in {folder}: clients' data, keep it safe")
    if not accept_data_loss:
        say("nothing was changed: add --accept-data-loss to give this up permanently", err=True)
        raise typer.Exit(1)
    say("gateways continue by themselves within seconds")


async def _plans(place: Place, partition: int | None) -> AsyncIterator[Plan]:
    """Of each partition that is in need. Raises OperationFailed when there is none."""
    from gateway.operations.place import OperationFailed
    from gateway.operations.repair import plan_repair
    from gateway.operations.standing import stand

    if partition is not None and partition >= place.instance.partitions:
        raise OperationFailed(
            f"there is no partition {partition}: the last one is {place.instance.partitions - 1}"
        )
    needed = False
    for p in range(place.instance.partitions) if partition is None else (partition,):
        standing = await stand(place, p)
        if standing.in_need:
            needed = True
            yield await plan_repair(place, standing)
    if not needed:
        raise OperationFailed(
            "nothing to do: Postgres has all that Redis and gateways saw committed; no partition is halted"
        )
