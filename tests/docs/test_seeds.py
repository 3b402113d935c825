"""docs/seeds.md: each statement that holds names a test, and that test is there."""

from __future__ import annotations

import re

from tests.docs.conftest import ROOT

PAGE = ROOT / "docs" / "seeds.md"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)\)")
_COLUMNS = 4


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [each for each in cells if len(each) == _COLUMNS and each[0] != "statement"]


def test_every_statement_has_a_verdict_and_what_is_so_here() -> None:
    stated = rows()
    assert len(stated) > 120
    assert {verdict for _, verdict, _, _ in stated} == {"works", "differs", "not yet"}
    assert all(here for _, _, here, _ in stated)
    assert all(why for _, verdict, _, why in stated if verdict != "not yet")


def test_every_statement_that_holds_names_tests_that_are_there() -> None:
    for statement, verdict, _, shown in rows():
        if verdict != "works":
            continue
        links = _LINK.findall(shown)
        assert links, statement
        for name, target in links:
            source = (PAGE.parent / target).read_text()
            assert f"def test_{name.replace(' ', '_')}(" in source, (statement, name)


def test_tests_that_are_named_in_words_are_there() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", PAGE.read_text()):
        assert name == "test_data_importer" or f"def {name}(" in tests, name
