"""Pictures of a report show what it has, and nothing that a page would have to run or fetch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.plots import draw


def row(name: str, per_s: float, round_: int = 1) -> dict[str, Any]:
    return {
        "name": name, "round": round_, "count": 10, "per_s": per_s, "latency_ms": {"p50": 1.0, "p99": 2.5},
        "cpu_us": {"gateway": 50.0, "redis": 20.0, "postgres": 10.0, "generator": 5.0},
    }  # fmt: skip


REPORT = {
    "date": "2026-11-21T20:00:00+00:00",
    "rows": [
        row("append/streams/16", 4000), row("append/streams/64", 7000), row("read/state/64", 18000),
        row("append/previous_length/64", 1), row("append/previous_length/64", 7321, 2),
        row("append/previous_length/64", 9999, 3),
        row("growth/stored_10000/append/64", 7100), row("growth/stored_1000000/append/64", 6900),
        row("peers/message-db/64", 4700), row("floor/sequence", 40000),
        {**row("append/hot/64", 0), "count": 0, "latency_ms": {}},
    ],
}  # fmt: skip


def test_each_picture_is_an_svg_without_scripts_and_addresses(tmp_path: Path) -> None:
    written = draw(REPORT, tmp_path)
    assert [path.stem for path in written] == ["appends", "appends-p99", "reads", "cpu", "growth", "peers"]
    for path in written:
        drawn = path.read_text()
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
        assert "<script" not in drawn
        assert all(address.startswith("#") for address in re.findall(r'(?:href|src)="([^"]*)"', drawn))
        assert "2026-11-21" in drawn


def test_of_several_rounds_the_one_with_the_median_rate_is_shown(tmp_path: Path) -> None:
    draw(REPORT, tmp_path)
    drawn = (tmp_path / "peers.svg").read_text()
    assert "7,321" in drawn
    assert "9,999" not in drawn


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    written = draw({**REPORT, "rows": [row("append/streams/64", 7000)]}, tmp_path)
    assert [path.stem for path in written] == ["appends", "appends-p99", "cpu"]
    assert "append/hot" not in (tmp_path / "appends.svg").read_text()


@pytest.mark.parametrize("name", ["appends", "growth"])
def test_the_same_report_makes_the_same_file(tmp_path: Path, name: str) -> None:
    draw(REPORT, tmp_path / "one")
    draw(REPORT, tmp_path / "other")
    assert (tmp_path / "one" / f"{name}.svg").read_bytes() == (
        tmp_path / "other" / f"{name}.svg"
    ).read_bytes()
