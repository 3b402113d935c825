"""`sluice spec status`: how many long streams have a kept state by the deployed handlers."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.output import JsonOption, print_json, print_table, say


def status(
    tenant: Annotated[str, typer.Option(help="The tenant's name.")] = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many long streams have a kept state by the deployed handlers, and how many wait for one;
    exit 1 if no spec is deployed."""
    answer = asyncio.run(_status(postgres_url(postgres), tenant))
    if as_json:
        print_json(answer)
    elif not answer["ok"]:
        say(answer["error"], err=True)
    else:
        say(f"revision {answer['revision']}")
        rows = [
            [each["aggregate_type"], f"{each['kept']:,}", f"{each['stale']:,}", f"{each['bytes']:,}"]
            for each in answer["kept_states"]
        ]
        print_table(["type", "streams kept", "out of date", "bytes"], rows)
    if not answer["ok"]:
        raise typer.Exit(1)


async def _status(url: str, tenant: str) -> dict[str, Any]:
    from gateway.aggregates.kept import handlers_digest
    from gateway.catalog import specs, tenants
    from gateway.log.postgres import SQL
    from spec.errors import Faults
    from spec.parse import parse_deployed

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        stored = await specs.stored(conn, owner.id)
        rows = await conn.fetch(SQL["kept_counts"], owner.id)
    if stored is None:
        why = f"tenant {tenant} has no spec yet: `sluice spec deploy FILE`"
        return {"ok": False, "code": "not_found", "error": why}
    spec = parse_deployed(stored.document)
    types = {} if isinstance(spec, Faults) else spec.aggregate_types
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row["aggregate_type"]
        if name in types:
            of = {"aggregate_type": name, "kept": 0, "stale": 0, "states": 0, "bytes": 0}
            counts = found.setdefault(name, of)
            present = row["handlers"] == handlers_digest(types[name])
            counts["kept" if present else "stale"] += row["streams"]
            counts["states"] += row["states"]
            counts["bytes"] += row["bytes"]
    done = not any(each["stale"] for each in found.values())
    return {"ok": True, "revision": stored.revision, "done": done, "kept_states": [*found.values()]}
