"""A request to append to several aggregates, judged: (spec, body) to an `Append`, or the first refusal. Pure.

Owns: what such a body means, and the order of its checks, which is that of a batch; its paths begin with
`events[n]`. Must not know: how aliases are found, or how a position of the feed is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.admit.append import (
    RESERVED,
    EventContext,
    Fault,
    bad_identifier,
    claims_of_events,
    recognized_by,
    schemas_fault,
    sizes_fault,
    tags_of_events,
    undeclared_event,
    undeclared_type,
    unknown_actor,
    unknown_target,
    uuid_bytes,
)
from gateway.admit.envelope import (
    EVENTS_MAX,
    Envelope,
    EventBody,
    causation_fault,
    event_ids_fault,
)
from gateway.admit.envelope_shape import Form, shape_fault
from gateway.admit.items import read_query
from gateway.admit.preconditions import NOTHING_ASKED, Asked
from gateway.admit.strict_json import Malformed, decode
from gateway.errors import Refusal
from gateway.events import ANY_LENGTH, Append, Event, FeedPlace, Retry, Spread, Stream, make_append, revised
from gateway.items import Condition
from spec.identifiers import canonicalize
from spec.model import AggregateType, EventType, Spec

AGGREGATES_MAX: Final = 100
"""Of one append: each is a key of the script's call."""

PATH: Final = "/_/append"

MintKey = Callable[[AggregateType], str]
Aliases = Mapping[tuple[str, str], str | Refusal]
"""(aggregate type, alias with its sigil) → the key that it names, or why it names none."""

PlaceOf = Callable[[str], FeedPlace | None]
"""Where a position of the feed is, in the tenant's partition; None: nowhere."""


class _Ref(Struct, gc=False):
    type: str
    id: str


class _Event(Struct, gc=False):
    aggregate_type: str
    type: str
    data: Raw
    key: str | None = None
    previous_length: int | None = None
    event_id: str | None = None
    target: _Ref | None = None


class _Metadata(Struct, gc=False):
    actor: _Ref
    target: _Ref | None = None
    causation_id: str | None = None
    extra: Raw | UnsetType = UNSET


class _Body(Struct, gc=False):
    """Of which the shape was checked before."""

    events: list[_Event]
    metadata: _Metadata
    idempotency_key: str | None = None


class Several(Struct, frozen=True, gc=False):
    """What is to be appended; `minted` are the streams among its own whose key the gateway made."""

    append: Append
    minted: frozenset[int]


def with_sources(append: Append, sources: Mapping[int, tuple[str, str, str]]) -> Append:
    """An append whose events are records of foreign ids, by their numbers."""
    if not sources:
        return append
    named = tuple([sources.get(n) for n in range(len(append.events))])
    return msgspec.structs.replace(append, sources=named)


_decode_body = msgspec.json.Decoder(_Body).decode
_target = attrgetter("target")


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


def judge_several(
    spec: Spec | None,
    asked: Asked | Refusal,
    body: bytes,
    minting: EventContext,
    mint_key: MintKey,
    aliases: Aliases,
    place_of: PlaceOf,
    form: Form = Form.SEVERAL,
) -> Several | Fault:
    """`asked` is what the headers ask for, or which of them is refused."""
    value = decode(body)
    known = NOTHING_ASKED if isinstance(asked, Refusal) else asked
    fault = _names_fault(spec, value, aliases)
    if fault is not None:
        return Fault(fault, _retry(value, body, known, minting, form))
    if isinstance(asked, Refusal):
        return Fault(asked, None)
    if isinstance(value, Malformed):
        return Fault(Refusal("invalid_json", value.reason), None)
    shape = shape_fault(value, form)
    large = _large_data(body, minting.event_bytes_max)
    if large is not None or shape is not None:
        return Fault(large or cast(Refusal, shape), None)
    sent = _decode_body(body)
    fault = _values_fault(sent)
    if fault is not None:
        return Fault(fault, None)
    assert spec is not None and isinstance(value, dict)  # without a spec, the name of an event is at fault
    envelope = _envelope(value, sent)
    streams = _streams(spec, sent, minting.tenant, mint_key, aliases)
    lengths = _lengths(sent, streams)
    if isinstance(lengths, Refusal):
        return Fault(lengths, None)
    retry = recognized_by(minting.tenant, asked, envelope, PATH, body, minted=False)
    condition = _condition(spec, value.get("condition"), minting, place_of)
    if isinstance(condition, Refusal):
        return Fault(condition, retry)
    references = _references(spec, sent)
    if isinstance(references, Refusal):
        return Fault(references, retry)
    types = tuple([spec.aggregate_types[each.aggregate_type].events[each.type] for each in sent.events])
    refusal = schemas_fault(types, envelope, minting.schema_work_max, single=False)
    if refusal is not None:
        return Fault(refusal, retry)
    tags = tags_of_events(types, envelope, minting.salt, single=False)
    if isinstance(tags, Refusal):
        return Fault(tags, retry)
    owners = [each.aggregate_type for each in sent.events]
    claimed = claims_of_events(types, owners, envelope, minting, single=False)
    if isinstance(claimed, Refusal):
        return Fault(claimed, retry)
    if minting.storage_full is not None:
        return Fault(minting.storage_full, retry)
    events = _made(types, envelope, references, minting)
    own = tuple(lengths)
    minted = frozenset([own.index(stream) for stream, each in zip(streams, sent.events, strict=True)
                        if each.key is None])  # fmt: skip
    expected = tuple(lengths.values())
    spread = None
    if len(own) > 1:
        number = {stream: n for n, stream in enumerate(own)}
        spread = Spread(own, tuple([number[stream] for stream in streams]))
    append = make_append(
        own[0], events, expected[0], retry, tags, spread, expected[1:], *claimed, condition=condition
    )
    return Several(append, minted)


def _condition(
    spec: Spec, sent: object, minting: EventContext, place_of: PlaceOf
) -> Condition | Refusal | None:
    if not isinstance(sent, dict):
        return None
    path = "condition.fail_if_events_match"
    items = read_query(sent["fail_if_events_match"], spec, minting.salt, path)
    if isinstance(items, Refusal):
        return items
    if sent.get("after") is None:
        return Condition(items)
    place = place_of(sent["after"])
    if place is None:
        return Refusal("invalid_position", "`after` is not a position in this feed.", "condition.after")
    return Condition(items, place.seq, place.mark)


# -- names: looked at before anything else, as far as they can be read


def _events_sent(value: object) -> list[tuple[int, dict[str, Any]]]:
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        return []
    return [(n, event) for n, event in enumerate(events[:EVENTS_MAX]) if isinstance(event, dict)]


def _names_fault(spec: Spec | None, value: object, aliases: Aliases) -> Refusal | None:
    events = _events_sent(value)
    for n, event in events:
        name = event.get("type")
        if isinstance(name, str) and name.startswith("_"):
            return Refusal("reserved_event_type", RESERVED, f"events[{n}].type")
    declared = {} if spec is None else spec.aggregate_types
    for n, event in events:
        name = event.get("aggregate_type")
        if isinstance(name, str) and name not in declared:
            return replace(undeclared_type(spec, name), path=f"events[{n}].aggregate_type")
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


def _retry(value: object, body: bytes, asked: Asked, minting: EventContext, form: Form) -> Retry | None:
    """What a request may repeat that the spec of today refuses; None where it names no identity."""
    shaped = not isinstance(value, Malformed) and shape_fault(value, form) is None
    sent = _decode_body(body) if shaped else None
    envelope = None if sent is None or _values_fault(sent) is not None else _envelope(value, sent)
    retry = recognized_by(minting.tenant, asked, envelope, PATH, body, minted=False)
    return retry if retry.chosen else None


# -- the body


def _large_data(body: bytes, most: int) -> Refusal | None:
    if len(body) <= most:  # so are its data
        return None
    try:
        events = msgspec.json.decode(body, type=_Datas).events
    except msgspec.MsgspecError:  # not where data should be
        return None
    return sizes_fault([len(bytes(event.data)) for event in events], most, single=False)


class _Data(Struct):
    data: Raw = Raw()


class _Datas(Struct):
    events: list[_Data] = []


def _envelope(value: object, sent: _Body) -> Envelope:
    """As of a batch, without targets: what its checks need that look at data."""
    datas = [event["data"] for event in cast("dict[str, list[dict[str, object]]]", value)["events"]]
    events = [
        EventBody(each.type, data, bytes(each.data), None if each.event_id is None else each.event_id.lower())
        for each, data in zip(sent.events, datas, strict=True)
    ]
    metadata = sent.metadata
    causation = None if metadata.causation_id is None else metadata.causation_id.lower()
    extra = None if metadata.extra is UNSET else bytes(metadata.extra)
    return Envelope(
        tuple(events), metadata.actor.type, metadata.actor.id, None, None, None, False, None,
        causation, None if extra == b"null" else extra, None,
    )  # fmt: skip


def _values_fault(sent: _Body) -> Refusal | None:
    if not 1 <= len(sent.events) <= EVENTS_MAX:
        sentence = f"`events` must hold 1 to {EVENTS_MAX} events; it holds {len(sent.events)}."
        return Refusal("invalid_field", sentence, "events")
    fault = event_ids_fault([each.event_id for each in sent.events])
    return fault or causation_fault(sent.metadata.causation_id)


def _streams(
    spec: Spec, sent: _Body, tenant: bytes, mint_key: MintKey, aliases: Aliases
) -> tuple[Stream, ...]:
    """Of each event. Without a key, each is a new aggregate's."""
    streams = []
    for each in sent.events:
        if each.key is None:
            key: str | Refusal | None = mint_key(spec.aggregate_types[each.aggregate_type])
        else:
            key = aliases.get((each.aggregate_type, each.key)) or canonicalize(each.key, spec.singletons)
        assert isinstance(key, str)
        streams.append(Stream(tenant, each.aggregate_type, key))
    return tuple(streams)


def _lengths(sent: _Body, streams: Sequence[Stream]) -> dict[Stream, int] | Refusal:
    """Each stream once, in the order of their first events, with the length that is asked for."""
    lengths: dict[Stream, int] = {}
    for n, (event, stream) in enumerate(zip(sent.events, streams, strict=True)):
        path = f"events[{n}].previous_length"
        if stream in lengths:
            if event.previous_length is not None:
                why = "An earlier event is of the same aggregate: only the first of them says its length."
                return Refusal("contradiction", why, path)
            continue
        lengths[stream] = ANY_LENGTH if event.previous_length is None else event.previous_length
        if event.key is None:
            if event.previous_length not in (None, 0):
                why = "A new aggregate has 0 events; no other length can be expected."
                return Refusal("invalid_field", why, path)
            lengths[stream] = 0
    if len(lengths) > AGGREGATES_MAX:
        why = f"The events are of {len(lengths)} aggregates; one append has at most {AGGREGATES_MAX}."
        return Refusal("invalid_field", why, "events")
    return lengths


class _References(Struct, frozen=True):
    """Canonical ids: the actor's, and of each event the target's type and id."""

    actor_id: str
    targets: tuple[tuple[str | None, str | None], ...]


def _references(spec: Spec, sent: _Body) -> _References | Refusal:
    actor = sent.metadata.actor
    if actor.type not in spec.agent_types:
        return unknown_actor(actor.type, spec, "metadata.actor.type")
    targets = [(f"events[{n}].target", each.target) for n, each in enumerate(sent.events)]
    given = [("metadata.target", sent.metadata.target), *targets]
    for path, target in given:
        if target is not None and target.type not in spec.target_types:
            return unknown_target(target.type, spec, f"{path}.type")
    canonical: dict[str, str] = {}
    for path, ref in [("metadata.actor", actor), *given]:
        if ref is not None and ref.id not in canonical:
            found = canonicalize(ref.id, spec.singletons)
            if found is None:
                return bad_identifier(ref.id, spec, f"{path}.id")
            canonical[ref.id] = found
    meant = [each.target or sent.metadata.target for each in sent.events]
    named = [(None, None) if each is None else (each.type, canonical[each.id]) for each in meant]
    return _References(canonical[actor.id], tuple(named))


def _made(
    types: Sequence[EventType], envelope: Envelope, references: _References, minting: EventContext
) -> tuple[Event, ...]:
    causation = None if envelope.causation_id is None else uuid_bytes(envelope.causation_id)
    return tuple(
        [
            revised(
                Event(
                    minting.mint() if event.event_id is None else uuid_bytes(event.event_id),
                    event_type.name, envelope.actor_type, references.actor_id, *target,
                    minting.correlation_id, causation, minting.spec_rev, minting.now_ms, envelope.extra,
                    event.data_raw,
                ),
                event_type.revision,
            )
            for event_type, event, target in zip(types, envelope.events, references.targets, strict=True)
        ]
    )  # fmt: skip
