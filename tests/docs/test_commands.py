"""docs/terminal.md names every command and subcommand of `sluice`."""

from __future__ import annotations

import re

import typer.main

from gateway.cli.app import app
from tests.docs.conftest import ROOT

TREE = typer.main.get_command(app)
COMMANDS = {
    name: command.list_commands(None) if hasattr(command, "commands") else []
    for name in TREE.list_commands(None)  # type: ignore[attr-defined]
    for command in [TREE.get_command(None, name)]  # type: ignore[attr-defined]
}
PAGE = (ROOT / "docs" / "terminal.md").read_text()


def test_every_command_is_in_the_list_of_commands() -> None:
    rows = [
        line.split("|") for line in PAGE.partition("## All commands")[2].splitlines() if line[:3] == "| `"
    ]
    listed = {row[1].strip(" `"): re.findall("`([a-z0-9]+)`", row[2]) for row in rows if len(row) > 2}
    assert {name: listed.get(name) for name, inner in COMMANDS.items() if inner} == {
        name: inner for name, inner in COMMANDS.items() if inner
    }


def test_every_command_without_subcommands_is_named() -> None:
    named = set(re.findall(r"`(?:sluice )?([a-z]+)[ `]", PAGE))
    assert {name for name, inner in COMMANDS.items() if not inner} - named == set()
