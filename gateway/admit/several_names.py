"""What the events of an append to several aggregates name: types and keys, judged before anything else, as
far as they can be read. Pure.

Owns: the order of these checks. Must not know: how aliases are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.admit.address import RESERVED, bad_identifier, undeclared_event, undeclared_type
from gateway.admit.envelope import EVENTS_MAX
from gateway.admit.several_body import Sent
from gateway.admit.strict_json import decode
from gateway.errors import Refusal
from spec.identifiers import canonicalize
from spec.model import AggregateType, EventType, Spec

Aliases = Mapping[tuple[str, str], str | Refusal]
"""(aggregate type, alias with its sigil) → the key that it names, or why it names none."""


class Named(NamedTuple):
    """What the spec has of an event: `key` is canonical, None where a new aggregate is made."""

    aggregate_type: AggregateType
    event_type: EventType
    key: str | None


def names_sent(body: bytes) -> list[tuple[str, str]]:
    """Of each event that has both, its aggregate type and key, as far as they can be read."""
    value = decode(body)
    return [
        (event["aggregate_type"], event["key"])
        for _, event in _events_sent(value)
        if isinstance(event.get("aggregate_type"), str) and isinstance(event.get("key"), str)
    ]


def may_name_aliases(body: bytes) -> bool:
    """Whether a string in it may begin with the sigil. An "@" within one, as in an e-mail address, tells
    nothing, and the body need not be read for it."""
    return b'"@' in body or b'"\\u0040' in body


def first_type(body: bytes) -> str:
    """The aggregate type that the first event names; empty where none can be read."""
    events = _events_sent(decode(body))
    name = events[0][1].get("aggregate_type") if events else None
    return name if isinstance(name, str) else ""


def _events_sent(value: object) -> list[tuple[int, dict[str, Any]]]:
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        return []
    return [(n, event) for n, event in enumerate(events[:EVENTS_MAX]) if isinstance(event, dict)]


def names_fault(spec: Spec | None, value: object, aliases: Aliases) -> Refusal | None:
    """The first refusal of the names in a body's events, in the order of the contract: reserved types,
    unknown aggregate types, unknown event types, keys, keys that content makes."""
    events = _events_sent(value)
    for n, event in events:
        name = event.get("type")
        if isinstance(name, str) and name.startswith("_"):
            return Refusal("reserved_event_type", RESERVED, f"events[{n}].type")
    declared = {} if spec is None else spec.aggregate_types
    for n, event in events:
        name = event.get("aggregate_type")
        if isinstance(name, str) and name not in declared:
            return undeclared_type(spec, name, f"events[{n}].aggregate_type")
    for n, event in events:
        aggregate_type, name = event.get("aggregate_type"), event.get("type")
        if isinstance(aggregate_type, str) and isinstance(name, str):
            of = declared[aggregate_type]
            if name not in of.events:
                return undeclared_event(name, of, f"events[{n}].type", status=422)
    for n, event in events:
        refusal = None if spec is None else _key_fault(spec, event, aliases)
        if refusal is not None:
            return replace(refusal, path=f"events[{n}].key")
    return next(filter(None, [_content_fault(declared, n, event) for n, event in events]), None)


def _content_fault(declared: Mapping[str, AggregateType], n: int, event: dict[str, Any]) -> Refusal | None:
    """An aggregate that is made of its content says one thing, and is there already or not: so it is written
    by an append of its own. What is laid over it has streams of their own, which any append may have."""
    name, key = event.get("aggregate_type"), event.get("key")
    if not isinstance(name, str) or declared[name].mint != "content":
        return None
    if isinstance(key, str) and ":" in key:
        return None
    why = f"Aggregates of {name!r} are made of their content, each by itself: POST /{{type}} makes them."
    return Refusal("invalid_field", why, f"events[{n}].aggregate_type")


def _key_fault(spec: Spec, event: dict[str, Any], aliases: Aliases) -> Refusal | None:
    key, aggregate_type = event.get("key"), event.get("aggregate_type")
    if not isinstance(key, str):
        return None
    named = aliases.get((aggregate_type, key)) if isinstance(aggregate_type, str) else None
    if named is not None:
        return named if isinstance(named, Refusal) else None
    return bad_identifier(key, spec, "key") if canonicalize(key, spec.singletons) is None else None


def named_by(spec: Spec | None, sent: Sent, aliases: Aliases) -> list[Named] | None:
    """What each event names; None where some name is at fault."""
    if spec is None or len(sent.events) > EVENTS_MAX:
        return None
    named = []
    for each in sent.events:
        declared = spec.aggregate_types.get(each.aggregate_type)
        event_type = None if declared is None else declared.events.get(each.type)
        if declared is None or event_type is None or each.type.startswith("_"):
            return None
        key = None
        if each.key is not None:
            found = aliases.get((each.aggregate_type, each.key)) or canonicalize(each.key, spec.singletons)
            if not isinstance(found, str):
                return None
            key = found
        if declared.mint == "content" and (each.key is None or ":" not in each.key):
            return None
        named.append(Named(declared, event_type, key))
    return named
