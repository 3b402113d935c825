"""`sluice projections`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Sluice

SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {"events": {"was_placed": {"schema": {}}}, "list": {"by": ["total", "a.b"]}}
    },
    "agent_types": ["user"],
    "projections": {
        "totals": {
            "on": {"order.was_placed": {"key": "$.data.customer", "do": [{"increment": {"target": "n"}}]}},
            "by": ["n", "metadata.updated_at"],
        }
    },
}


@pytest.fixture
def spec(sluice: Sluice, tmp_path: Path) -> Path:
    """A file with the spec, which tenant main has."""
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(SPEC))
    assert sluice("tenants", "create", "main").code == 0
    assert sluice("spec", "deploy", str(file)).code == 0
    return file


def test_what_a_spec_declares_is_listed_paused_built_again_and_dropped(sluice: Sluice, spec: Path) -> None:
    every = {each["name"]: each for each in sluice("projections", "list", "--json").json}
    assert set(every) == {"list:order", "totals"}
    assert every["totals"]["state"] == "building"
    for name in every:
        assert sluice("projections", "pause", name).out == f"{name} is paused\n"
        shown = json.loads(sluice("projections", "show", name).out)
        assert (shown["name"], shown["state"]) == (name, "paused")
        assert sluice("projections", "resume", name).code == 0
        assert sluice("projections", "rebuild", name).code == 0
        assert name in sluice("projections", "status").out
        assert sluice("projections", "drop", name).code == 0
        assert json.loads(sluice("projections", "show", name).out)["state"] == "dropped"
        told = sluice("projections", "pause", name)
        assert (told.code, "is dropped: `sluice projections rebuild" in told.err) == (1, True)
        assert sluice("projections", "rebuild", name).code == 0
        assert json.loads(sluice("projections", "show", name).out)["build"]["rows"] == 0


def test_one_that_is_not_there_is_refused(sluice: Sluice, spec: Path) -> None:
    for command in ("show", "pause", "resume", "rebuild", "drop", "sql"):
        told = sluice("projections", command, "nothing")
        assert (told.code, told.out) == (1, "")
        assert "no projection 'nothing'" in told.err
    told = sluice("projections", "try", str(spec), "--name", "nothing")
    assert (told.code, told.out) == (1, "")


def test_a_view_has_a_column_for_each_field(sluice: Sluice, spec: Path) -> None:
    ran = sluice("projections", "sql", "list:order")
    assert ran.code == 0, ran
    view = ran.out
    assert view.startswith('CREATE VIEW "order_rows" AS\nSELECT r.key,')
    assert """#>> ARRAY['a', 'b'] AS "a_b\"""" in view
    assert (
        'to_timestamp(r.updated_at_ms / 1000.0) AS "updated_at"' in sluice("projections", "sql", "totals").out
    )


def test_a_definition_is_tried_without_being_deployed(sluice: Sluice, spec: Path) -> None:
    tried = sluice("projections", "try", str(spec), "--name", "totals", "--json").json
    assert tried == {"events": 0, "rows": 0, "does_not_fit": 0, "cut": False, "items": [], "misfits": []}
