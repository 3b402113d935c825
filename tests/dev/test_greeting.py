"""The command that a newcomer pastes."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from gateway.dev.greeting import curl, sample

URL = "http://127.0.0.1:8017"


def pasted(spec: object) -> list[str]:
    return shlex.split(curl(URL, "sl_key", None, spec))


def one_event(schema: object) -> dict[str, Any]:
    return {
        "aggregate_types": {"order": {"events": {"was_placed": {"schema": schema}}}},
        "agent_types": ["user"],
    }


@pytest.mark.parametrize("wrapped", [False, True])
def test_it_posts_the_first_event_of_the_spec(wrapped: bool) -> None:
    spec = one_event({"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]})
    words = pasted({"spec": spec} if wrapped else spec)
    path = words[3].removeprefix(URL).split("/")
    assert (words[:3], path[1], path[3]) == (["curl", "-X", "POST"], "order", "was_placed")
    assert "Authorization: Bearer sl_key" in words
    body = json.loads(words[-1])
    assert body["data"] == {"total": 42}
    assert body["metadata"]["actor"]["type"] == "user"


def test_where_the_output_is_kept_the_command_reads_the_key_from_its_file(tmp_path: Path) -> None:
    key_file = tmp_path / "it's here" / "key"
    key_file.parent.mkdir()
    key_file.write_text("sl_key\n")
    for spec in (one_event(True), {}):
        command = curl(URL, "sl_key", key_file, spec)
        assert "sl_key" not in command
        words = f'set -- {command}; for word; do echo "$word"; done'
        said = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=True).stdout
        assert "Authorization: Bearer sl_key" in said.splitlines()


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"const": "it"},
        {"enum": [3, 4]},
        {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]},
        {"type": "array", "items": {"type": "integer", "minimum": 100}, "minItems": 2},
        {"type": ["string", "null"], "minLength": 20},
        {"type": "string", "maxLength": 3},
        {"type": "boolean"},
        {"type": "null"},
        {
            "type": "object",
            "properties": {"inner": {"type": "object", "required": ["x"]}},
            "required": ["inner"],
        },
        {"examples": [{"anything": 1}], "type": "object"},
        {"type": "number", "maximum": 7},
    ],
)
def test_a_simple_schema_accepts_its_sample(schema: Any) -> None:
    assert jsonschema_rs.is_valid(schema, sample(schema))


def test_an_event_that_no_simple_value_satisfies_is_passed_over() -> None:
    spec = one_event({"type": "string", "pattern": "^[0-9]{9}$"})
    spec["aggregate_types"]["order"]["events"]["was_shipped"] = {"schema": {"type": "object"}}
    assert pasted(spec)[3].endswith("/was_shipped")


@pytest.mark.parametrize(
    "spec",
    [{}, None, [], one_event({"not": {}}), one_event({"type": 7}), one_event(True) | {"agent_types": []}],
)
def test_without_such_an_event_it_reads_the_spec(spec: object) -> None:
    assert pasted(spec) == ["curl", f"{URL}/_/spec", "-H", "Authorization: Bearer sl_key"]
