"""docs/rules.md: every example does what the page says."""

from __future__ import annotations

from tests.docs.conftest import Reader


async def test_every_example_of_the_page_is_answered_as_shown(reader: Reader) -> None:
    assert await reader.follow_page("docs/rules.md") == 4
