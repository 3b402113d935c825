"""docs/operations.md, SECURITY.md and sizing.md: what they name exists, what they claim is so."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main

from gateway.catalog.secrets import FOLDER
from gateway.cli.app import app
from gateway.config import SETTINGS, Config, ConfigError
from tests.deploy.shipped import BESIDE_PARTITIONS, ROOT

PAGES = {
    name: (ROOT / "docs" / name).read_text()
    for name in ("operations.md", "backups.md", "SECURITY.md", "sizing.md")
}
OPERATIONS, SIZING = PAGES["operations.md"], PAGES["sizing.md"]
AFTER_TERM_S = 15
"""What the page adds for closing connections."""


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        path, _, anchor = target.partition("#")
        file = ROOT / "docs" / (path or name)
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_one(name: str) -> None:
    tree: Any = typer.main.get_command(app)
    commands = set(tree.list_commands(None))
    named = set(re.findall(r"(?:`|^ *|-- )sluice ([a-z]+)", PAGES[name], flags=re.MULTILINE))
    assert named
    assert named <= commands


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_is_one(name: str) -> None:
    known = {row.name for row in SETTINGS} | {f"{row.name}_FILE" for row in SETTINGS if row.secret}
    known |= {FOLDER, "SLUICE_SECRETS_TENANT"}  # read where secrets are, not by Config
    named = set(re.findall(r"\bSLUICE_[A-Z_]*[A-Z]\b", PAGES[name]))
    assert named <= known


def test_a_service_named_sluice_is_the_trap_that_it_says() -> None:
    urls = {"SLUICE_REDIS_URL": "redis://r", "SLUICE_POSTGRES_URL": "postgresql://p"}
    links = {
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "SLUICE_SERVICE_PORT": "8017",
        "SLUICE_PORT": "tcp://10.0.0.1:8017",
        "SLUICE_PORT_8017_TCP_ADDR": "10.0.0.1",
    }
    with pytest.raises(ConfigError) as refused:
        Config.from_environ(urls | links, no_file)
    assert len(refused.value.faults) == len(links)


def test_what_a_stop_may_take_is_said() -> None:
    assert f"2 × `SLUICE_SHUTDOWN_GRACE_S` + {AFTER_TERM_S} s" in OPERATIONS


def test_the_connections_of_a_gateway_are_counted_right() -> None:
    for page in (OPERATIONS, SIZING):
        assert f"`SLUICE_PARTITIONS` + {BESIDE_PARTITIONS}" in page


def test_the_journal_is_reckoned_with_the_number_in_the_table() -> None:
    (row,) = re.findall(r"\| Redis: journal, .*? \| (\d+) \| (\d+) \| (\d+) \|", OPERATIONS)
    largest = max(map(int, row))
    said = re.search(r"1,000 × (\d+) × (\d+) B = (\d+) MB", OPERATIONS)
    assert said
    assert [int(said[1]), int(said[2])] == [Config.journal_retention_s, largest]
    assert int(said[3]) == round(1000 * Config.journal_retention_s * largest / 1e6)
