"""docs/http-api.md: every example does what the page says, and the tables say what the code does."""

from __future__ import annotations

import re

import asyncpg

from gateway.config import SETTINGS, Setting
from gateway.errors import REFUSALS
from gateway.setting_rows import KIB, MIB
from tests.docs.conftest import ROOT, Reader

PAGE = (ROOT / "docs/http-api.md").read_text()


async def test_every_example_of_the_page_is_answered_as_shown(reader: Reader) -> None:
    assert await reader.follow_page("docs/http-api.md") > 35


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


def test_the_limits_are_the_defaults_of_their_settings() -> None:
    settings = {setting.name: setting for setting in SETTINGS}
    checked = 0
    for row in re.findall(r"^\| [^|]+ \| ([^|]+) \| (`SLUICE_[^|]+) \|", section("Limits"), re.MULTILINE):
        for name in re.findall(r"\w+", row[1]):
            assert shown(settings[name]) in row[0], name
            checked += 1
    assert checked >= 9


def shown(setting: Setting) -> str:
    """A default as a table has it."""
    if setting.default is None:
        return "none"
    if setting.field.endswith("_bytes_max"):
        size = setting.default
        return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
    if setting.default >= 10**6:
        return f"{setting.default:,}"
    return f"{setting.default:g}" + (" s" if setting.field.endswith("_s") else "")


async def test_the_outbox_has_the_columns_that_the_page_lists(postgres_url: str) -> None:
    rows = re.findall(r"^\| (`[^|]+) \| (`[^|]+) \|", section("The outbox table"), re.MULTILINE)
    listed = []
    for names, types in rows:
        columns, kinds = re.findall(r"`(\w+)`", names), re.findall(r"`([^`]+)`", types)
        listed += list(zip(columns, kinds * len(columns) if len(kinds) == 1 else kinds, strict=True))
    connection = await asyncpg.connect(postgres_url)
    try:
        found = await connection.fetch(
            "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute "
            "WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped"
        )
    finally:
        await connection.close()
    types = {
        row["attname"]: re.sub(r"timestamp(\(3\)|) with time zone", r"timestamptz\1", row["type"])
        for row in found
    }
    assert dict(listed) == types


def test_every_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
    for target in re.findall(r"\]\(([^#)]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
