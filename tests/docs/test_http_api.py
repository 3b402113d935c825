"""docs/http-api.md: every example does what the page says, and the tables say what the code does."""

from __future__ import annotations

import re

from gateway.config import SETTINGS
from gateway.errors import REFUSALS
from tests.docs.conftest import ROOT, Reader
from tests.docs.pages import examples

PAGE = (ROOT / "docs/http-api.md").read_text()


async def test_every_example_of_the_page_is_answered_as_shown(reader: Reader) -> None:
    followed = 0
    for example in examples(PAGE):
        try:
            await reader.follow(example)
        except AssertionError as fault:
            raise AssertionError(f"docs/http-api.md, line {example.line}: {fault}") from fault
        followed += 1
    assert followed > 35


def test_the_table_of_refusals_has_every_code_in_the_order_of_the_checks() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (`[^|]+) \|", section("Refusals"), re.MULTILINE)
    statuses: dict[str, set[int]] = {}
    for numbers, codes in rows:
        found = [int(number) for number in numbers.split(", ")]
        names = re.findall(r"`(\w+)`", codes)
        for index, name in enumerate(names):
            own = found if len(names) == 1 else found[index : index + 1] if len(found) > 1 else found
            statuses.setdefault(name, set()).update(own)
    assert set(statuses) == set(REFUSALS)
    for code, rule in REFUSALS.items():
        assert rule.status in statuses[code], code
    order = [name for name in statuses if name in REFUSALS]
    assert order == sorted(order, key=list(REFUSALS).index)


def test_each_setting_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(SLUICE_\w+)`", PAGE))
    assert len(named) >= 6
    assert named <= {setting.name for setting in SETTINGS}


def test_every_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
    for target in re.findall(r"\]\(([^#)]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
