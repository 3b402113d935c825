"""The part `projections`: rows over several aggregates, each made by events that say which row they belong
to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from spec.errors import Report, below, proposal, shown
from spec.fields import check_keys
from spec.handlers import EACH, Handler, Path, Root, paths_of
from spec.identifiers import NAME_GRAMMAR, is_name
from spec.joins import Join, read_join
from spec.lists import read_by
from spec.operations import read_handler
from spec.templates import Scope, read_path

if TYPE_CHECKING:
    from spec.model import EventType, Spec

PROJECTIONS_MAX: Final = 100

KeyKind = Literal["identifier", "text"]

_KEYS = frozenset({"on", "join", "by", "key_kind"})
_RULE_KEYS = frozenset({"key", "keys", "do"})
DELETE: Final = "delete"


@dataclass(frozen=True, slots=True)
class Rule:
    """What events of a type do: to the row that `key` names, or, with `several`, to each that it lists. `do`
    None deletes the row."""

    key: Path
    several: bool
    do: Handler | None

    @property
    def sees_aggregate(self) -> bool:
        """Whether it needs `^`, the state of the event's own aggregate."""
        return Root.AGGREGATE in (*(path.root for path in paths_of(self.do or ())), self.key.root)


@dataclass(frozen=True, slots=True)
class Projection:
    """`on` is by aggregate type and event type; or it is a `join`."""

    name: str
    on: Mapping[tuple[str, str], Rule]
    by: tuple[str, ...]
    key_kind: KeyKind
    join: Join | None = None

    @property
    def types(self) -> frozenset[str]:
        """Whose events it folds."""
        if self.join is not None:
            return self.join.types
        return frozenset(aggregate_type for aggregate_type, _ in self.on)


NONE: Mapping[str, Projection] = MappingProxyType({})


def check_projections(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> Mapping[str, Projection]:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "`projections` is an object: a projection by its name.")
        return NONE
    if len(value) > PROJECTIONS_MAX:
        report.add("invalid_value", pointer, f"A spec has at most {PROJECTIONS_MAX} projections.")
    read = {name: _read(name, each, below(pointer, name), spec, report) for name, each in value.items()}
    return MappingProxyType({name: each for name, each in read.items() if each is not None})


def _read(name: str, value: object, pointer: str, spec: Spec, report: Report) -> Projection | None:
    if not is_name(name):
        report.add("invalid_name", pointer, f"{shown(name)} is not a valid name; names are `{NAME_GRAMMAR}`.")
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "A projection is an object with `on`.")
        return None
    check_keys(value, pointer, _KEYS, report)
    if ("on" in value) == ("join" in value):
        why = "A projection needs `on` (what events do to rows) or `join` (what rows are made of)."
        report.add("missing_key", pointer, why)
    kind = value.get("key_kind", "identifier")
    if kind not in ("identifier", "text"):
        report.add("invalid_value", below(pointer, "key_kind"), '`key_kind` is "identifier" or "text".')
    return Projection(
        name,
        _read_on(value["on"], below(pointer, "on"), spec, report) if "on" in value else MappingProxyType({}),
        read_by(value, pointer, report),
        "text" if kind == "text" else "identifier",
        read_join(value["join"], below(pointer, "join"), spec, report) if "join" in value else None,
    )


def _read_on(value: object, pointer: str, spec: Spec, report: Report) -> Mapping[tuple[str, str], Rule]:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, '`on` is an object: a rule by its event, as in "order.was_placed".')
        return MappingProxyType({})
    if not value:
        why = "`on` names no event, so the projection would never have a row."
        report.add("invalid_value", pointer, why, accepted_before=True)
    rules = {}
    for name, each in value.items():
        place = below(pointer, name)
        aggregate_type, _, event_type = name.partition(".")
        declared = _event_type(aggregate_type, event_type, place, spec, report)
        rule = _read_rule(each, place, declared, report)
        if rule is not None:
            rules[aggregate_type, event_type] = rule
    return MappingProxyType(rules)


def _event_type(
    aggregate_type: str, event_type: str, pointer: str, spec: Spec, report: Report
) -> EventType | None:
    declared = spec.aggregate_types.get(aggregate_type)
    if declared is None:
        known = proposal(aggregate_type, spec.aggregate_types)
        why = f"There is no aggregate type {shown(aggregate_type)}. {known}"
        report.add("undeclared", pointer, why)
        return None
    if event_type not in declared.events:
        why = f"`{aggregate_type}` has no event {shown(event_type)}. {proposal(event_type, declared.events)}"
        report.add("undeclared", pointer, why)
        return None
    return declared.events[event_type]


def _read_rule(value: object, pointer: str, of: EventType | None, report: Report) -> Rule | None:
    if not isinstance(value, dict):
        why = 'A rule is an object, as in {"key": "$.data.customer_id", "do": […]}.'
        report.add("wrong_type", pointer, why)
        return None
    check_keys(value, pointer, _RULE_KEYS, report)
    schema = True if of is None else of.schema
    named = [key for key in ("key", "keys") if key in value]
    if len(named) != 1:
        report.add("missing_key", pointer, "A rule needs a `key`, or else `keys`, a path to several.")
    if "do" not in value:
        report.add("missing_key", pointer, 'A rule needs a `do`: operations on the row, or "delete".')
    key = Path(Root.KEY)
    for name in named:
        scope = Scope(schema, None, aggregate=True)
        key = read_path(value[name], below(pointer, name), scope, report)
        if name == "key" and EACH in key.fields:
            report.add("invalid_path", below(pointer, name), "This leads to several keys: say `keys`.")
    do: Handler | None = ()
    if value.get("do") == DELETE:
        do = None
    elif "do" in value:
        scope = Scope(schema, aggregate=True)
        do = read_handler(value["do"], below(pointer, "do"), scope, report)
    return Rule(key, "keys" in value, do)
