"""What commands print: tables for people, one line of JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="One line of JSON on stdout, for scripts.")]

PIPED_COLUMNS = 200  # a table that is not on a terminal is not folded at 80


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, show_header: bool = True) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=show_header)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS).print(table)


def refuse(*sentences: str) -> None:
    """Prints them on stderr and ends the command with 1."""
    for sentence in sentences:
        typer.echo(sentence, err=True)
    raise typer.Exit(1)


def moment(at: datetime | None) -> str | None:
    """RFC 3339 in UTC to the second, or None."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def cell(value: Any) -> str:
    return "-" if value in (None, "") else str(value)
