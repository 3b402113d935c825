"""The examples of docs/handlers.md: each handler makes of the state before it what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.events import Recorded, revised
from gateway.state import EMPTY, Folded, fold, upcast
from spec.errors import Report
from spec.handlers import DEFAULT_HANDLER, Handler
from spec.model import Spec
from spec.operations import CONTROL, NAMES, read_handler
from spec.parse import parse
from spec.templates import Scope
from tests.core.state_samples import recorded

PAGE = (Path(__file__).parents[2] / "docs/handlers.md").read_text()
EXAMPLES = [
    pytest.param(json.loads(text), id=f"line_{PAGE.count(chr(10), 0, PAGE.index(text)) + 1}")
    for text in re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(example: dict[str, Any]) -> Handler:
    report = Report()
    handler = read_handler(example["handler"], "", Scope(True), report)
    assert not len(report), report.faults()
    return handler


def upcast_of(example: dict[str, Any]) -> Folded:
    event = example["event"]
    spec = parse({"aggregate_types": {"order": {"events": {"was_placed": event}}}, "agent_types": []})
    assert isinstance(spec, Spec), spec
    declared = spec.aggregate_types["order"].events["was_placed"]
    old = recorded(1, written(example["data"]))
    old = Recorded(old.stream, old.version, revised(old.event, example["revision"]))
    return fold(
        EMPTY, [old], lambda _: declared.handler, present=lambda each, *more: upcast(each, declared, *more)
    )


def state_of(example: dict[str, Any]) -> Folded:
    if "event" in example:
        return upcast_of(example)
    before = fold(EMPTY, [recorded(1, written(example.get("before", {})))], lambda _: DEFAULT_HANDLER)
    handler = read(example)
    return fold(before, [recorded(2, written(example["data"]))], lambda _: handler)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_handler_does_what_the_page_says(example: dict[str, Any]) -> None:
    folded = state_of(example)
    assert json.loads(folded.data_json) == example["after"]
    assert [[each.operation, each.error] for each in folded.errors] == example.get("misfits", [])


def test_each_operation_has_an_example() -> None:
    shown = {name for name in NAMES if f'{{"{name}": {{"target"' in PAGE}
    assert shown == set(NAMES)
    assert '{"let": {' in PAGE and '{"if": ' in PAGE
    assert CONTROL == ("conditional", "let")
    assert set(NAMES) | set(CONTROL) <= set(re.findall(r"`([a-z_]+)`", PAGE)) | {"conditional", "let"}
