"""docs/tutorial.md: every example does what the page says, and its excerpts are of the spec that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.docs.conftest import ROOT, Reader
from tests.support.calls import until

SPEC = ROOT / "spec/examples/tickets.json"
PAGE = "docs/tutorial.md"


async def test_every_example_of_the_tutorial_is_answered_as_shown(reader: Reader) -> None:
    assert (await reader.ask("PUT", "/_/spec", SPEC.read_bytes()))["ok"]

    async def timer() -> str:
        found: list[Any] = []

        async def is_set() -> bool:
            found[:] = (await reader.ask("GET", "/_/schedules?type=booking&key=B00K1NG03"))["items"]
            return found != []

        await until(is_set)
        text: str = found[0]["id"]
        return text

    reader.found["TIMER"] = timer
    assert await reader.follow_page(PAGE) == 16


def test_every_excerpt_of_the_tutorial_is_in_its_spec() -> None:
    declared = list(_fields(json.loads(SPEC.read_text())))
    excerpts = re.findall(r'^```json\n(".*?)^```', (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL)
    assert len(excerpts) == 6
    for excerpt in excerpts:
        [field] = json.loads(f"{{{excerpt}}}").items()
        assert field in declared, excerpt


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _fields(part)
