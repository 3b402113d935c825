"""`$.id` is another name of `$.key`."""

from __future__ import annotations

import pytest

from spec.errors import Report
from spec.handlers import Path, Root
from spec.templates import Scope, read_path


@pytest.mark.parametrize(("text", "optional"), [("$.id", False), ("$.key", False), ("$.id?", True)])
def test_an_aggregates_key_has_two_names_in_paths(text: str, optional: bool) -> None:
    report = Report()
    assert read_path(text, "", Scope({}), report) == Path(Root.KEY, (), optional)
    assert not report.faults()


def test_nothing_is_below_it() -> None:
    report = Report()
    read_path("$.id.x", "", Scope({}), report)
    assert [fault.code for fault in report.faults()] == ["invalid_path"]
