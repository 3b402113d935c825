"""Words that were dropped stay dropped: in pages, help, errors, docstrings, comments and names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT

# What is not written any more, and what is written in its place.
DROPPED = {
    "whoever": "a client that, anyone who",
    "nobody": "no client, no gateway, no request",
    "anew": "again, from the start",
    "for ever": "permanently, without a time limit",
    "forever": "permanently, without a time limit",
    "goes on": "continues",
    "sign of life": "heartbeat",
    "at night": "on call",
    "unasked": "by default",
    "in a row were taken": "after N attempts",
    "somebody": "a client, an operator",
    "anybody": "any client",
    "thrice": "three times",
    "alone": "only",
    "means nothing here": "is not a known key",
    "mend": "correct",
    "mends": "corrects",
    "or the port in it is none": "invalid host or port",
}
# In pages, help and errors only: docstrings speak of Python's values.
JSON_WORDS = {
    "a text": "a string",
    "any text": "any string",
    "no text": "no string",
    "empty text": "an empty string",
    "texts are": "strings are",
}
RENAMED = {
    "server_lost": "backend_unavailable",
    "sluice_server_up": "sluice_backend_up",
    "sequence_unanswered": "sequence_timeout",
    "commit_unanswered": "commit_outcome_unknown",
    "direct_mode_kept": "direct_mode_held_by_peer",
    "lineage_lost": "epoch_superseded",
    "delivery_broken": "delivery_error",
    "traces_off": "tracing_disabled",
    "SLUICE_JOURNAL_KEEP_S": "SLUICE_JOURNAL_RETENTION_S",
    "SLUICE_WEBHOOK_KEEP_DAYS": "SLUICE_WEBHOOK_RETENTION_DAYS",
}
BY_OTHERS = {"benchmarks.md", "model.md"}  # reports of runs, whose builds and cases have names of their own
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "spec" / "README.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *sorted((ROOT / "gateway" / "console" / "templates").glob("*.html")),
    *sorted(each for each in (ROOT / "docs").glob("*.md") if each.name not in BY_OTHERS),
]
SOURCES = [path for room in ("gateway", "spec") for path in sorted((ROOT / room).rglob("*.py"))]
TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]

_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"def test_(\w+)")
_TEST_NAME = re.compile(r"\[[^\]]*\](?=\(\.\./tests/)")


def dropped(text: str, words: dict[str, str] = DROPPED) -> list[str]:
    """Line, word, and what to write; a word of several may be broken over lines."""
    return [
        f"{text.count(chr(10), 0, found.start()) + 1}: {word!r}: write {instead}"
        for word, instead in words.items()
        for found in re.finditer(r"\b" + r"\s+".join(word.split()) + r"\b", text, re.IGNORECASE)
    ]


def mentions(text: str, words: dict[str, str] = DROPPED) -> bool:
    """Whether it may have a dropped word: a module that has none need not be parsed."""
    plain = " ".join(text.lower().replace("#", " ").split())
    return any(word in plain for word in words)


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of a module that clients or operators may read: sentences, and the docstrings of commands."""
    tree = ast.parse(path.read_text())
    notes = {each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and each.decorator_list and path.parent.name == "cli":
            yield each.lineno, ast.get_docstring(each) or ""
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each not in notes:
            sentence = " " in each.value  # else a name of the code
            yield each.lineno, each.value if sentence else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_dropped_words(page: Path) -> None:
    text = page.read_text()
    prose = _TEST_NAME.sub("", _CODE.sub(lambda code: "\n" * code[0].count("\n"), text))
    assert dropped(prose, DROPPED | JSON_WORDS) + dropped(text, RENAMED) == []


def test_help_and_error_sentences_have_no_dropped_words() -> None:
    words = DROPPED | JSON_WORDS
    found = [
        f"{path.relative_to(ROOT)}:{at} {why}"
        for path in SOURCES
        if mentions(path.read_text(), words)
        for at, text in sentences(path)
        for why in dropped(text, words)
    ]
    assert found == []


def notes(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module, without names of the code in them."""
    tree = ast.parse(text)
    for each in ast.walk(tree):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            yield each.lineno, str(each.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_docstrings_and_comments_have_no_dropped_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{at} {why}"
        for path in SOURCES + TESTS
        if mentions(text := path.read_text())
        for at, note in notes(text)
        for why in dropped(_CODE.sub("", note))
    ]
    assert found == []


def test_names_of_tests_have_no_dropped_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name[0]} {why}"
        for path in TESTS
        for name in _TEST.finditer(path.read_text())
        for why in dropped(name[1].replace("_", " "))
    ]
    assert found == []


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Of modules' classes, functions and parameters, in words."""
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.lineno, in_words(each.name)
        elif isinstance(each, ast.arg):
            yield each.lineno, in_words(each.arg)


def in_words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("_", " ").strip()


def test_names_of_functions_classes_and_parameters_have_no_dropped_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{at} {why}"
        for path in SOURCES + TESTS
        if mentions((text := path.read_text()).replace("_", " "))
        for at, name in names(ast.parse(text))
        for why in dropped(name)
    ]
    assert found == []


def test_a_dropped_word_in_a_name_is_found() -> None:
    tree = ast.parse("def ask_anew(nobody): ...\nclass StandsAlone: ...")
    assert [name for _, name in names(tree) if dropped(name)] == ["ask anew", "Stands Alone", "nobody"]


def test_words_of_notes_are_found_but_not_those_of_the_code() -> None:
    module = 'def anew():  # whoever asks\n    """As `anew` does, for ever."""\n    return "alone"\n'
    found = [why for _, note in notes(module) for why in dropped(_CODE.sub("", note))]
    assert [each.split("'")[1] for each in found] == ["for ever", "whoever"]


def test_a_dropped_word_is_found_in_whatever_case_and_across_lines() -> None:
    assert dropped("Whoever reads\nfor\never") == [
        "1: 'whoever': write a client that, anyone who",
        "2: 'for ever': write permanently, without a time limit",
    ]
    assert not dropped("A canewalk renews for everyone.")
