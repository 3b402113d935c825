"""What commands print of what strangers sent: shown by a terminal, and never obeyed."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.cli
from gateway.catalog.model import CatalogError
from gateway.cli.gateways import at_gateway
from gateway.cli.output import (
    Failed,
    escaped,
    print_json,
    print_json_text,
    print_table,
    say,
    say_parts,
    say_raw,
)
from gateway.cli.signing import _data
from gateway.client import Client, NotCommitted, OutcomeUnknown, Unavailable

CLI = Path(gateway.cli.__file__).parent
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2066\x7f\x00\rc"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2066\x7f\x00\x0dc"


def unsafe(text: str) -> list[str]:
    """What a terminal could obey, or a reader be misled by."""
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    text = text.replace("\r\n", "\n")
    return [
        each
        for each in text
        if (unicodedata.category(each) == "Cc" and each not in "\t\n")
        or unicodedata.bidirectional(each) in turning
        or each in "\u061c\u200e\u200f\u2028\u2029"
    ]


@given(st.text() | st.text(st.characters(max_codepoint=0x20FF)))
def test_what_is_shown_has_nothing_that_a_terminal_obeys_and_all_else(text: str) -> None:
    assert unsafe(escaped(text)) == []
    if not unsafe(text):
        assert escaped(text) == text


def test_a_line_a_table_and_a_refusal_are_escaped_and_raw_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    print_table(["id"], [[HOSTILE]], show_header=False)
    say(HOSTILE, err=True)
    out, err = capsys.readouterr()
    assert out.split("\n") == [SHOWN, SHOWN, ""]
    assert err == SHOWN + "\n"
    say_raw(HOSTILE)
    assert capsys.readouterr().out == HOSTILE + "\n"


def test_a_table_folds_sentences_and_never_what_is_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.output.PIPED_COLUMNS", 60)
    uuid, alias, error = "01a209b1-3063-77de-b54a-ef19799b9dff", "@" + "x" * 40, "no such thing " * 9
    print_table(["id", "alias", "error"], [[uuid, alias, error]])
    first, *rest = capsys.readouterr().out.splitlines()[1:]
    assert first.split()[:2] == [uuid, alias]
    assert " ".join([*first.split()[2:], *" ".join(rest).split()]) == error.strip()
    assert len(rest) > 2
    print_table(["a", "error"], [["1", error]], show_header=False)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_the_same_value_and_has_nothing_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str], indent: int | None
) -> None:
    print_json({"ä\u202e": [HOSTILE, 1]}, indent=indent)
    out = capsys.readouterr().out
    assert json.loads(out) == {"ä\u202e": [HOSTILE, 1]}
    assert (unsafe(out), "ä" in out) == ([], True)


def test_json_that_is_text_keeps_its_numbers_and_has_nothing_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = b'{"n": 42.50,\n "big": 123456789012345678901234567890, "s": "\xe2\x80\xaeb"}'
    print_json_text(text)
    assert capsys.readouterr().out == '{"n":42.50,"big":123456789012345678901234567890,"s":"\\u202eb"}\n'


@pytest.mark.parametrize(
    ("terminal", "environ", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_colour_is_for_terminals_whose_owner_wants_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    environ: dict[str, str],
    coloured: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    say_parts(("order", "cyan"), (HOSTILE, None))
    out = capsys.readouterr().out
    assert out == (f"\x1b[36morder\x1b[0m  {SHOWN}\n" if coloured else f"order  {SHOWN}\n")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal would have it
    print_table(["id"], [["7"]])
    assert ("\x1b[" in capsys.readouterr().out) is coloured


def test_a_command_to_paste_has_no_body_that_a_terminal_would_change() -> None:
    assert _data(b"a\tb\r\n", b"a\tb\r\n", "f") == "--data-raw 'a\tb\r\n'"
    assert _data(HOSTILE.encode(), HOSTILE.encode(), "f") == "--data-binary @f"
    with pytest.raises(CatalogError, match="must come from a file"):
        _data(HOSTILE.encode(), HOSTILE.encode(), "-")


def writes(path: Path) -> set[str]:
    """The ways in which a module writes to a terminal by itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & {"print", "Console"}
        if isinstance(node, ast.Attribute):
            found |= {ast.unparse(node)} & {
                "typer.echo",
                "typer.secho",
                "click.echo",
                "sys.stdout",
                "sys.stderr",
            }
    return found


def test_every_command_prints_by_the_one_place_that_escapes() -> None:
    elsewhere = {path.name: writes(path) for path in CLI.glob("*.py") if path.name != "output.py"}
    assert {name: ways for name, ways in elsewhere.items() if ways} == {
        "names.py": {"sys.stdout"},  # the file of names that `export` writes, for `import`
        "servers.py": {"sys.stderr", "Console"},  # a bar that shows how far a command is
        "streams.py": {"sys.stdout"},  # put aside where it can't be written
    }


@pytest.mark.parametrize(
    ("trouble", "fields"),
    [
        (Unavailable("no answer"), {"code": "unavailable"}),
        (NotCommitted("no answer"), {"code": "not_committed"}),
        (OutcomeUnknown("no answer", "k"), {"code": "outcome_unknown", "idempotency_key": "k"}),
    ],
)
def test_a_script_is_told_what_is_known_where_a_gateway_does_not_answer(
    trouble: Exception, fields: dict[str, str]
) -> None:
    def work(_client: Client) -> None:
        raise trouble

    with pytest.raises(Failed, match=re.escape("the gateway at http://127.0.0.1:9: no answer")) as told:
        at_gateway("http://127.0.0.1:9", "sl_key", work)
    assert told.value.fields == fields
