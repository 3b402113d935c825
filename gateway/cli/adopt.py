"""`sluice adopt`: a database that was copied or restored delivers again: for itself, or as the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from gateway.cli.database import PostgresOption
from gateway.cli.output import JsonOption, print_json, refuse, say
from gateway.cli.servers import at_database

if TYPE_CHECKING:
    import asyncpg

ReplacementOption = Annotated[
    bool, typer.Option("--replacement", help="The database replaces the original and keeps its instance id.")
]
CloneOption = Annotated[
    bool,
    typer.Option("--clone", help="Adopt even a database that looks unchanged, such as a copied disk."),
]


def adopt(
    replacement: ReplacementOption = False,
    clone: CloneOption = False,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a copied or restored database deliver subscriptions again.

    It becomes an instance of its own, with another id, unless it replaces the original. Until then its relays
    send nothing."""
    if replacement and clone:
        raise typer.BadParameter("--replacement and --clone exclude each other")

    async def work(pool: asyncpg.Pool) -> dict[str, Any]:
        return await _adopted(pool, replacement=replacement, clone=clone)

    done = at_database(postgres, work)
    if as_json:
        print_json(done)
    elif done["ok"]:
        say(f"adopted: {done['why']}")
        say(f"instance {done['instance']}" + (" as before" if replacement else ", before: " + done["before"]))
        if done["connections"]:
            say("gateways are running: restart them, so that they use that id in Redis", err=True)
    else:
        refuse(done["error"])
    if not done["ok"]:
        raise typer.Exit(1)


async def _adopted(pool: asyncpg.Pool, *, replacement: bool, clone: bool) -> dict[str, Any]:
    from asyncpg.pgproto.pgproto import UUID

    from gateway.log.postgres import Postgres
    from gateway.operations.exclusive import operator
    from gateway.relay import home

    recorded, found = await home.homes(pool)
    before = str((await Postgres(pool).instance()).id)
    if found is None:
        return _refused("this is a standby: adopt the database once it takes writes")
    why = "no relay had delivered from it" if recorded is None else home.differs(recorded, found)
    if why is None and not clone:
        return _refused(
            "nothing to adopt: this database is where it was when a relay last delivered from it. "
            "If it is a copy of that one's disk, --clone makes it an instance of its own"
        )
    new_id = None if replacement else UUID(uuid4().bytes)
    await home.adopt(pool, found, operator(), new_id)
    after = before if new_id is None else str(new_id)
    others = 0 if new_id is None else await home.others_connected(pool)
    why = why or "a copy of its disk"
    return {"ok": True, "why": why, "before": before, "instance": after, "connections": others}


def _refused(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
