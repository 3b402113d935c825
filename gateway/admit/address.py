"""What a request names, by the spec: an aggregate type, a key, an event type, an actor, a target.

Owns: the `Address` that a path leads to, and what is refused of names. Must not know: bodies, sockets, Redis,
Postgres.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.errors import Refusal
from spec.errors import nearest
from spec.identifiers import RESERVED_ACTOR_PREFIX, SYSTEM_ACTOR_IDS, Refused, canonicalize, identify
from spec.model import AggregateType, EventType, Spec

RESERVED = "Event types that start with an underscore are the system's own; they can't be posted."
_SYSTEM_ACTORS = (
    f"Actor types that start with {RESERVED_ACTOR_PREFIX} are the gateway's own parts, with the ids "
    f"{', '.join(sorted(SYSTEM_ACTOR_IDS))}; no spec declares one and no client sends one."
)
_NO_TYPE = "The aggregate type is empty or can't be decoded; a spec can't declare it."
_NO_EVENT = "The event type is empty or can't be decoded; a spec can't declare it."
_CLOSED = Refusal("not_committed", "The event will never appear: a deployment closes its type for a moment.")
_UNDECODABLE = "The id is not valid percent-encoded UTF-8, holds control characters, or is `.` or `..`."


class Address(msgspec.Struct, frozen=True, gc=False):
    """What the path names, by the spec. `event_type` is None where the body names the types."""

    aggregate_type: AggregateType
    key: str
    event_type: EventType | None
    path: str  # canonical, for the request digest; without the key where the gateway mints it
    minted: bool = False
    source: tuple[str, str, str] | None = None  # the foreign id that leads to the key


def address(spec: Spec | None, aggregate: str, key: str | None, event: str | None) -> Address | Refusal:
    """What the path leads to. `key` is None, and another name empty, where the path's segment could not be
    decoded; `event` is None where the path has none."""
    if event is not None and event.startswith("_"):
        return Refusal("reserved_event_type", RESERVED, "event_type")
    found = _aggregate_type(spec, aggregate)
    if isinstance(found, Refusal):
        return found
    assert spec is not None
    event_type = None
    if event is not None:
        event_type = found.events.get(event)
        if event_type is None:
            return undeclared_event(event, found, "event_type")
    canonical = canonicalize(key, spec.singletons) if key is not None else None
    if canonical is None:
        return bad_identifier(key, spec, "key")
    path = f"/{aggregate}/{canonical}/{event}" if event is not None else f"/{aggregate}/{canonical}"
    return Address(found, canonical, event_type, path)


def misnamed(spec: Spec | None, aggregate: object, key: object, event: object) -> Refusal | None:
    """The refusal by `address` of names in a body, of which some may be missing or not strings: these are not
    judged here."""
    if isinstance(event, str) and event.startswith("_"):
        return Refusal("reserved_event_type", RESERVED, "event_type")
    found = _aggregate_type(spec, aggregate) if isinstance(aggregate, str) else None
    if isinstance(found, Refusal):
        return found
    if found is not None and isinstance(event, str) and event not in found.events:
        return undeclared_event(event, found, "event_type")
    if spec is not None and isinstance(key, str) and canonicalize(key, spec.singletons) is None:
        return bad_identifier(key, spec, "key")
    return None


def minting_address(
    spec: Spec | None, aggregate: str, mint_key: Callable[[AggregateType], str]
) -> Address | Refusal:
    """The same where the path names no aggregate: a new one is made."""
    found = _aggregate_type(spec, aggregate)
    if isinstance(found, Refusal):
        return found
    return Address(found, mint_key(found), None, f"/{aggregate}", minted=True)


def _aggregate_type(spec: Spec | None, name: str) -> AggregateType | Refusal:
    found = spec.aggregate_types.get(name) if spec is not None else None
    return undeclared_type(spec, name) if found is None else found


def undeclared_type(spec: Spec | None, name: str, path: str = "type", status: int | None = None) -> Refusal:
    """`name` is empty where the path's segment could not be decoded. `status` where the type is named
    elsewhere."""
    if spec is not None and name in spec.closed:
        return _CLOSED
    known = () if spec is None else spec.aggregate_types
    sentence = (
        f"The spec declares no aggregate type {name[:64]!r}{nearest(name, known)}." if name else _NO_TYPE
    )
    if spec is None and name:
        sentence = f"No spec is deployed yet, so there is no aggregate type {name[:64]!r}. Deploy one."
    return Refusal("unknown_aggregate_type", sentence, path, status)


def undeclared_event(
    event: str, aggregate_type: AggregateType, path: str, status: int | None = None
) -> Refusal:
    """`event` is empty where the path's segment could not be decoded. `status` where the event is named in
    the body, not in the path."""
    if event in aggregate_type.closed:
        return _CLOSED
    near = nearest(event, aggregate_type.events)
    sentence = f"The spec declares no event {event[:64]!r} for {aggregate_type.name!r}{near}."
    return Refusal("unknown_event_type", sentence if event else _NO_EVENT, path, status)


def unknown_actor(name: str, spec: Spec, path: str) -> Refusal:
    if name.startswith(RESERVED_ACTOR_PREFIX):
        return Refusal("unknown_actor_type", _SYSTEM_ACTORS, path)
    why = f"The spec's agent_types do not name {name[:64]!r}{nearest(name, spec.agent_types)}."
    return Refusal("unknown_actor_type", why, path)


def unknown_target(name: str, spec: Spec, path: str) -> Refusal:
    why = f"The spec's target_types do not name {name[:64]!r}{nearest(name, spec.target_types)}."
    return Refusal("unknown_target_type", why, path)


def bad_identifier(text: str | None, spec: Spec, path: str) -> Refusal:
    if text is None:
        return Refusal("invalid_identifier", _UNDECODABLE, path)
    verdict = identify(text, spec.singletons)
    reason = verdict.reason if isinstance(verdict, Refused) else "This is not an identifier."
    return Refusal("invalid_identifier", reason, path)
