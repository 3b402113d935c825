"""A kind of target, or an operation, that a table forgets is found when the table is made."""

from __future__ import annotations

import json
import runpy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

import gateway
from gateway.outcomes import Outcome
from gateway.relay.targets.contract import word_of
from gateway.state import operations as applied
from gateway.state.budget import Budget
from gateway.state.fold import _scans
from gateway.state.predicates import Where, _is_fixed
from gateway.state.templates import View, value_of
from gateway.telemetry import metrics
from spec import handlers, operations
from spec.errors import Report
from spec.handlers import Comparison, Constant, Operation
from spec.operations import read_handler
from spec.predicates import NEVER
from spec.tables import complete
from spec.targets import table as targets
from spec.targets.form import Form, Sent
from spec.targets.pull import Pull
from spec.targets.redis_stream import RedisStream
from spec.targets.webhook import Webhook
from spec.templates import Scope
from tests.core.state_samples import recorded

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")

SOURCES = Path(gateway.__file__).parent
SCHEMA = json.loads((SOURCES.parent / "spec" / "schema.json").read_text())["$defs"]


def test_a_complete_table_is_read_only_and_an_incomplete_one_is_refused() -> None:
    table = complete(("a", "b"), {"b": 1, "a": 2})
    assert (table["a"], table["b"]) == (2, 1)
    with pytest.raises(TypeError):
        table["a"] = 3  # type: ignore[index]
    for rows in ({"a": 1}, {"a": 1, "b": 2, "c": 3}):
        with pytest.raises(TypeError, match="a table has no row for"):
            complete(("a", "b"), rows)


def test_a_target_that_events_are_sent_to_needs_a_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SENT", {**targets.SENT, "pigeon": type("Pigeon", (Sent,), {})})
    with pytest.raises(TypeError, match="Pigeon"):
        runpy.run_module("gateway.relay.targets.table")


@pytest.mark.parametrize(
    ("module", "named"),
    [("spec.operations", "Name"), ("gateway.telemetry.metrics", "Outcome")],
)
def test_a_name_that_its_own_table_forgets_keeps_the_module_from_being_imported(
    module: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module(module)
    args = get_args

    def with_a_pigeon(of: Any) -> tuple[Any, ...]:
        found = args(of)
        return (*found, "pigeon") if "merge" in found or of is Outcome else found

    monkeypatch.setattr("typing.get_args", with_a_pigeon)
    with pytest.raises(TypeError, match="pigeon"):
        runpy.run_module(module)


def test_a_comparison_without_a_row_keeps_its_module_from_being_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "Comparison", SimpleNamespace(**Comparison.__members__))
    with pytest.raises(TypeError):
        runpy.run_module("gateway.state.predicates")


PIGEON: Any = SimpleNamespace(value=Constant(1), target=("a",))


def test_a_form_that_a_function_forgets_is_an_error_and_not_another_form() -> None:
    budget = SimpleNamespace(look=lambda _items: None)
    view: Any = SimpleNamespace(size=0, counted=lambda value: value, budget=budget, roots={})
    putting = View.of(recorded(1, b"{}"), {}, {}, Budget())
    for call in (
        lambda: word_of(PIGEON),
        lambda: applied.apply(PIGEON, view, view, print),
        lambda: applied._put(PIGEON, view, ("a",), Constant(1), putting),
        lambda: Where(view).holds(PIGEON, None),  # type: ignore[arg-type]
        lambda: value_of(PIGEON, view),
        lambda: operations._made(PIGEON, operations._Parts((), None, NEVER, "", Constant(1), ())),
        lambda: _is_fixed(PIGEON),
        lambda: _scans(PIGEON),
    ):
        with pytest.raises(AssertionError):
            call()


def test_each_target_has_a_kind_and_metrics_of_its_own() -> None:
    declared = (Webhook("", ""), RedisStream("", ""), Pull())
    assert tuple(map(type, declared)) == tuple(form.made for form in targets.FORMS)
    assert tuple(map(targets.kind_of, declared)) == targets.KINDS
    made = metrics.Metrics(metrics.CollectorRegistry())
    for kind in targets.KINDS:
        for outcome in metrics.DELIVERIES:
            if kind != "pull":
                made.delivered(kind, outcome)


def test_the_published_schema_has_each_target_as_the_table_says() -> None:
    target = SCHEMA["subscription"]["properties"]["target"]
    assert target["properties"]["type"]["enum"] == [*targets.KINDS]
    assert target["oneOf"] == [{"$ref": f"#/$defs/{kind}_target"} for kind in targets.KINDS]
    for form in targets.FORMS:
        assert SCHEMA[f"{form.kind}_target"] == form.schema


@pytest.mark.parametrize("form", targets.FORMS, ids=targets.KINDS)
def test_the_reader_of_a_target_refuses_what_its_schema_refuses(form: Form) -> None:
    """Each field with a value that its schema refuses: the reader of that target refuses it too."""
    fit = {"url": f"{'https' if form.made is Webhook else 'rediss'}://example.com", "secret": "c2VjcmV0"}
    whole = {"type": form.kind, "stream": "s", **fit}
    document = {name: value for name, value in whole.items() if name in ("type", *form.required)}
    assert form.read(document, "", {}, report := Report()) is not None and not len(report)
    for name in (*form.required, *form.optional):
        form.read({**document, name: {}}, "", {}, report := Report())
        assert [fault.pointer for fault in report.faults()] == [f"/{name}"]


HOLDING: dict[str, object] = {
    "conditional": {"conditional": {"if": {"exists": "@.a"}, "then": []}},
    "let": {"let": {"n": 1}, "do": []},
}
"""The operations that hold others, as they are written."""


def test_each_operation_is_read_as_a_form_of_its_own_and_is_in_the_published_schema() -> None:
    read = set()
    arguments: dict[str, object] = {
        "target": "a",
        "key": "k",
        "where": {"exists": "@"},
        "value": {"$merge": []},
    }
    for name in operations.NAMES:
        required, _ = operations._ARGUMENTS[name]
        written: object = {name: {each: arguments[each] for each in required}}
        if name in ("map", "update_where"):
            written[name]["do"] = []  # type: ignore[index]
        report = Report()
        (operation,) = read_handler(written, "", Scope(True), report)
        assert not len(report)
        read.add(type(operation))
    assert HOLDING.keys() == set(operations.CONTROL)
    for written in HOLDING.values():
        report = Report()
        (operation,) = read_handler(written, "", Scope(True), report)
        assert not len(report)
        read.add(type(operation))
    assert read == set(get_args(Operation))
    assert list(SCHEMA["named_operation"]["properties"]) == [*operations.NAMES, "conditional"]
