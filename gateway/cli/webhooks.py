"""`sluice webhooks`: deliveries, quarantine with its reasons, replays, and signed requests for a test."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

import typer

from gateway.catalog.model import CatalogError, Deployed, Tenant
from gateway.cli.database import PostgresOption, postgres_url, prepared
from gateway.cli.input import read_input
from gateway.cli.output import JsonOption, cell, confirm, print_json, print_table, say, say_raw
from gateway.cli.servers import RedisOption, watched
from gateway.cli.setting_files import read_file
from gateway.config import Config, told_as_given

app = typer.Typer(
    help="Webhooks in: deliveries, quarantine, replay, discard, test requests.", no_args_is_help=True
)

TenantOption = Annotated[str, typer.Option(help="The tenant's name.")]
SourceOption = Annotated[str | None, typer.Option(help="Only deliveries of this source.")]
_ID = re.compile(r"[!-~]{0,255}")
_PAGE = 1_000
_VERDICTS = ("accepted", "duplicate", "quarantined", "replayed", "batch")

LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="At most this many, newest first.")]


@app.command("list")
def list_(
    tenant: TenantOption = "main",
    source: SourceOption = None,
    verdict: Annotated[str | None, typer.Option(help=f"One of {', '.join(_VERDICTS)}.")] = None,
    limit: LimitOption = 100,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, the newest first."""
    if verdict not in (None, *_VERDICTS):
        raise typer.BadParameter(f"{verdict} is not one of {', '.join(_VERDICTS)}", param_hint="--verdict")
    found = asyncio.run(_listed(postgres_url(postgres), tenant, source, verdict, limit))
    _print(found, as_json, ("id", "received_at", "source", "delivery_id", "verdict", "event_id", "took_ms"))


@app.command()
def quarantine(
    tenant: TenantOption = "main",
    source: SourceOption = None,
    limit: LimitOption = 1_000,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """List verified deliveries that could not become events, with the reasons."""
    found = asyncio.run(_listed(postgres_url(postgres), tenant, source, "quarantined", limit))
    _print(found, as_json, ("id", "received_at", "source", "delivery_id", "reason", "error"))


def _print(rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [[cell(row[name]) for name in columns] for row in rows])


@app.command()
def show(
    delivery: Annotated[
        str, typer.Argument(metavar="ID", help="The delivery's id, or the provider's id of it.")
    ],
    tenant: TenantOption = "main",
    source: SourceOption = None,
    postgres: PostgresOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print it unchanged, with control characters.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a delivery with its stored request."""
    found = asyncio.run(_shown(postgres_url(postgres), tenant, source, delivery))
    if as_json:
        print_json(found)
        return
    request = found.pop("request")
    for name, value in found.items():
        say(f"{name + ':':13}{cell(value)}")
    if request is None:
        say("the request is not stored any more")
        return
    show = say_raw if raw else say
    show(f"\nPOST {request['target']}")
    for name, value in request["headers"]:
        show(f"{name}: {value}")
    show(f"\n{request['body']}")


@app.command()
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of deliveries, or the provider's ids.")
    ] = None,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Replay all deliveries in quarantine.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Append another event, even if this delivery has one.")
    ] = False,
    tenant: TenantOption = "main",
    source: SourceOption = None,
    postgres: PostgresOption = None,
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Process stored deliveries by the current spec, oldest first; appended ones stay unchanged."""
    if bool(ids) == quarantined:
        raise typer.BadParameter("give IDs of deliveries, or --quarantined for all in quarantine")
    urls = {"SLUICE_POSTGRES_URL": postgres, "SLUICE_REDIS_URL": redis}
    environ = {**os.environ, **{name: url for name, url in urls.items() if url}}
    with told_as_given(postgres=postgres, redis=redis):
        config = Config.from_environ(environ, read_file)
    done = asyncio.run(_replayed(config, tenant, source, ids or [], again))
    if as_json:
        print_json(done)
    else:
        for each in done:
            say(f"{each['source']} {each['delivery_id']}: {_became(each)}")
    if any(each["event_id"] is None for each in done):
        raise typer.Exit(1)


@app.command()
def discard(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of deliveries, or the provider's ids.")
    ] = None,
    tenant: TenantOption = "main",
    source: SourceOption = None,
    reason: Annotated[str | None, typer.Option(help="Only deliveries in quarantine for this reason.")] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Discard deliveries in quarantine, with their stored requests. They cannot be replayed afterwards;
    events stay. Without an ID, select deliveries by --source, --reason or both."""
    if ids and reason is not None:
        raise typer.BadParameter("give IDs of deliveries or --reason, not both", param_hint="--reason")
    if not ids and source is None and reason is None:
        raise typer.BadParameter("give IDs of deliveries, --source or --reason")
    gone = asyncio.run(_discarded(postgres_url(postgres), tenant, source, reason, ids or []))
    if as_json:
        print_json(gone)
        return
    for each in gone:
        say(f"{each['source']} {each['delivery_id']}: discarded")
    if not gone:
        say("nothing in quarantine matches")


async def _discarded(
    url: str, tenant: str, source: str | None, reason: str | None, named: list[str]
) -> list[dict[str, str]]:
    from gateway.inbound import store

    async with _owner(url, tenant) as (pool, owner):
        ids = await _ids(pool, owner, source, named, quarantined=True)
        if not named:
            ids = await _quarantined(pool, owner, source, reason)
        gone = []
        for at in range(0, len(ids), _PAGE):
            gone += await store.discard(pool, owner.id.bytes, ids[at : at + _PAGE])
        return gone


def _became(replayed: dict[str, Any]) -> str:
    if replayed["event_id"] is None:
        return f"{replayed['reason']}: {replayed['error']}"
    return f"event {replayed['event_id']}{', as before' if replayed['duplicate'] else ''}"


@app.command()
def sign(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source that the spec declares.")],
    body: Annotated[
        str, typer.Option(metavar="FILE", help="The body; - reads stdin; default: a small example.")
    ] = "",
    spec: Annotated[str, typer.Option(metavar="FILE", help="A spec; default: the deployed one.")] = "",
    delivery_id: Annotated[
        str, typer.Option("--id", help="The delivery id, for the header or the example.")
    ] = "",
    content_type: Annotated[
        str, typer.Option(help="The content type of FILE; default: application/json.")
    ] = "",
    url: Annotated[
        str, typer.Option(envvar="SLUICE_URL", help="The gateway that receives the request.")
    ] = "http://127.0.0.1:8017",
    tenant: TenantOption = "main",
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a curl command that sends a request, signed as the provider would sign it now. The secret
    comes from the spec, or from the variable or file that the spec names; that must exist where this
    command runs."""
    from gateway.cli.signing import curl_of

    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.netloc or split.query or split.fragment:
        raise typer.BadParameter(f"{url} is not a URL such as http://127.0.0.1:8017", param_hint="--url")
    if not _ID.fullmatch(delivery_id):
        raise typer.BadParameter("an id is up to 255 visible ASCII characters", param_hint="--id")
    text = None if not body else read_input(body, "--body")
    document = read_input(spec, "--spec") if spec else asyncio.run(_document(postgres_url(postgres), tenant))
    command = curl_of(document, source, tenant, split, text, body, content_type, delivery_id)
    confirm(command, as_json, command=command)


async def _document(url: str, tenant: str) -> bytes:
    async with _owner(url, tenant) as (pool, owner):
        return (await _document_of(pool, owner))[1]


@asynccontextmanager
async def _owner(url: str, tenant: str) -> AsyncIterator[tuple[Any, Tenant]]:
    """The database, and whose deliveries are meant. Raises CatalogError for all that Postgres refuses."""
    from gateway.catalog import tenants
    from gateway.log.postgres import open_pool
    from gateway.postgres.connection_errors import UNANSWERED
    from gateway.postgres.errors import PostgresTrouble

    try:
        async with prepared(url):
            pool = await open_pool(url, 3, 30.0)
        async with pool:
            yield pool, await tenants.named(pool, tenant)
    except (*UNANSWERED, PostgresTrouble) as error:
        raise CatalogError(f"Postgres refused: {error}") from error


async def _listed(
    url: str, tenant: str, source: str | None, verdict: str | None, limit: int
) -> list[dict[str, Any]]:
    from gateway.inbound import store

    async with _owner(url, tenant) as (pool, owner):
        wanted = store.Wanted(source=source, verdict=verdict, limit=limit)
        return await store.listed(pool, owner.id.bytes, wanted)


async def _shown(url: str, tenant: str, source: str | None, delivery: str) -> dict[str, Any]:
    from gateway.inbound import store

    async with _owner(url, tenant) as (pool, owner):
        (row_id, *_) = await _ids(pool, owner, source, [delivery])
        stored = await store.stored(pool, owner.id.bytes, row_id)
    assert stored is not None
    return {**stored.shown, "request": store.request_shown(stored.request)}


async def _ids(
    pool: Any, owner: Tenant, source: str | None, named: list[str], *, quarantined: bool = False
) -> list[bytes]:
    """The rows that are meant: by their own id, or the newest of a provider's; with `quarantined` all of that
    id that are in quarantine, and no others. Raises CatalogError."""
    from gateway.inbound import store

    found = []
    for name in named:
        verdict = "quarantined" if quarantined else None
        wanted = store.Wanted(source=source, verdict=verdict, delivery_id=name, limit=_PAGE)
        rows = await store.listed(pool, owner.id.bytes, wanted)
        sources = sorted({row["source"] for row in rows})
        if len(sources) > 1:
            raise CatalogError(f"{name!r} came from {', '.join(sources)}: choose one by --source")
        if rows:
            found += [UUID(row["id"]).bytes for row in (rows if quarantined else rows[:1])]
            continue
        try:
            row_id = UUID(name).bytes
        except ValueError:
            row_id = b""
        stored = await store.stored(pool, owner.id.bytes, row_id) if row_id else None
        if quarantined and (stored is None or stored.verdict != "quarantined"):
            raise CatalogError(
                f"no delivery {name!r} is in quarantine: `sluice webhooks quarantine` lists them"
            )
        if stored is None:
            raise CatalogError(f"there is no delivery {name!r}: `sluice webhooks list` shows them")
        found.append(row_id)
    return found


async def _replayed(
    config: Config, tenant: str, source: str | None, named: list[str], again: bool
) -> list[dict[str, Any]]:
    from gateway.aliases.resolver import Resolver
    from gateway.aliases.store import Store
    from gateway.catalog.specs import between_deployments
    from gateway.inbound.replayer import Replayer
    from gateway.inbound.standalone import deployed_of, standalone

    async with _owner(config.postgres_url, tenant) as (pool, owner):
        if named:
            ids = await _ids(pool, owner, source, named)
        else:
            ids = await _quarantined(pool, owner, source)
        salt = await pool.fetchval("SELECT salt FROM tenant WHERE id = $1", owner.id)
        deployed: dict[UUID, Deployed] = {}
        async with (
            standalone(config, pool, lambda log: Resolver(log, Store(pool)).key_of, deployed) as intake,
            pool.acquire() as connection,
        ):
            done = []
            with watched("replaying") as progress:
                progress.begin(len(ids))
                for each in ids:
                    async with between_deployments(connection, owner.id):
                        revision, document = await _document_of(connection, owner)
                        now = deployed.get(owner.id)
                        if now is None or now.revision != revision:
                            now = deployed[owner.id] = deployed_of(revision, document, salt)
                        replayer = Replayer(intake.appends, pool, owner, now)
                        done.append(await replayer.replay(each, again=again))
                    progress.advance(1)
            return done


async def _quarantined(
    pool: Any, owner: Tenant, source: str | None, reason: str | None = None
) -> list[bytes]:
    """The ids of all that is in quarantine, for this reason where one is given, the oldest first."""
    from gateway.inbound import store

    found: list[bytes] = []
    before = store.LAST_ID
    while True:
        wanted = store.Wanted(source, "quarantined", before=before, limit=_PAGE, reason=reason)
        rows = await store.listed(pool, owner.id.bytes, wanted)
        found += [UUID(row["id"]).bytes for row in rows]
        if len(rows) < _PAGE:
            return found[::-1]
        before = UUID(rows[-1]["id"]).bytes


async def _document_of(pool: Any, owner: Tenant) -> tuple[int, bytes]:
    from gateway.catalog import specs

    stored = await specs.stored(pool, owner.id)
    if stored is None:
        raise CatalogError(f"tenant {owner.name} has no spec yet: `sluice spec deploy FILE`")
    return stored.revision, stored.document
