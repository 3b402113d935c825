"""deploy/env.example and the table in docs/operations.md: every setting, as gateway/config.py has it."""

from __future__ import annotations

import re
import runpy

import pytest

from gateway.catalog.secrets import FOLDER, OWNER
from gateway.config import SETTINGS, Config, ConfigError
from tests.deploy.shipped import DEPLOY, ROOT

SCRIPT = runpy.run_path(str(DEPLOY / "settings.py"))
HOW = "run .venv/bin/python deploy/settings.py"
TEXT = (DEPLOY / "env.example").read_text()


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def environ(text: str) -> dict[str, str]:
    """What a shell or an env_file makes of it."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_the_example_is_up_to_date() -> None:
    assert SCRIPT["example"]() == TEXT, HOW


def test_the_table_in_the_operations_page_is_up_to_date() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert SCRIPT["updated"](page) == page, HOW
    assert all(f"| `{row.name}`" in page for row in SETTINGS)


def test_as_it_stands_the_example_starts_nothing_and_says_what_is_missing() -> None:
    with pytest.raises(ConfigError) as refused:
        Config.from_environ(environ(TEXT), no_file)
    assert len(refused.value.faults) == 2
    assert all(" is not set: " in fault for fault in refused.value.faults)


def test_with_every_line_in_force_it_says_what_holds_anyway() -> None:
    urls = {"SLUICE_REDIS_URL": "redis://r", "SLUICE_POSTGRES_URL": "postgresql://p"}
    all_in_force = environ(re.sub(r"(?m)^#(SLUICE_)", r"\1", TEXT))
    assert set(all_in_force) == {row.name for row in SETTINGS} | {FOLDER, OWNER}
    config = Config.from_environ({**all_in_force, **urls}, no_file)
    assert config == Config.from_environ(urls, no_file)
