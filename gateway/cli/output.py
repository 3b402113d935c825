"""What commands print: text and tables for people, JSON for scripts. The one place that writes what a person
reads: a delivery, a name, an error may hold what a stranger sent, and a terminal obeys control characters."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from spec.errors import Fault

LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most this many; default: all.")
]
_AS_JSON = "sluice.as_json"  # in the context of the command line


def _note_json(context: typer.Context, wanted: bool) -> bool:
    """So that a failure too is printed as JSON, wherever in a command it is found."""
    context.meta[_AS_JSON] = wanted
    return wanted


JsonOption = Annotated[
    bool, typer.Option("--json", callback=_note_json, help="One line of JSON on stdout, for scripts.")
]

_T = TypeVar("_T")

# C0 but tab and line ends, DEL and C1; what turns the direction of text; the line ends of Unicode.
_UNSAFE = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)

PIPED_COLUMNS = 200  # a table that is not on a terminal is not folded at 80
FOLDED_COLUMNS_MIN = 24  # a sentence is not folded to fewer


def escaped(text: str) -> str:
    """What a terminal shows and does not obey, as `\\x1b` and `\\u202e`. Tabs and line ends stay."""
    return _UNSAFE.sub(_as_text, text)


def _as_text(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}" if found[0] < "\u0100" else _as_json(found)


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def say(text: object = "", *, err: bool = False) -> None:
    """A line for people, on stdout or stderr."""
    typer.echo(escaped(str(text)), err=err)


def limited(rows: Sequence[_T], limit: int | None) -> Sequence[_T]:
    """The first so many; says on stderr where that is not all."""
    if limit is None or len(rows) <= limit:
        return rows
    say(f"only {limit:,} of {len(rows):,} are listed: raise --limit for more", err=True)
    return rows[:limit]


def confirm(sentence: str, as_json: bool, **fields: Any) -> None:
    """That something is done: the sentence, or its fields as JSON with `"ok": true`."""
    if as_json:
        print_json({"ok": True, **fields})
    else:
        say(sentence)


def say_raw(text: str) -> None:
    """A line as it is, for --raw: `typer.echo` would leave some of it out of a file."""
    sys.stdout.write(f"{text}\n")


def print_json(value: object, *, indent: int | None = None) -> None:
    """JSON of the same value, in which what a terminal would obey is `\\u001b`."""
    typer.echo(_UNSAFE.sub(_as_json, json.dumps(value, indent=indent, ensure_ascii=False)))


def print_json_text(text: bytes, *, indent: int = -1) -> None:
    """JSON that is text already, on one line or indented: its numbers stay as they are written."""
    import msgspec

    typer.echo(_UNSAFE.sub(_as_json, msgspec.json.format(text, indent=indent).decode()))


def is_coloured() -> bool:
    """Whether stdout is a terminal that shows colours, and its owner has not asked for none (NO_COLOR)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def say_parts(*parts: tuple[str, str | None]) -> None:
    """A line of texts, each with the colour that a terminal shows it in, or None."""
    plain = not is_coloured()
    texts = [(escaped(text), colour) for text, colour in parts]
    shown = (text if plain or colour is None else typer.style(text, fg=colour) for text, colour in texts)
    typer.echo("  ".join(shown), color=not plain)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    show_header: bool = True,
    fold: Collection[str] = frozenset({"error"}),
) -> None:
    """Only the columns `fold`, which hold sentences, are folded where the table is wider than the terminal.
    All others hold ids and figures, which are copied: they stay in one piece."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = "bold" if is_coloured() else ""  # bold is an escape sequence too
    table = Table(box=None, pad_edge=False, header_style=heading, show_header=show_header)
    texts = [[Text(escaped(cell)) for cell in row] for row in rows]
    least = 2 * len(columns)  # of the table's width: the blanks between its columns
    for number, column in enumerate(columns):
        needs = max([cell_len(column) if show_header else 0, *(row[number].cell_len for row in texts)])
        width = min(needs, FOLDED_COLUMNS_MIN) if column in fold else needs
        least += width
        table.add_column(column, overflow="fold", min_width=width, no_wrap=column not in fold)
    for each in texts:
        table.add_row(*each)
    console = Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    console.width = max(console.width, least)
    console.print(table)


class Failed(Exception):
    """A command that ends with 1: sentences for people, and what a script gets beside them."""

    def __init__(self, sentences: Sequence[str], fields: Mapping[str, Any]) -> None:
        super().__init__(*sentences)
        self.sentences = sentences
        self.fields = fields


def refuse(*sentences: str, **fields: Any) -> NoReturn:
    """Ends the command with 1, and prints the sentences on stderr; with --json one object on stdout: `ok`
    false, `error` of the sentences, and the fields."""
    raise Failed(sentences, fields)


def refuse_faults(error: str, faults: Iterable[Fault]) -> NoReturn:
    """Likewise for the faults of a document, each with its place."""
    listed = [{"code": each.code, "pointer": each.pointer, "error": each.error} for each in faults]
    lines = [f"{each['pointer'] or '/'}  {each['code']}  {each['error']}" for each in listed]
    refuse(*lines, error=error, faults=listed)


def print_failure(failed: Failed, context: typer.Context) -> None:
    """As the command line of this context asked for."""
    if context.meta.get(_AS_JSON):
        print_json({"ok": False, "error": "\n".join(failed.sentences), **failed.fields})
        return
    for sentence in failed.sentences:
        say(sentence, err=True)


def moment(at: datetime | None) -> str | None:
    """RFC 3339 in UTC to the second, or None."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def cell(value: Any) -> str:
    return "-" if value in (None, "") else str(value)
