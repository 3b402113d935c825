"""Files that commands are given."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def read_input(file: str, param_hint: str = "FILE") -> bytes:
    """The bytes of a file, of stdin for '-'. Ends the command with 2 where it can't be read; `param_hint` is
    the argument that named it."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be read: {error.strerror}", param_hint=param_hint) from None
