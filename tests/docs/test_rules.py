"""docs/rules.md: every example does what the page says."""

from __future__ import annotations

from tests.docs.conftest import ROOT, Reader
from tests.docs.pages import examples

PAGE = (ROOT / "docs/rules.md").read_text()


async def test_every_example_of_the_page_is_answered_as_shown(reader: Reader) -> None:
    followed = 0
    for example in examples(PAGE):
        try:
            await reader.follow(example)
        except AssertionError as fault:
            raise AssertionError(f"docs/rules.md, line {example.line}: {fault}") from fault
        followed += 1
    assert followed == 4
