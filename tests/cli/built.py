"""Imported by the process that commands are forked from: the tree of all commands, which Typer makes at each
call, is made once. To make it takes half of the time of a short command."""

from __future__ import annotations

import typer.main

from gateway.cli.app import app

_make = typer.main.get_command
_BUILT = _make(app)


def _of(asked: typer.Typer) -> object:
    return _BUILT if asked is app else _make(asked)


typer.main.get_command = _of  # type: ignore[assignment]
