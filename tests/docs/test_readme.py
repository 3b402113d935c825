"""README.md: its examples do what it says, and its links lead somewhere."""

from __future__ import annotations

import re

from tests.docs.conftest import ROOT, Reader

PAGE = (ROOT / "README.md").read_text()


async def test_every_example_of_the_readme_is_answered_as_shown(reader: Reader) -> None:
    assert await reader.follow_page("README.md") >= 2


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_index_leads_to_every_page() -> None:
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text()
    linked = set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", index))
    for target in linked:
        assert (docs / target).exists(), target
    assert {path.name for path in docs.glob("*.md")} - {"index.md"} <= linked


def test_every_link_of_every_page_leads_to_a_file() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert re.match(r"[a-z]+:", target) or (page.parent / target).exists(), f"{page.name}: {target}"
