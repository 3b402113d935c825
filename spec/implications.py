"""Implied events, and timers: what an event brings with it, or later.

`"implications": [{"condition": test, "emit": {…}}]`; in place of `emit`, `map` emits for each item of a list,
and `schedule` emits later. `$` is the event, `@` its aggregate's state after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spec.errors import Report, below, proposal, shown
from spec.fields import read_fields
from spec.handlers import Constant, ListTemplate, Path, Predicate, Root, Template, paths_of
from spec.identifiers import canonicalize
from spec.predicates import read_predicate
from spec.templates import Scope, read_template

if TYPE_CHECKING:
    from spec.model import AggregateType

IMPLICATIONS_MAX = 50
"""Of one event type: each is looked at at each append."""
DELAY_MS_MIN: Final = 1_000
DELAY_MS_MAX: Final = 10 * 366 * 86_400_000
"""Ten years: longer is a mistake more often than a wish."""

_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"([0-9]{1,9})([smhd])")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt].+")
"""What may be one in RFC 3339."""
_NAME: Final = re.compile(r"\$[a-z_]{1,32}")
_KEYS: Final = frozenset({"condition", "emit", "map", "schedule"})
_EMIT_KEYS: Final = frozenset({"aggregate_type", "id", "event_type", "data"})
_MAP_KEYS: Final = frozenset({"in", "as", "emit"})
_SCHEDULE_KEYS: Final = frozenset({"delay", "delay_ms", "at", "emit", "cancel_on"})
_WATCH_KEYS: Final = frozenset({"aggregate_type", "id", "event_type"})
_ROOTS: Final = ("$data", "$metadata", "$key", "$type")


@dataclass(frozen=True, slots=True)
class Emit:
    """An event to append. `id` is None where the aggregate is a new one."""

    aggregate_type: str
    id: Template | None
    event_type: str
    data: Template
    pointer: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class EmitEach:
    """`emit` for each item of the list that `source` gives, which has the name `name`, with its `$`."""

    source: Template
    name: str
    emit: Emit


@dataclass(frozen=True, slots=True)
class Watch:
    """Events that cancel a timer."""

    aggregate_type: str
    id: Template
    event_type: str
    pointer: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Schedule:
    """`emit`, `delay_ms` after the event, or at the time that `at` gives."""

    delay_ms: int | None
    at: Template | None
    emit: Emit
    cancel_on: tuple[Watch, ...] = ()


@dataclass(frozen=True, slots=True)
class Implication:
    condition: Predicate | None
    what: Emit | EmitEach | Schedule

    @property
    def by_state(self) -> bool:
        """Whether it looks at the state after the event."""
        paths = (*paths_of(self.condition), *paths_of(self.what))
        return any(path.root in (Root.STATE, Root.ITEM) for path in paths)

    @property
    def emit(self) -> Emit:
        return self.what if isinstance(self.what, Emit) else self.what.emit


def read_implications(value: object, pointer: str, scope: Scope, report: Report) -> tuple[Implication, ...]:
    """What is at fault is left out, with faults in `report`."""
    if not isinstance(value, list):
        report.add("wrong_type", pointer, '`implications` is a list of objects: [{"emit": {…}}].')
        return ()
    if len(value) > IMPLICATIONS_MAX:
        report.add("invalid_value", pointer, f"An event type has at most {IMPLICATIONS_MAX} implications.")
        return ()
    read = (_read_one(each, below(pointer, n), scope, report) for n, each in enumerate(value))
    return tuple([each for each in read if each is not None])


def _read_one(value: object, pointer: str, scope: Scope, report: Report) -> Implication | None:
    declared = read_fields(value, pointer, "An implication", _KEYS, (), report)
    kinds = [key for key in ("emit", "map", "schedule") if key in declared]
    if len(kinds) != 1:
        report.add("invalid_value", pointer, "An implication has one of `emit`, `map` and `schedule`.")
        return None
    condition = None
    if "condition" in declared:
        condition = read_predicate(declared["condition"], below(pointer, "condition"), scope, report)
    (kind,) = kinds
    place = below(pointer, kind)
    what: Emit | EmitEach | Schedule | None
    if kind == "emit":
        what = read_emit(declared[kind], place, scope, report)
    elif kind == "map":
        what = _read_map(declared[kind], place, scope, report)
    else:
        what = read_schedule(declared[kind], place, scope, report)
    return None if what is None else Implication(condition, what)


def read_emit(value: object, pointer: str, scope: Scope, report: Report) -> Emit | None:
    emit = read_fields(value, pointer, "`emit`", _EMIT_KEYS, ("aggregate_type", "id", "event_type"), report)
    names = [read_name(emit, key, pointer, report) for key in ("aggregate_type", "event_type")]
    identifier: Template | None = None
    if emit.get("id") != {"mint": True}:
        identifier = _read_id(emit, below(pointer, "id"), scope, report)
    data = read_template(emit.get("data", {}), below(pointer, "data"), scope, report)
    if names[0] is None or names[1] is None or "id" not in emit:
        return None
    return Emit(names[0], identifier, names[1], data, pointer)


def _read_map(value: object, pointer: str, scope: Scope, report: Report) -> EmitEach | None:
    declared = read_fields(value, pointer, "`map`", _MAP_KEYS, ("in", "as", "emit"), report)
    name = declared.get("as")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _ROOTS:
        if "as" in declared:
            why = 'The item has a name like "$item", of a-z and _.'
            report.add("invalid_name", below(pointer, "as"), why)
        return None
    source = read_template(declared.get("in"), below(pointer, "in"), scope, report)
    if "in" in declared and not isinstance(source, Path | ListTemplate):
        why = '`in` is a list, or a path to one, as in "$.data.items".'
        report.add("invalid_value", below(pointer, "in"), why, accepted_before=True)
    emit = _emit_of(declared, pointer, replace(scope, names=scope.names | {name}), report)
    return None if emit is None else EmitEach(source, name, emit)


def _emit_of(declared: Mapping[str, object], pointer: str, scope: Scope, report: Report) -> Emit | None:
    """A missing one has its fault already."""
    return read_emit(declared["emit"], below(pointer, "emit"), scope, report) if "emit" in declared else None


def read_schedule(value: object, pointer: str, scope: Scope, report: Report) -> Schedule | None:
    declared = read_fields(value, pointer, "`schedule`", _SCHEDULE_KEYS, ("emit",), report)
    times = [key for key in ("delay", "delay_ms", "at") if key in declared]
    if len(times) != 1:
        report.add("invalid_value", pointer, "A schedule has one of `delay`, `delay_ms` and `at`.")
    at = delay_ms = None
    for time in times:
        if time == "at":
            at = read_template(declared["at"], below(pointer, "at"), scope, report)
            if not _may_be_a_time(at):
                why = '`at` is a path to a time, as in "$.data.due_at": RFC 3339, or Unix seconds.'
                report.add("invalid_value", below(pointer, "at"), why, accepted_before=True)
        elif (delay_ms := read_delay(declared[time])) is None:
            why = 'A delay is "30s", "5m", "24h" or "7d", or `delay_ms` a number: 1 s to ten years.'
            report.add("invalid_value", below(pointer, time), why)
        elif isinstance(declared[time], str) != (time == "delay"):
            why = '`delay` is a string, as in "30s", and `delay_ms` a number of milliseconds.'
            report.add("wrong_type", below(pointer, time), why, accepted_before=True)
    emit = _emit_of(declared, pointer, scope, report)
    watched = declared.get("cancel_on", [])
    place = below(pointer, "cancel_on")
    if not isinstance(watched, list):
        report.add("wrong_type", place, "`cancel_on` is a list of objects.")
        return None
    read = [_read_watch(each, below(place, n), scope, report) for n, each in enumerate(watched)]
    if emit is None or any(each is None for each in read) or (delay_ms is None and at is None):
        return None
    return Schedule(delay_ms, at, emit, tuple([each for each in read if each is not None]))


def _may_be_a_time(at: Template) -> bool:
    """What a path leads to is seen when it is followed."""
    if not isinstance(at, Constant):
        return isinstance(at, Path)
    if isinstance(at.value, str):
        return _TIME.fullmatch(at.value) is not None
    return isinstance(at.value, int | float) and not isinstance(at.value, bool)


def read_delay(value: object) -> int | None:
    """In milliseconds, of `"24h"` or a number of them; None for what is no delay."""
    if isinstance(value, str) and (found := _DELAY.fullmatch(value)) is not None:
        value = int(found[1]) * _UNITS[found[2]]
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if DELAY_MS_MIN <= value <= DELAY_MS_MAX else None


def _read_watch(value: object, pointer: str, scope: Scope, report: Report) -> Watch | None:
    declared = read_fields(value, pointer, "An event of `cancel_on`", _WATCH_KEYS, _WATCH_KEYS, report)
    names = [read_name(declared, key, pointer, report) for key in ("aggregate_type", "event_type")]
    identifier = _read_id(declared, below(pointer, "id"), scope, report)
    if names[0] is None or names[1] is None:
        return None
    return Watch(names[0], identifier, names[1], pointer)


def _read_id(declared: Mapping[str, object], pointer: str, scope: Scope, report: Report) -> Template:
    """What never gives a string names no aggregate."""
    if "id" not in declared:
        return Constant(None)
    found = read_template(declared["id"], pointer, scope, report)
    text = isinstance(found, Path) or (isinstance(found, Constant) and isinstance(found.value, str))
    if not text:
        why = 'An `id` is an identifier or a path to one; that of a new aggregate is {"mint": true}.'
        report.add("invalid_value", pointer, why, accepted_before=True)
    return found


def read_name(declared: Mapping[str, object], key: str, pointer: str, report: Report) -> str | None:
    value = declared.get(key)
    if key in declared and not isinstance(value, str):
        report.add("wrong_type", below(pointer, key), f"`{key}` is a name.")
    return value if isinstance(value, str) else None


# ---- over the whole spec ----


def check_emits(types: Mapping[str, AggregateType], singletons: Collection[str], report: Report) -> None:
    """What implications name has to be declared, and an id that they give an identifier; and no event may
    imply itself, over others either: only timers may."""
    edges: dict[tuple[str, str], list[Emit]] = {}
    for aggregate_type in types.values():
        for event_type in aggregate_type.events.values():
            for each in event_type.implications:
                check_emit(each.emit, types, singletons, report)
                if isinstance(each.what, Schedule):
                    for watch in each.what.cancel_on:
                        check_names(watch.aggregate_type, watch.event_type, watch.pointer, types, report)
                        _check_id(watch.id, watch.pointer, singletons, report)
                else:
                    edges.setdefault((aggregate_type.name, event_type.name), []).append(each.emit)
    for emit in _closing(edges):
        why = "Events would imply each other without end: only a `schedule` may lead back."
        report.add("implication_cycle", emit.pointer, why)


def check_emit(
    emit: Emit, types: Mapping[str, AggregateType], singletons: Collection[str], report: Report
) -> None:
    check_names(emit.aggregate_type, emit.event_type, emit.pointer, types, report)
    _check_id(emit.id, emit.pointer, singletons, report)
    found = types.get(emit.aggregate_type)
    if found is None or found.mint != "content":
        return
    identifier = emit.id.value if isinstance(emit.id, Constant) else emit.id
    if identifier is None or (isinstance(identifier, str) and not is_overlay(identifier)):
        why = made_by_content(emit.aggregate_type)
        report.add("keyed_by_content", below(emit.pointer, "id"), why, accepted_before=True)


def _check_id(identifier: Template | None, pointer: str, singletons: Collection[str], report: Report) -> None:
    """What a path leads to is seen when it is followed."""
    value = identifier.value if isinstance(identifier, Constant) else None
    if isinstance(value, str) and canonicalize(value, singletons) is None:
        why = f"{shown(value)} is not an identifier; declare it in `singletons`, or write a path."
        report.add("undeclared", below(pointer, "id"), why, accepted_before=True)


def is_overlay(identifier: str) -> bool:
    """Whether it is a stream laid over an aggregate, and not the aggregate itself."""
    return ":" in identifier


def made_by_content(aggregate_type: str) -> str:
    """Why no reaction writes such an aggregate: it says one thing, and is there already or not."""
    return (
        f"The keys of `{aggregate_type}` are made of their content, so only `POST /{aggregate_type}` creates "
        "one; here only its tagged streams, `{key}:{tag}`, can be written."
    )


def check_names(
    aggregate_type: str, event_type: str, pointer: str, types: Mapping[str, AggregateType], report: Report
) -> None:
    found = types.get(aggregate_type)
    if found is None:
        why = f"No aggregate type {shown(aggregate_type)} is declared. {proposal(aggregate_type, types)}"
        report.add("undeclared", below(pointer, "aggregate_type"), why)
    elif event_type not in found.events:
        why = (
            f"`{aggregate_type}` declares no event {shown(event_type)}. {proposal(event_type, found.events)}"
        )
        report.add("undeclared", below(pointer, "event_type"), why)


def _closing(edges: Mapping[tuple[str, str], list[Emit]]) -> Iterator[Emit]:
    """The emits that close a cycle, each once."""
    done: set[tuple[str, str]] = set()
    for start in edges:
        path: list[tuple[tuple[str, str], Iterator[Emit]]] = [(start, iter(edges[start]))]
        while path and start not in done:
            at, left = path[-1]
            emit = next(left, None)
            if emit is None:
                done.add(at)
                path.pop()
                continue
            to = (emit.aggregate_type, emit.event_type)
            if any(to == each for each, _ in path):
                yield emit
            elif to in edges and to not in done:
                path.append((to, iter(edges[to])))
