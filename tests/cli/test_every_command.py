"""What every command says where a server is away, a database not prepared, a tenant or a key unknown.

A command that is missing in the table fails the first test.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from gateway.cli.app import app
from gateway.config import Config
from gateway.names import tokens
from tests.cli.command import Ran, Sluice
from tests.support.accounts import SPEC
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import Served, serving

ID: Final = "0190a0b0-0000-7000-8000-000000000000"
KEY: Final = tokens.mint("AAAAAAAA", secrets.token_bytes)
NOWHERE: Final = "127.0.0.1:9"
SECRET: Final = "s3cret"
AWAY: Final = {
    "SLUICE_POSTGRES_URL": f"postgresql://sluice:{SECRET}@{NOWHERE}/events",
    "SLUICE_REDIS_URL": f"redis://:{SECRET}@{NOWHERE}/0",
}
SERVING: Final = ("dev", "serve", "relay")
"""They have no end of their own where all is well; tests/dev and others start them."""
ALONE: Final = (
    "spec check FILE", "spec graph FILE",
    "ids humane", "ids base62", "ids hash x", "ids collisions", "ids check ABC123XYZ",
)  # fmt: skip
"""They need no server."""
AT_DATABASE: Final = (
    "migrate", "audit", "doctor", "repair", "rewind", "adopt",
    "spec try FILE", "spec status",
    "keys create --tenant main --scope read", "keys list", "keys rotate abcdefgh", "keys revoke abcdefgh",
    "names resolve A-1", "names list", "names export", "names import FILE", "names rebuild",
    "names migrate --from public --to hash", "names retire A-1", "names restore A-1",
    "sources key s c 1", "sources find ABC123XYZ", "sources link s c 1 ABC123XYZ", "sources rename s c d",
    "tags backfill",
    "tenants create other", "tenants list", "tenants suspend main", "tenants resume main",
    "tenants delete main --yes",
    "webhooks list", "webhooks quarantine", f"webhooks show {ID}", f"webhooks replay {ID}",
    f"webhooks discard {ID}", "webhooks sign stripe",
    "projections list", "projections show p", "projections status", "projections try FILE --name list:order",
    "projections rebuild p", "projections pause p", "projections resume p", "projections drop p",
    "projections sql p",
    "relay status", "relay replay s", f"relay skip s {ID}", "relay pause s", "relay resume s",
    "subscriptions list", "subscriptions show s", "subscriptions put s FILE", "subscriptions delete s",
    "subscriptions waiting s", "subscriptions attempts s",
)  # fmt: skip
AT_EITHER: Final = ("spec deploy FILE", "spec rollback 1", "spec diff FILE", "spec history", "spec show")
AT_GATEWAY: Final = (
    "show order global", "events", "tail", "append order global was_noted", "find x",
    "import FILE --type order --event was_noted",
    "schedules list", f"schedules show {ID}", f"schedules cancel {ID}", f"schedules run {ID}",
    f"schedules move {ID} 1",
    "sagas list", f"sagas show {ID}", f"sagas retry {ID}", f"sagas abandon {ID}",
)  # fmt: skip
UNPREPARED: Final = tuple(each for each in (*AT_DATABASE, *AT_EITHER) if each != "migrate")
NO_JSON: Final = ("names export",)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command that reads a file finds there, by the first two words."""
    folder: Path = tmp_path_factory.mktemp("files")
    listed = {**SPEC, "aggregate_types": {"order": {**SPEC["aggregate_types"]["order"], "list": {"by": []}}}}
    texts: dict[str, object] = {
        "spec": listed,
        "names import": {"aggregate_type": "order", "key": "global", "alias": "A-1"},
        "subscriptions put": {"target": {"type": "pull"}},
        "import FILE": {},
    }
    for number, (name, value) in enumerate(texts.items()):
        (folder / str(number)).write_text(json.dumps(value))
        texts[name] = str(folder / str(number))
    return {name: str(text) for name, text in texts.items()}


def words_of(command: str, files: dict[str, str], *, as_json: bool = False) -> list[str]:
    words = command.split()
    file = files.get(" ".join(words[:2]), files["spec"])
    return [file if word == "FILE" else word for word in words] + ["--json"] * as_json


def said(ran: Ran, *, as_json: bool) -> str:
    """What a command that fails says, where it has to say it."""
    assert ran.code == 1, ran
    if not as_json:
        assert ran.out == ""
        return ran.err
    told: Any = json.loads(ran.out)
    assert (told["ok"], SECRET in ran.err) == (False, False)
    return str(told["error"])


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if getattr(command, "commands", None):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name))


def test_each_command_is_in_the_table() -> None:
    listed = {*SERVING, *ALONE, *AT_DATABASE, *AT_EITHER, *AT_GATEWAY}
    missing = [
        name
        for name in leaves(typer.main.get_command(app))
        if not any(f"{each} ".startswith(f"{name} ") for each in listed)
    ]
    assert missing == []


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", (*AT_DATABASE, *AT_EITHER))
def test_a_database_that_is_away_is_a_sentence_without_its_password(
    unset: Sluice, files: dict[str, str], command: str, as_json: bool
) -> None:
    if as_json and command in NO_JSON:
        return
    ran = unset(*words_of(command, files, as_json=as_json), **AWAY)
    told = said(ran, as_json=as_json)
    assert f"postgresql://sluice:***@{NOWHERE}/events" in told
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_database_that_is_not_prepared_is_told_with_what_to_run(
    unset: Sluice, files: dict[str, str], empty_postgres_url: str, servers: Servers, as_json: bool
) -> None:
    urls = {"SLUICE_POSTGRES_URL": empty_postgres_url, "SLUICE_REDIS_URL": servers.redis_url}
    for command in UNPREPARED:
        if not (as_json and command in NO_JSON):
            told = said(unset(*words_of(command, files, as_json=as_json), **urls), as_json=as_json)
            assert "run `sluice migrate`" in told, command


def test_a_tenant_that_is_unknown_is_told_with_where_they_are_listed(
    sluice: Sluice, files: dict[str, str], servers: Servers
) -> None:
    for command in (*AT_DATABASE, *AT_EITHER):
        named = " main" in command
        words = words_of(command.replace(" main", " nobody"), files)
        words += [] if named else ["--tenant", "nobody"]
        ran = sluice(*words, SLUICE_REDIS_URL=servers.redis_url)
        if ran.code == 2:  # of no tenant
            assert "No such option" in ran.err, ran
        elif command not in ("keys list", "tenants create other"):
            told = said(ran, as_json=False)
            assert "there is no tenant 'nobody': `sluice tenants list` shows them" in told, command


@pytest.mark.parametrize("as_json", [False, True])
def test_a_gateway_that_is_away_is_a_sentence_without_the_key(
    unset: Sluice, files: dict[str, str], as_json: bool
) -> None:
    away = {"SLUICE_URL": f"http://{NOWHERE}", "SLUICE_KEY": KEY}

    def run(command: str) -> tuple[str, Ran]:
        return command, unset(*words_of(command, files, as_json=as_json), **away)

    with ThreadPoolExecutor(32) as pool:  # each tries for a while
        for command, ran in pool.map(run, (*AT_GATEWAY, *AT_EITHER)):
            assert f"the gateway at http://{NOWHERE}" in said(ran, as_json=as_json), command
            assert KEY not in ran.out + ran.err, command


@pytest.fixture(scope="module")
async def served(servers: Servers, template: str) -> AsyncIterator[Served]:
    async with (
        cloned(servers, template) as url,
        serving(Config(redis_url=servers.redis_url, postgres_url=url)) as served,
    ):
        yield served


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_key_that_opens_nothing_is_told(
    unset: Sluice, files: dict[str, str], served: Served, as_json: bool
) -> None:
    for command in (*AT_GATEWAY, *AT_EITHER):
        words = words_of(command, files, as_json=as_json)
        ran = await asyncio.to_thread(unset, *words, SLUICE_URL=served.url, SLUICE_KEY=KEY)
        told = said(ran, as_json=as_json)
        assert ("Send a valid key" if as_json else "SLUICE_KEY_FILE or --key") in told, command
        assert KEY not in ran.out + ran.err, command


@pytest.mark.parametrize("command", (*AT_DATABASE, *AT_EITHER, *AT_GATEWAY))
def test_what_is_missing_in_the_settings_is_wrong_usage(
    unset: Sluice, files: dict[str, str], command: str
) -> None:
    ran = unset(*words_of(command, files))
    assert (ran.code, ran.out) == (2, ""), ran
    wanted = "SLUICE_URL" if command in AT_GATEWAY else "SLUICE_POSTGRES_URL"
    assert wanted in ran.err


@pytest.mark.parametrize(
    "command",
    [
        "audit", "keys list", "spec show", "spec check FILE", "names list", "names retire A-1",
        "webhooks list", f"webhooks replay {ID}", "projections list", "subscriptions list",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_told_by_the_option_that_gave_it(
    unset: Sluice, files: dict[str, str], command: str
) -> None:
    ran = unset(
        *words_of(command, files), "--postgres", f"u:{SECRET}", SLUICE_REDIS_URL=AWAY["SLUICE_REDIS_URL"]
    )
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("--postgres must be postgresql://")
    assert SECRET not in ran.err
