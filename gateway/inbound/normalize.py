"""A delivery as an append, by the spec: where it goes, and what its event's data are. Pure.

What is the same for all deliveries of a source is worked out once, as its `Plan`.
What can't be normalized is a `Quarantine`: a value that says why, in the words of the refusals of an append.
Clock and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

import msgspec

from gateway.admit.append import EventContext, too_much_work
from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, Append, make_append
from gateway.events import Claim, Event, Recorded, Stream, revised
from gateway.inbound.deliveries import Delivery
from gateway.inbound.mapping import at, data_of, encode
from gateway.inbound.request import as_text
from gateway.names.aliases import Alias, Malformed, alias_in
from gateway.names.claims import claims_of
from gateway.names.content import ALGORITHM, Identity, context_of, grade
from gateway.names.source_ids import SourceId, Unusable, read
from gateway.state.budget import Misfit
from gateway.state.predicates import Where
from gateway.state.templates import View
from gateway.state.values import Node
from spec.errors import nearest, shown
from spec.identifiers import GLOBAL, canonicalize
from spec.model import EventType, Spec
from spec.tags import TagFault, tags_of
from spec.violations import AT_ONCE_WORK_MAX, WEIGHT_MIN, is_light, values_in
from spec.webhooks.sources import Path, Source

_NOTHING_CLAIMED: Final[tuple[list[Claim], list[str]]] = ([], [])

_CONTEXTS_MAX: Final = 1_024
"""Contexts remembered: most sources have one stream."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a delivery can't become an event by this spec; it is kept for a person."""

    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """The key is that of a foreign system's id, which the source map knows."""

    source: str
    aggregate_type: str
    source_id: str
    scope: str | None = None
    """None: the aggregate type."""

    @property
    def names(self) -> tuple[str, str, str]:
        return self.source, self.aggregate_type if self.scope is None else self.scope, self.source_id

    @property
    def sighted(self) -> SourceId | Unusable:
        return read(*self.names)


@dataclass(frozen=True, slots=True)
class Named:
    """The key is that of the aggregate of this type that has this alias."""

    aggregate_type: str
    alias: Alias


class Record(msgspec.Struct, frozen=True, gc=False):
    """What a delivery is one more of: `before` is the `extra` of the event that was made of the one before,
    by which it is graded; None where there is none."""

    source_id: str
    before: bytes | None
    scope: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """What a spec says of all deliveries of a source. `key` and `event_type` are None where each delivery
    tells its own."""

    spec: Spec
    source: Source
    key: str | Quarantine | None
    event_type: EventType | Quarantine | None
    actor: Quarantine | None
    """Why there can be no actor."""
    records: bool = False
    """Whether its type declares records."""


def plan_of(spec: Spec, source: Source) -> Plan:
    """What is the same for all deliveries of a source; what the spec does not allow is a Quarantine in it."""
    target = source.target
    key: str | Quarantine | None = None
    event_type: EventType | Quarantine | None = None
    actor: Quarantine | None = None
    if target.aggregate_type not in spec.aggregate_types:
        near = nearest(target.aggregate_type, spec.aggregate_types)
        why = f"The spec declares no aggregate type {target.aggregate_type!r}{near}."
        key = Quarantine("unknown_aggregate_type", why)
    else:
        if target.source_id is None and not isinstance(target.key, Path):
            key = _canonical(spec, target.key)
        if isinstance(target.event, str):
            event_type = _declared(spec, source, target.event)
    if source.actor_type not in spec.agent_types or canonicalize(source.actor_id, spec.singletons) is None:
        why = f"The actor {source.actor_type}/{source.actor_id} is not declared."
        actor = Quarantine("unknown_actor_type", why)
    declared = spec.aggregate_types.get(target.aggregate_type)
    return Plan(spec, source, key, event_type, actor, declared is not None and declared.identity is not None)


def are_light(plan: Plan, texts: Sequence[bytes]) -> bool:
    """Whether reading these texts, and checking what becomes of them, takes under 10 ms."""
    declared = plan.spec.aggregate_types.get(plan.source.target.aggregate_type)
    weight = WEIGHT_MIN if declared is None else declared.weight
    if len(texts) == 1:
        return is_light(texts[0], weight)
    return sum(map(values_in, texts)) * weight <= AT_ONCE_WORK_MAX


def place(plan: Plan, delivery: Delivery, headers: dict[str, str]) -> str | Foreign | Named | Quarantine:
    """Whose stream it goes to: a canonical key, or what leads to one."""
    if plan.key is not None:
        return plan.key
    source = plan.source
    target = source.target
    if target.source_id is not None:
        found = as_text(at(target.source_id, source, delivery, headers))
        if found is None:
            return Quarantine(
                "no_source_id", "What `to.source_id` names is neither a string nor a whole number here."
            )
        scope = None
        if target.scope is not None:
            scope = as_text(at(target.scope, source, delivery, headers))
            if scope is None:
                why = "What `to.scope` names is neither a string nor a whole number here."
                return Quarantine("no_source_id", why)
        return Foreign(source.name, target.aggregate_type, found, scope)
    assert isinstance(target.key, Path)
    key = as_text(at(target.key, source, delivery, headers))
    if key is None:
        return Quarantine("invalid_identifier", "`to.id` did not resolve to a string.")
    return _aliased(plan.spec, target.aggregate_type, key) or _canonical(plan.spec, key)


def _aliased(spec: Spec, aggregate_type: str, text: str) -> Named | Quarantine | None:
    """What an alias names; None where the text is no alias."""
    alias = alias_in(text, spec, aggregate_type)
    if isinstance(alias, Malformed):
        return Quarantine("invalid_identifier", alias.reason)
    return None if alias is None else Named(aggregate_type, alias)


def _canonical(spec: Spec, key: str | None) -> str | Quarantine:
    canonical = canonicalize(key or "", spec.singletons)
    if canonical is None:
        return Quarantine(
            "invalid_identifier", f"{shown(key or '')} is not an identifier of any of the four kinds."
        )
    return canonical


def ignored(plan: Plan, found: Sequence[Delivery], headers: dict[str, str]) -> list[bool]:
    """Of each delivery, whether `to.when` is not true of it, or `to.types` lacks its provider's name."""
    return [not _is_taken(plan.source, each, headers) for each in found]


def _is_taken(source: Source, delivery: Delivery, headers: dict[str, str]) -> bool:
    target = source.target
    if target.types is not None and _event_name(source, delivery, headers) is None:
        return False
    if target.when is None:
        return True
    roots: dict[str, Node] = {
        "$body": msgspec.Raw(delivery.raw),
        "$headers": {name: msgspec.Raw(encode(value)) for name, value in headers.items()},
        "$delivery_id": msgspec.Raw(encode(delivery.id)),
        "$source": msgspec.Raw(encode(source.name)),
    }
    try:
        return Where(View(_NO_EVENT, None, roots)).true(target.when)
    except Misfit:  # too long to be compared: for the steps behind this one
        return True


_NO_EVENT: Final = cast(Recorded, None)
"""No path of a test of deliveries leads into an event (spec/webhooks/filters.py)."""


def _event_name(source: Source, delivery: Delivery, headers: dict[str, str]) -> object:
    """The event's type as the delivery tells it, None where it does not."""
    target = source.target
    if target.types is None:
        assert isinstance(target.event, Path)
        return at(target.event, source, delivery, headers)
    parts = [at(each, source, delivery, headers) for each in target.type_at]
    texts = [each for each in parts if isinstance(each, str)]
    return target.types.get(".".join(texts)) if len(texts) == len(parts) else None


def compose(
    plan: Plan,
    delivery: Delivery,
    headers: dict[str, str],
    key: str,
    minting: EventContext,
    claimed: str | None = None,
    record: Record | None = None,
) -> Append | Quarantine:
    """The append of one event. `claimed` is the delivery id that it claims, where that is another one.
    `record` is there where a source id leads to the stream."""
    source, event_type = plan.source, plan.event_type
    if event_type is None:
        event_type = _declared(plan.spec, source, _event_name(source, delivery, headers))
    if isinstance(event_type, Quarantine):
        return event_type
    if plan.actor is not None:
        return plan.actor
    raw, value = data_of(source, delivery, headers)
    if not event_type.is_light(raw) and event_type.compiled.work(raw) > minting.schema_work_max:
        return Quarantine("schema_violation", f"data: {too_much_work(event_type, minting.schema_work_max)}")
    violation = event_type.violation(value)
    if violation is not None:
        return Quarantine("schema_violation", f"{violation.under('data')}: {violation.message}")
    tags = tags_of(event_type.tags, value, minting.salt) if event_type.tags else ()
    if isinstance(tags, TagFault):
        return Quarantine("invalid_tag", f"data{tags.path}: {tags.error}")
    declared: tuple[list[Claim], list[str]] | TagFault = _NOTHING_CLAIMED
    if event_type.claims or event_type.releases:
        declared = claims_of(event_type, source.target.aggregate_type, 0, value, minting.tenant, minting.salt)
    if isinstance(declared, TagFault):
        return Quarantine("invalid_claim", f"data{declared.path}: {declared.error}")
    claims, paths = declared
    event = Event(
        minting.mint(),
        event_type.name,
        source.actor_type,
        source.actor_id,
        None,
        None,
        minting.correlation_id,
        None,
        minting.spec_rev,
        minting.now_ms,
        encode(_Extra(_said(source, delivery, event_type, key, record))),
        raw,
    )
    stream = Stream(minting.tenant, source.target.aggregate_type, key)
    known = delivery if claimed is None else msgspec.structs.replace(delivery, id=claimed)
    must_exist = source.target.must_exist and key not in plan.spec.singletons and key != GLOBAL
    expected = AT_LEAST_ONE if must_exist else ANY_LENGTH
    retry = known.retry(minting.tenant, source.name)
    event = revised(event, event_type.revision)
    at = tuple([f"data{path}" for path in paths]) if paths else ()
    append = make_append(
        stream, (event,), expected, retry, (tags,) if tags else (), claims=tuple(claims), claim_paths=at
    )
    if not source.target.skip_unchanged:
        return append
    return msgspec.structs.replace(append, skip_unchanged=True)


class _Said(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an event tells of its delivery. The source id and the grade only where a source id leads to the
    stream, the scope where the spec says which one it is. The first three fields stay where they are: what
    begins with them is looked for (`begins_with`)."""

    source: str
    source_id: str | msgspec.UnsetType = msgspec.UNSET
    scope: str | msgspec.UnsetType = msgspec.UNSET
    delivery_id: str
    by_digest: bool
    content: str
    context: str
    record: str
    algorithm: int
    grade: str | msgspec.UnsetType = msgspec.UNSET


class _Extra(msgspec.Struct, frozen=True, gc=False):
    webhook: _Said


def _said(
    source: Source, delivery: Delivery, event_type: EventType, key: str, record: Record | None
) -> _Said:
    """With what the delivery says, and in which context, as hashes."""
    context = _context(source.name, event_type.name, source.target.aggregate_type, key)
    found = Identity(delivery.content, context)
    graded: str | msgspec.UnsetType = msgspec.UNSET
    source_id: str | msgspec.UnsetType = msgspec.UNSET
    scope: str | msgspec.UnsetType = msgspec.UNSET
    if record is not None:
        source_id, scope = record.source_id, msgspec.UNSET if record.scope is None else record.scope
        graded = grade(found, None if record.before is None else _identity_of(record.before))
    return _Said(
        source=source.name,
        source_id=source_id,
        scope=scope,
        delivery_id=delivery.id,
        by_digest=delivery.by_digest,
        content=found.content,
        context=found.context,
        record=found.record,
        algorithm=ALGORITHM,
        grade=graded,
    )


@lru_cache(_CONTEXTS_MAX)
def _context(source: str, event_type: str, aggregate_type: str, key: str) -> str:
    return context_of(source, event_type, {"aggregate_type": aggregate_type, "key": key})


def begins_with(record: Foreign) -> bytes:
    """How the `extra` of each event begins that was made of a delivery of this source id."""
    scope = b"" if record.scope is None else b'"scope":%b,' % encode(record.scope)
    names = (encode(record.source), encode(record.source_id), scope)
    return b'{"webhook":{"source":%b,"source_id":%b,%b"' % names


def former_begins_with(source: str) -> bytes:
    """The same as written by releases that named no source id: whichever it was."""
    return b'{"webhook":{"source":%b,"delivery_id":' % encode(source)


def _identity_of(extra: bytes) -> Identity | None:
    """What an earlier event of a webhook says of itself."""
    try:
        said = _decode_extra(extra).webhook
    except msgspec.MsgspecError:  # written by a client
        return None
    return Identity(said.content, said.context) if said.algorithm == ALGORITHM else None


_decode_extra: Final = msgspec.json.Decoder(_Extra).decode


def _declared(spec: Spec, source: Source, name: object) -> EventType | Quarantine:
    declared = spec.aggregate_types[source.target.aggregate_type].events
    found = declared.get(name) if isinstance(name, str) else None
    if found is None:
        what = shown(name) if isinstance(name, str) else "of that name"
        near = nearest(name, declared) if isinstance(name, str) else ""
        why = f"The spec declares no event {what} for {source.target.aggregate_type!r}{near}."
        return Quarantine("unknown_event_type", why)
    return found
