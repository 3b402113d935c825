"""docs/transactions.md: every example does what the page says."""

from __future__ import annotations

import httpx

from tests.docs.conftest import ROOT, Reader
from tests.docs.pages import examples

PAGE = (ROOT / "docs/transactions.md").read_text()


async def test_every_example_of_the_page_is_answered_as_shown(reader: Reader) -> None:
    followed = 0
    for example in examples(PAGE):
        if "$POSITION" in example.command and "POSITION" not in reader.variables:
            reader.variables["POSITION"] = await position(reader)
        try:
            await reader.follow(example)
        except AssertionError as fault:
            raise AssertionError(f"docs/transactions.md, line {example.line}: {fault}") from fault
        followed += 1
    assert followed == 8


async def position(reader: Reader) -> str:
    """Where the reader's last query came to."""
    name, value = reader.variables["AUTH"].split(": ")
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(f"{reader.url}/_/feed", headers={name: value})
    text: str = page.json()["position"]
    return text
