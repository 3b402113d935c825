"""`sluice ids`: new humane codes, what an identifier is, and how often names of each kind collide.

`check` needs no server: singletons are those of a spec file, or of a tenant where a database is set.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.admit.strict_json import Malformed, decode
from gateway.catalog.model import CatalogError
from gateway.cli.database import PostgresOption, is_database_set, postgres_url, prepared
from gateway.cli.output import JsonOption, print_json, print_table, say
from gateway.config import ConfigError
from gateway.names.birthday import any_collision, share_taken
from gateway.names.content import Identity, content_of_json, content_of_text, context_of
from gateway.names.tokens import new_handle
from spec.identifiers import HUMANE_RANDOM_BYTES, Identifier, Refused, identify, mint_humane

app = typer.Typer(help="Make identifiers, and classify given ones.", no_args_is_help=True)

COUNT_MAX = 100_000  # codes drawn at once: what a terminal or a script takes in one go

_SPACES = (
    ("hash id, 6 characters", 32.0**6),
    ("hash id, 8 characters", 32.0**8),
    ("6 hex digits", 16.0**6),
    ("7 hex digits", 16.0**7),
    ("8 hex digits", 16.0**8),
    ("8 of base62", 62.0**8),
    ("humane code", 32.0**9),
    ("UUIDv4", 2.0**122),
)
_COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)


@app.command()
def humane(
    count: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="The number of ids.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Print new humane codes, one a line."""
    codes = [mint_humane(os.urandom(HUMANE_RANDOM_BYTES)) for _ in range(count)]
    if as_json:
        print_json({"ok": True, "ids": codes})
    else:
        say("\n".join(codes))


@app.command()
def base62(
    count: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="The number of ids.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Print new ids of 8 base62 characters, one a line, for objects outside Sluice: no aggregate has
    such a key."""
    drawn = [new_handle(os.urandom) for _ in range(count)]
    if as_json:
        print_json({"ok": True, "ids": drawn})
    else:
        say("\n".join(drawn))


@app.command("hash")
def hash_(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The content; - reads stdin.")] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="A JSON value; - reads stdin.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name in the context.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="The type in the context.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property in the context; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the content hash of a string or a JSON value; with a context, also the hashes of the context
    and of both."""
    if (text is None) == (value is None):
        raise typer.BadParameter("give TEXT or --value, one of them.", param_hint="TEXT")
    if text is not None:
        content = content_of_text(sys.stdin.read() if text == "-" else text)
    else:
        raw = sys.stdin.buffer.read() if value == "-" else (value or "").encode()
        if isinstance(decode(raw), Malformed):
            raise typer.BadParameter("this is not JSON.", param_hint="--value")
        content = content_of_json(raw, strict=True)
    told: dict[str, str] = {"content": content}
    if name is not None or kind is not None or properties:
        found = Identity(content, context_of(name or "", kind or "", dict(map(_property, properties or ()))))
        told |= {"context": found.context, "record": found.record}
    if as_json:
        print_json({"ok": True, "context": None, "record": None, **told})
    else:
        say("\n".join(f"{what} {digest}" for what, digest in told.items()))


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("write a property as KEY=VALUE.", param_hint="--property")
    return key, value


@app.command()
def check(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Identifiers; - reads stdin, one a line.")],
    spec: Annotated[
        str | None, typer.Option(metavar="FILE", help="A spec whose singletons are valid.")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Use the deployed spec of this tenant; default: main, if a database is set."),
    ] = None,
    postgres: PostgresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Classify identifiers and print their canonical form, or why they are invalid; exit 1 if one is."""
    singletons = _singletons(spec, tenant, postgres)
    given = sys.stdin.read().split("\n") if ids == ["-"] else ids
    if ids == ["-"] and given[-1] == "":
        given.pop()
    verdicts = [(text, identify(text, singletons)) for text in given]
    valid = all(isinstance(verdict, Identifier) for _, verdict in verdicts)
    if as_json:
        print_json({"ok": valid, "ids": [_shown(text, verdict) for text, verdict in verdicts]})
    else:
        for _, verdict in verdicts:
            if isinstance(verdict, Identifier):
                say(f"{verdict.canonical}  {verdict.kind}")
            else:
                say(verdict.reason, err=True)
    if not valid:
        raise typer.Exit(1)


@app.command()
def collisions(as_json: JsonOption = False) -> None:
    """Print how often names collide: for each number of names, the chance that two are equal, and the
    share of names that are already taken. The command computes the figures (birthday bounds)."""
    if as_json:
        print_json(
            [
                {
                    "names": name,
                    "count": count,
                    "any": any_collision(count, space),
                    "taken": share_taken(count, space),
                }
                for name, space in _SPACES
                for count in _COUNTS
            ]
        )
        return
    counts = [f"of {count:,}" for count in _COUNTS]
    for title, figure in (("any two are equal", any_collision), ("a name's place is taken", share_taken)):
        rows = [(name, *(_percent(figure(count, space)) for count in _COUNTS)) for name, space in _SPACES]
        print_table([title, *counts], rows)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _singletons(file: str | None, tenant: str | None, postgres: str | None) -> frozenset[str]:
    """Of the spec that is meant, none where none is. The rest of it does not matter here, nor its secrets."""
    if file is not None and tenant is not None:
        raise ConfigError(("--spec and --tenant exclude each other",))
    if file is not None:
        document = _read(file)
    elif tenant is not None or postgres or is_database_set():
        document = asyncio.run(_deployed(postgres_url(postgres), tenant or "main"))
    else:
        return frozenset()
    try:
        spec = json.loads(document)
        return frozenset(spec.get("spec", spec).get("singletons", []))
    except (ValueError, AttributeError, TypeError):
        raise CatalogError(f"{file} is not a spec: `sluice spec check {file}` says why") from None


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be read: {error.strerror}", param_hint="--spec") from None


async def _deployed(url: str, tenant: str) -> bytes:
    from gateway.catalog import specs, tenants

    async with prepared(url) as conn:
        stored = await specs.stored(conn, (await tenants.named(conn, tenant)).id)
    return stored.document if stored else b"{}"


def _shown(text: str, verdict: Identifier | Refused) -> dict[str, str]:
    if isinstance(verdict, Identifier):
        return {"input": text, "canonical": verdict.canonical, "kind": verdict.kind.value}
    return {"input": text, "error": verdict.reason}
