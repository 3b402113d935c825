"""Sagas: steps over several aggregates, each of which waits for what the one before brought about.

`"sagas": {name: {"trigger": {…}, "steps": [{"name", "emit", "await", "fail_on", "compensate", …}]}}`, also
under `modules`. `$` is the trigger, `$prev` the last event that was awaited, `$steps.reserve` that step's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from spec.errors import Report, below, proposal, shown
from spec.fields import read_fields, refuse_null
from spec.handlers import Predicate
from spec.identifiers import NAME_GRAMMAR, is_name
from spec.implications import DELAY_MS_MAX, Emit, check_emit, check_names, read_emit, read_name
from spec.predicates import read_predicate
from spec.templates import Scope

if TYPE_CHECKING:
    from spec.model import Spec

SAGAS_MAX = 100
STEPS_MAX = 50
"""Of one saga: its state, with the event of each step, is in each event of its stream."""
TIMEOUT_MS_MIN = 100

SAGA_TYPE = "_saga"
"""The aggregate type of its stream."""

NONE: Mapping[str, Saga] = MappingProxyType({})

_SAGA_KEYS = frozenset({"trigger", "steps"})
_TRIGGER_KEYS = frozenset({"aggregate_type", "event_type"})
_STEP_KEYS = frozenset({"name", "condition", "emit", "await", "fail_on", "compensate", "timeout_ms"})
_AWAIT_KEYS = frozenset({"aggregate_type", "event_types"})
NAMES = frozenset({"$prev", "$steps"})


@dataclass(frozen=True, slots=True)
class Await:
    """Events of one aggregate type, of the emitted event's aggregate or with its correlation."""

    aggregate_type: str
    event_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    condition: Predicate | None
    emit: Emit
    awaited: Await | None
    fail_on: frozenset[str]
    compensate: Emit | None
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Saga:
    name: str
    trigger: tuple[str, str]
    steps: tuple[Step, ...]


def check_sagas(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> Mapping[str, Saga]:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "`sagas` is an object: a saga by its name.")
        return NONE
    if len(value) > SAGAS_MAX:
        report.add("invalid_value", pointer, f"A spec has at most {SAGAS_MAX} sagas.")
        return NONE
    read = (
        (name, _read_saga(name, each, below(pointer, name), spec, report)) for name, each in value.items()
    )
    return MappingProxyType({name: saga for name, saga in read if saga is not None})


def check_modules(
    value: object, pointer: str, environ: Mapping[str, str], spec: Spec, report: Report
) -> Mapping[str, Saga]:
    """`{"sagas": {…}}`, as the service behind the identifiers document has it."""
    modules = read_fields(value, pointer, "`modules`", ("sagas",), (), report)
    if "sagas" not in modules:
        return NONE
    return check_sagas(modules["sagas"], below(pointer, "sagas"), environ, spec, report)


def _read_saga(name: str, value: object, pointer: str, spec: Spec, report: Report) -> Saga | None:
    if not is_name(name):
        report.add("invalid_name", pointer, f"{shown(name)} is not a valid name; names are `{NAME_GRAMMAR}`.")
    declared = read_fields(value, pointer, "A saga", _SAGA_KEYS, _SAGA_KEYS, report)
    if not declared.keys() >= _SAGA_KEYS:
        return None
    place = below(pointer, "trigger")
    trigger = read_fields(declared["trigger"], place, "`trigger`", _TRIGGER_KEYS, _TRIGGER_KEYS, report)
    of, event_type = [read_name(trigger, key, place, report) for key in ("aggregate_type", "event_type")]
    if of is None or event_type is None:
        of = event_type = ""
    else:
        check_names(of, event_type, place, spec.aggregate_types, report)
    found = spec.aggregate_types.get(of)
    found_type = None if found is None else found.events.get(event_type)
    scope = Scope(True if found_type is None else found_type.schema, at=None, names=NAMES)
    listed, place = declared["steps"], below(pointer, "steps")
    if not isinstance(listed, list) or not 1 <= len(listed) <= STEPS_MAX:
        report.add("invalid_value", place, f"`steps` is a list of 1 to {STEPS_MAX} steps.")
        return None
    before = Scope(scope.schema, at=None, empty=NAMES)  # the first step: nothing was awaited yet
    after = replace(scope, steps=_awaiting(listed))
    steps = [
        _read_step(
            each,
            below(place, n),
            replace(scope, steps=_awaiting(listed[:n])) if n else before,
            after,
            spec,
            report,
        )
        for n, each in enumerate(listed)
    ]
    names = [None if each is None else each.name for each in steps]
    for n, each in enumerate(names):
        if each is not None and each in names[:n]:
            why = f"Two steps are named {shown(each)}; rename one."
            report.add("invalid_name", below(place, n, "name"), why)
    if any(each is None for each in steps):
        return None
    return Saga(name, (of, event_type), tuple([each for each in steps if each is not None]))


def _awaiting(steps: list[object]) -> frozenset[str]:
    """The names of those that await an event."""
    awaiting = [each for each in steps if isinstance(each, dict) and "await" in each]
    return frozenset([each["name"] for each in awaiting if isinstance(each.get("name"), str)])


def _read_step(
    value: object, pointer: str, scope: Scope, after: Scope, spec: Spec, report: Report
) -> Step | None:
    """`after`: what its compensation may look at."""
    declared = read_fields(value, pointer, "A step", _STEP_KEYS, ("name", "emit"), report)
    name = declared.get("name")
    named = isinstance(name, str) and is_name(name)
    if "name" in declared and not named:
        report.add("invalid_name", below(pointer, "name"), f"A step's name is `{NAME_GRAMMAR}`.")
    condition = None
    if "condition" in declared:
        condition = read_predicate(declared["condition"], below(pointer, "condition"), scope, report)
    emit = None
    if "emit" in declared:
        emit = read_emit(declared["emit"], below(pointer, "emit"), scope, report)
    compensate = None
    if "compensate" in declared:
        compensate = read_emit(declared["compensate"], below(pointer, "compensate"), after, report)
    for each in (emit, compensate):
        if each is not None:
            check_emit(each, spec.aggregate_types, spec.singletons, report)
    awaited = None
    if "await" in declared:
        awaited = _read_await(declared["await"], below(pointer, "await"), spec, report)
    fail_on = declared.get("fail_on", [])
    if not isinstance(fail_on, list):
        report.add("wrong_type", below(pointer, "fail_on"), "`fail_on` lists events that are awaited.")
        fail_on = []
    for n, each in enumerate(fail_on) if awaited is not None or "await" not in declared else ():
        if awaited is None or each not in awaited.event_types:
            what = shown(each) if isinstance(each, str) else "This"
            why = f"{what} is not among the `event_types` that this step awaits."
            report.add("invalid_value", below(pointer, "fail_on", n), why)
    refuse_null(declared, ("timeout_ms",), pointer, report)
    timeout_ms = declared.get("timeout_ms")
    if timeout_ms is not None and not (
        isinstance(timeout_ms, int) and not isinstance(timeout_ms, bool)
        and TIMEOUT_MS_MIN <= timeout_ms <= DELAY_MS_MAX
    ):  # fmt: skip
        why = f"`timeout_ms` is a whole number from {TIMEOUT_MS_MIN} to {DELAY_MS_MAX}."
        report.add("invalid_value", below(pointer, "timeout_ms"), why)
        timeout_ms = None
    if emit is None or not named:
        return None
    events = frozenset([each for each in fail_on if isinstance(each, str)])
    return Step(str(name), condition, emit, awaited, events, compensate, timeout_ms)


def _read_await(value: object, pointer: str, spec: Spec, report: Report) -> Await | None:
    declared = read_fields(value, pointer, "`await`", _AWAIT_KEYS, _AWAIT_KEYS, report)
    of, listed = read_name(declared, "aggregate_type", pointer, report), declared.get("event_types")
    place = below(pointer, "event_types")
    if "event_types" in declared and (not isinstance(listed, list) or not listed):
        report.add("wrong_type", place, "`event_types` is a list of one or more names of events.")
    if of is None or not isinstance(listed, list) or not listed:
        return None
    found = spec.aggregate_types.get(of)
    if found is None:
        why = f"No aggregate type {shown(of)} is declared. {proposal(of, spec.aggregate_types)}"
        report.add("undeclared", below(pointer, "aggregate_type"), why)
    for n, each in enumerate(listed):
        if not isinstance(each, str):
            report.add("wrong_type", below(place, n), "A name must be a string.")
        elif found is not None and each not in found.events:
            why = f"`{of}` declares no event {shown(each)}. {proposal(each, found.events)}"
            report.add("undeclared", below(place, n), why)
    return Await(of, tuple([each for each in listed if isinstance(each, str)]))
