"""The command that measures the tables runs, and what it tells has not changed for the worse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "table.json"
    options = f"--rows 2000 --commits 5 --seconds 0.1 --rounds 1 --json {path}".split()
    layouts = ("--layout", "as migrated", "--layout", "without any index")
    argv = [sys.executable, "-m", "tests.bench.table", *options, *layouts]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(path.read_text()))


@pytest.mark.slow
def test_a_layout_has_its_costs(told: dict[str, Any]) -> None:
    (as_migrated,) = told["layouts"]["as migrated"]
    (bare,) = told["layouts"]["without any index"]
    assert as_migrated["per_s"] > 0
    assert bare["index_bytes"] == 0 < as_migrated["index_bytes"]
    assert bare["wal_bytes"] < as_migrated["wal_bytes"]


@pytest.mark.slow
def test_every_statement_is_a_look_up_by_an_index(told: dict[str, Any]) -> None:
    """About as many pages as rows, or the depth of an index for each of them."""
    for name, plan in told["plans"].items():
        assert plan["indexes"], name
        assert plan["pages"] <= 8 + 5 * max(plan["rows"], 64), name


@pytest.mark.slow
def test_the_partitions_row_is_updated_in_its_page(told: dict[str, Any]) -> None:
    assert told["swaps"]["alone"]["hot"] > 0.9
    assert told["swaps"]["alone"]["pages"] <= 4


@pytest.mark.slow
def test_rows_that_are_frozen_when_new_need_nothing_when_old(told: dict[str, Any]) -> None:
    assert told["vacuums"]["freezing at once, when old"]["wal_bytes"] < 1
