"""docs/names.md: the tests that it names are there."""

from __future__ import annotations

import re

from tests.docs.conftest import ROOT

PAGE = ROOT / "docs" / "names.md"


def test_every_link_of_the_page_leads_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text())
    assert sum(target.startswith("../tests/") for target in targets) > 50
    for target in targets:
        assert target.startswith("https://") or (PAGE.parent / target).is_file(), target


def test_the_examples_of_the_library_hold() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
