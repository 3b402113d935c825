"""`sluice spec try`: fold what is stored by a spec that is not deployed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, print_json, print_json_text, say
from gateway.cli.setting_files import read_file
from gateway.cli.spec_access import fault_list
from gateway.cli.spec_reading import read_spec
from gateway.config import one

if TYPE_CHECKING:
    from gateway.catalog.spec_trial import Trial
    from spec.model import Spec

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_SHOWN_CHARS = 200  # of a value


def try_spec(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The spec, as JSON; - reads stdin.")],
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Read at most N events; default: all.")
    ] = None,
    aggregate_type: Annotated[
        str | None, typer.Option("--type", metavar="T", help="Only aggregates of this type.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant's name.")] = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fold stored events by a spec that is not deployed, and store nothing. Print which events the spec
    would refuse after their upcasts, which states would differ, and which operations do not fit. Exit 1
    if an event is refused."""
    from gateway.catalog.secrets import Secrets
    from gateway.catalog.spec_trial import told
    from spec.errors import Faults

    parsed, _ = read_spec(read_input(file), Secrets(os.environ).of(tenant))
    if isinstance(parsed, Faults):
        answer: dict[str, Any] = {"ok": False, "faults": fault_list(parsed)}
        if as_json:
            print_json(answer)
        for fault in () if as_json else parsed:
            say(f"{fault.pointer or '/'}  {fault.code}  {fault.error}")
        raise typer.Exit(1)
    trial = asyncio.run(_tried(postgres_url(postgres), tenant, parsed, aggregate_type, limit))
    if as_json:
        print_json_text(_encoded({"ok": not trial.refused, **told(trial)}))
    else:
        _tell(trial)
    if trial.refused:
        raise typer.Exit(1)


async def _tried(url: str, tenant: str, spec: Spec, aggregate_type: str | None, limit: int | None) -> Trial:
    from gateway.catalog import specs, tenants
    from gateway.catalog.model import CatalogError
    from gateway.catalog.spec_trial import Bounds, history_length, tried
    from gateway.catalog.spec_use import Conflict
    from gateway.cli.servers import watched

    bytes_max = int(one("state_bytes_max", os.environ, read_file))
    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        current = await specs.stored(conn, owner.id)
        deployed = None if current is None else await specs.readable_now(current)
        if isinstance(deployed, Conflict):
            raise CatalogError(deployed.error)
        known = spec.aggregate_types.keys() | (deployed.aggregate_types.keys() if deployed else set())
        if aggregate_type is not None and aggregate_type not in known:
            raise CatalogError(
                f"neither this spec nor the deployed one has an aggregate type {aggregate_type}"
            )
        types = sorted(known) if aggregate_type is None else [aggregate_type]
        with watched("folding") as progress:
            length = await history_length(conn, owner.id, types)
            progress.begin(length if limit is None else min(length, limit))
            bounds = Bounds(bytes_max=bytes_max)
            return await tried(conn, owner.id, deployed, spec, types, limit, progress.advance, bounds)


def _tell(trial: Trial) -> None:
    for refused in trial.first_refused:
        at = f"{refused.stream.aggregate_type} {refused.stream.key} version {refused.version}"
        say(f"! {at}, {refused.event_type}: {refused.path}: {refused.error}")
    for changed in trial.first_changed:
        say(f"~ {changed.stream.aggregate_type} {changed.stream.key}, {changed.length} events")
        if changed.too_large_at is not None:
            say(f"    is too large since version {changed.too_large_at}")
        for each in changed.diff:
            say(f"    {_SIGNS[each.kind]} {each.pointer or '/'}  {' → '.join(_values(each))}")
    for unfit in trial.first_misfits:
        at = f"{unfit.stream.aggregate_type} {unfit.stream.key} version {unfit.error.version}"
        say(f"? {at}, {unfit.error.event_type}[{unfit.error.operation}]: {unfit.error.error}")
    for text in _figures(trial):
        say(text, err=bool(trial.refused))


def _encoded(value: object) -> bytes:
    import msgspec

    return msgspec.json.Encoder(decimal_format="number").encode(value)


def _values(each: Any) -> list[str]:
    texts = [_encoded(value).decode() for name, value in each.as_json().items() if name in ("was", "now")]
    return [text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…" for text in texts]


def _figures(trial: Trial) -> list[str]:
    more = "" if trial.whole else ", of more"
    lines = [
        f"{trial.events:,} events of {trial.aggregates:,} aggregates{more}, in {trial.seconds:.1f} s and "
        f"{trial.memory_bytes / 1024 / 1024:.0f} MiB; largest state: {trial.largest_state_bytes:,} bytes",
        f"refused: {trial.refused:,} events; states that differ: {trial.changed:,}; "
        f"operations that do not fit: {trial.misfits:,}",
    ]
    if trial.undeclared:
        lines.append(f"{trial.undeclared:,} events are of types that the spec does not declare")
    return lines
