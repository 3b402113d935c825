"""The code, the two tables and the page say the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import gateway
from gateway.config import SETTINGS
from gateway.telemetry.log_events import COMMON_FIELDS, LIBRARY, LOG_EVENTS
from gateway.telemetry.metric_rows import METRICS
from gateway.telemetry.metrics import Metrics, Reading
from gateway.telemetry.reference import updated
from tests.telemetry import cost

SOURCES = Path(gateway.__file__).parent
PAGE = SOURCES.parent / "docs" / "observability.md"
LEVEL_OF = {"exception": "error", "warn": "warning", "fatal": "critical"}
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn", "fatal"}


@dataclass(frozen=True, slots=True)
class Said:
    """A logger call. `fields` is None where the test can't tell what they are."""

    place: str
    event: str | None
    level: str
    fields: frozenset[str] | None


def logger_calls() -> Iterator[Said]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in ("logger", "logging")):
            continue  # to walk over all would take seconds of each collection
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and is_logger_call(call.func):
                    yield said(call, function, f"{path.relative_to(SOURCES)}:{call.lineno}")


def is_logger_call(called: ast.expr) -> bool:
    if not isinstance(called, ast.Attribute) or called.attr not in METHODS:
        return False
    of = called.value
    name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
    return name.endswith(("logger", "logging"))


def said(call: ast.Call, function: ast.AST, place: str) -> Said:
    assert isinstance(call.func, ast.Attribute)
    first = call.args[0] if len(call.args) == 1 else None
    event = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
    fields = frozenset[str]() if extra is None else keys_of(extra, function)
    return Said(place, event, LEVEL_OF.get(call.func.attr, call.func.attr), fields)


def keys_of(value: ast.expr, function: ast.AST) -> frozenset[str] | None:
    """The keys of a dictionary that stands there, or that a name of the same function holds."""
    if isinstance(value, ast.Dict):
        found = set[str]()
        for key, part in zip(value.keys, value.values, strict=True):
            if key is None:
                more = keys_of(part, function)
                if more is None:
                    return None
                found |= more
            elif isinstance(key, ast.Constant):
                found.add(key.value)
            else:
                return None
        return frozenset(found)
    if not isinstance(value, ast.Name):
        return None
    return keys_of_name(value.id, function)


def keys_of_name(name: str, function: ast.AST) -> frozenset[str] | None:
    found = set[str]()
    for each in ast.walk(function):
        if not isinstance(each, ast.Assign) or len(each.targets) != 1:
            continue
        target = each.targets[0]
        if isinstance(target, ast.Name) and target.id == name:
            keys = keys_of(each.value, function)
            if keys is None:
                return None
            found |= keys
        elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
            assert isinstance(target.slice, ast.Constant)
            found.add(target.slice.value)
    return frozenset(found) or None


CALLS = sorted({each.place: each for each in logger_calls()}.values(), key=lambda each: each.place)


@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.place)
def test_every_logger_call_is_an_event_of_the_table(call: Said) -> None:
    assert call.event in LOG_EVENTS, "a logger call names its event in one literal; add it to the table"
    row = LOG_EVENTS[call.event]
    assert call.level == row.level
    assert call.fields is not None, "its fields must be written where the call stands"
    assert call.fields <= {*row.fields, "correlation_id"}


def test_every_event_of_the_table_is_logged_somewhere() -> None:
    assert {call.event for call in CALLS} == LOG_EVENTS.keys() - {LIBRARY}


def test_every_field_of_an_event_is_given_somewhere() -> None:
    given: dict[str, set[str]] = {}
    for call in CALLS:
        given.setdefault(call.event or "", set()).update(call.fields or ())
    for row in LOG_EVENTS.values():
        if row.name != LIBRARY:
            assert set(row.fields) == given[row.name] - {"correlation_id"}, row.name


def test_loggers_are_all_below_ours() -> None:
    named = re.compile(r"getLogger\(([^)]*)\)")
    for path in SOURCES.rglob("*.py"):
        if path.parent.name != "telemetry":
            for name in named.findall(path.read_text()):
                assert name.startswith('"sluice'), path


def test_a_field_of_an_event_never_hides_a_common_one() -> None:
    for row in LOG_EVENTS.values():
        assert not set(row.fields) & set(COMMON_FIELDS)
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", row.name)
        assert row.meaning.endswith(".") and row.action.endswith("."), row.name


def test_every_metric_of_the_table_is_in_the_registry_with_its_type_and_no_other() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    gauges = [row for row in METRICS.values() if row.kind == "gauge" and row.name != "sluice_build_info"]
    metrics.read_at_scrape(lambda: [Reading(row.name, 0, row.labels) for row in gauges])
    page = generate_latest(registry).decode()
    types = dict(re.findall(r"^# TYPE (sluice_\w+) (\w+)$", page, re.MULTILINE))
    created = {name for name in types if name.endswith("_created")}
    assert {name: types[name] for name in types.keys() - created} == {
        row.name: row.kind for row in METRICS.values()
    }


def test_metrics_say_their_unit_last_and_no_label_is_out_of_a_request() -> None:
    for row in METRICS.values():
        assert row.name.endswith("_total") == (row.kind == "counter")
        assert bool(row.buckets) == (row.kind == "histogram")
        assert row.meaning.endswith(".") and row.watch.endswith("."), row.name
        declared = {"reason", "secret", "tenant"} if row.name.startswith("sluice_webhook_") else set()
        if row.name == "sluice_tenant_bytes":  # of 20 tenants at most
            declared = {"handle"}
        assert set(row.labels) <= declared | {
            "event", "kind", "limit", "method", "outcome", "partition", "result", "server", "source", "state",
            "status", "version",
        }  # fmt: skip


def test_the_page_shows_the_tables_of_the_code() -> None:
    page = PAGE.read_text()
    assert "| `postgres_lost_commits` |" in page
    assert "| `sluice_appends_total` |" in page
    assert updated(page) == page, "run: python -m gateway.telemetry.reference docs/observability.md"


def test_the_page_names_nothing_that_is_not_there() -> None:
    page = PAGE.read_text()
    settings = {row.name for row in SETTINGS}
    assert set(re.findall(r"SLUICE_[A-Z_]+", page)) <= settings
    named = set(re.findall(r"\bsluice_[a-z_]+", page))
    assert named <= METRICS.keys(), named - METRICS.keys()


def test_the_cost_of_the_metrics_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "ROUNDS", 1)
    cost.main(30)
    assert "an append in a batch of 30: " in capsys.readouterr().out
