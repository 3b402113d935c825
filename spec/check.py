"""The rules of a spec: from a clean JSON value to a `Spec`, with every fault in a `Report`.

Each function checks one part, adds what is wrong with it, and returns what could be read all the same: the
caller throws the result away if there was any fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from spec.claims import check_claims, read_claims, read_releases
from spec.errors import Report, below, shown
from spec.fields import check_keys
from spec.identifiers import GLOBAL, NAME_GRAMMAR, RESERVED_ACTOR_PREFIX, is_name, singleton_fault
from spec.identity import read_identity
from spec.implications import Implication, check_emits, read_implications
from spec.lists import check_list
from spec.model import DEFAULT_HANDLER, AggregateType, EventType, Mint, Spec
from spec.operations import read_handler
from spec.parts import PARTS
from spec.revisions import read_revision
from spec.rules import Rule, read_rules
from spec.schemas import any_value, compile_schema
from spec.tags import read_tags
from spec.templates import Scope

RESERVED_EVENT_TYPES = frozenset({"events", "length", "aliases", "state", "children", "snapshot"})
"""An aggregate's own paths: `/order/<id>/events` can't be an event type too."""

_SPEC_REQUIRED = ("agent_types", "aggregate_types")
_EDITORS = "$schema"
"""By this key an editor finds schema.json; it means nothing else."""
_SPEC_KEYS = frozenset({*_SPEC_REQUIRED, "singletons", "target_types", _EDITORS, *PARTS})
_AGGREGATE_KEYS = frozenset({"aliases", "events", "idempotent_create", "identity", "list", "mint"})
_EVENT_KEYS = frozenset(
    {"claims", "handler", "implications", "releases", "revision", "rules", "schema", "tags", "upcast"}
)

Declared = TypeVar("Declared")
NameFault = tuple[str, str] | None
"""Code and sentence of what is wrong with a name."""


def check(document: object, environ: Mapping[str, str], report: Report) -> Spec:
    """`document` is the spec, bare or as `{"spec": {…}}`. Pointers are into it as given."""
    if isinstance(document, dict) and "spec" in document:
        check_keys(document, "", frozenset({"spec", _EDITORS}), report)
        _check_editors(document, "", report)
        return _check_spec(document["spec"], "/spec", environ, report)
    return _check_spec(document, "", environ, report)


def _check_spec(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> Spec:
    spec = _object(value, pointer, "A spec", report)
    check_keys(spec, pointer, _SPEC_KEYS, report, ("retention",))
    _check_editors(spec, pointer, report)
    for key in _SPEC_REQUIRED if spec is value else ():
        if key not in spec:
            report.add("missing_key", pointer, f"A spec needs `{key}`; it may be empty.")
    aggregate_types = _each(spec, "aggregate_types", pointer, _check_aggregate_type, report)
    agent_types = _names(spec, "agent_types", pointer, _agent_type_fault, report)
    target_types = _names(spec, "target_types", pointer, _name_fault, report)
    singletons = _names(spec, "singletons", pointer, _singleton_fault, report)
    check_emits(aggregate_types, singletons, report)
    declared = Spec(
        aggregate_types, frozenset(agent_types), frozenset(target_types), frozenset(singletons), singletons
    )
    parts: dict[str, Any] = {
        key: check_part(spec[key], below(pointer, key), environ, declared, report)
        for key, check_part in PARTS.items()
        if key in spec
    }
    if "modules" in parts:  # an older place of sagas
        older, sagas = parts.pop("modules"), parts.get("sagas", {})
        for name in older.keys() & sagas.keys():
            place, why = below(pointer, "modules", "sagas", name), "`sagas` declares one of this name, too."
            report.add("duplicate_name", place, why, accepted_before=True)
        parts["sagas"] = MappingProxyType({**older, **sagas})
    return replace(declared, **{key: part for key, part in parts.items() if part is not None})


def _check_aggregate_type(name: str, value: object, pointer: str, report: Report) -> AggregateType:
    _add_name_fault(_name_fault(name), pointer, report)
    declared = _object(value, pointer, "An aggregate type", report)
    check_keys(declared, pointer, _AGGREGATE_KEYS, report)
    mint = declared.get("mint", "uuid")
    if mint not in ("uuid", "humane", "content"):
        report.add("invalid_value", below(pointer, "mint"), '`mint` is "uuid", "humane" or "content".')
    identity = None
    if "identity" in declared:
        identity = read_identity(declared["identity"], below(pointer, "identity"), report)
    elif mint == "content":
        why = '`"mint": "content"` needs `identity`, which declares the content.'
        report.add("missing_key", pointer, why)
    if declared is value and "events" not in declared:
        report.add("missing_key", pointer, "An aggregate type needs `events`; an empty object is fine.")
    events = _each(declared, "events", pointer, _check_event_type, report)
    check_claims(events, below(pointer, "events"), report)
    known_again = _flag(declared, "idempotent_create", pointer, report)
    listed = check_list(declared["list"], below(pointer, "list"), report) if "list" in declared else None
    kind: Mint = "content" if mint == "content" else "humane" if mint == "humane" else "uuid"
    told = _flag(declared, "aliases", pointer, report)
    return AggregateType(name, kind, events, known_again, listed, identity, told)


def _flag(declared: dict[str, object], key: str, pointer: str, report: Report) -> bool:
    value = declared.get(key, False)
    if not isinstance(value, bool):
        report.add("wrong_type", below(pointer, key), f"`{key}` is true or false.")
    return value is True


def _check_event_type(name: str, value: object, pointer: str, report: Report) -> EventType:
    _add_name_fault(_event_type_fault(name), pointer, report)
    declared = _object(value, pointer, "An event type", report)
    check_keys(declared, pointer, _EVENT_KEYS, report, ("personal",))
    compiled = None
    if "schema" in declared:
        compiled = compile_schema(declared["schema"], below(pointer, "schema"), report)
    elif declared is value:
        why = 'An event type needs a `schema`; {"type": "object"} takes any object.'
        report.add("missing_key", pointer, why)
    compiled = compiled or any_value()
    handler = DEFAULT_HANDLER
    if "handler" in declared:
        scope = Scope(compiled.schema)
        handler = read_handler(declared["handler"], below(pointer, "handler"), scope, report)
    tags = read_tags(declared.get("tags", []), below(pointer, "tags"), compiled.schema, report)
    rules: tuple[Rule, ...] = ()
    if "rules" in declared:
        rules = read_rules(declared["rules"], below(pointer, "rules"), Scope(compiled.schema), report)
    revision, upcasts = read_revision(declared, pointer, report)
    claims = read_claims(declared.get("claims", {}), below(pointer, "claims"), compiled.schema, report)
    releases = read_releases(declared.get("releases", []), below(pointer, "releases"), report)
    implications: tuple[Implication, ...] = ()
    if "implications" in declared:
        place, scope = below(pointer, "implications"), Scope(compiled.schema)
        implications = read_implications(declared["implications"], place, scope, report)
    return EventType(
        name,
        compiled.schema,
        handler,
        compiled,
        tags,
        rules,
        revision,
        upcasts,
        claims,
        releases,
        implications,
    )


def _object(value: object, pointer: str, what: str, report: Report) -> dict[str, object]:
    """`value` itself, or an empty object, with a fault, if it is no object."""
    if isinstance(value, dict):
        return value
    report.add("wrong_type", pointer, f"{what} must be an object.")
    return {}


def _check_editors(value: dict[str, object], pointer: str, report: Report) -> None:
    if not isinstance(value.get(_EDITORS, ""), str):
        why = f"`{_EDITORS}` is a string, the address of schema.json."
        report.add("wrong_type", below(pointer, _EDITORS), why)


def _each(
    parent: dict[str, object],
    key: str,
    pointer: str,
    check_one: Callable[[str, object, str, Report], Declared],
    report: Report,
) -> Mapping[str, Declared]:
    """What `check_one` makes of each member of the object at `key`; nothing where there is none."""
    pointer = below(pointer, key)
    members = _object(parent.get(key, {}), pointer, f"`{key}`", report)
    return MappingProxyType(
        {name: check_one(name, value, below(pointer, name), report) for name, value in members.items()}
    )


def _names(
    parent: dict[str, object],
    key: str,
    pointer: str,
    fault_of: Callable[[str], NameFault],
    report: Report,
) -> tuple[str, ...]:
    """The list of distinct names at `key`; empty where there is none."""
    pointer = below(pointer, key)
    listed = parent.get(key, [])
    if not isinstance(listed, list):
        report.add("wrong_type", pointer, f"`{key}` must be a list of names.")
        return ()
    names: dict[str, None] = {}
    for index, name in enumerate(listed):
        place = below(pointer, index)
        if not isinstance(name, str):
            report.add("wrong_type", place, "A name must be a string.")
        elif name in names:
            report.add("duplicate_name", place, f"{shown(name)} is declared above already; remove one.")
        else:
            _add_name_fault(fault_of(name), place, report)
            names[name] = None
    return tuple(names)


def _add_name_fault(fault: NameFault, pointer: str, report: Report) -> None:
    if fault is not None:
        report.add(fault[0], pointer, fault[1])


def _name_fault(name: str) -> NameFault:
    if is_name(name):
        return None
    return "invalid_name", f"{shown(name)} is not a valid name; names are `{NAME_GRAMMAR}`."


def _event_type_fault(name: str) -> NameFault:
    if name.startswith("_"):
        return "reserved_name", "Event types that start with _ are the system's own; remove the underscore."
    if name in RESERVED_EVENT_TYPES:
        why = f"`{name}` is a path of every aggregate; choose a name such as `was_placed`."
        return "reserved_name", why
    return _name_fault(name)


def _agent_type_fault(name: str) -> NameFault:
    if name.startswith(RESERVED_ACTOR_PREFIX):
        why = (
            f"Agent types that start with {RESERVED_ACTOR_PREFIX} are the gateway's own; choose another name."
        )
        return "reserved_name", why
    return _name_fault(name)


def _singleton_fault(name: str) -> NameFault:
    why = singleton_fault(name)
    if why is None:
        return None
    if name == GLOBAL:
        return "reserved_name", why
    return ("ambiguous_name" if is_name(name) else "invalid_name"), why
