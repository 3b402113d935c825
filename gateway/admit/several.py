"""A request to append to several aggregates, judged: (spec, body) to an `Append`, or the first refusal. Pure.

Owns: what such a body means, and the order of its checks, which is that of a batch; its paths begin with
`events[n]`. Must not know: how aliases are found, or how a position of the feed is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.admit.append import (
    EventContext,
    Fault,
    bad_identifier,
    claims_of_events,
    recognized_by,
    schemas_fault,
    sizes_fault,
    tags_of_events,
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
from gateway.admit.several_body import (
    KEPT_QUERIES,
    KEPT_QUERY_BYTES_MAX,
    Read,
    Sent,
    SentCondition,
    prove,
    read_proven,
)
from gateway.admit.several_names import Aliases, Named, named_by, names_fault
from gateway.admit.strict_json import Malformed, decode
from gateway.errors import Refusal
from gateway.events import (
    ANY_LENGTH,
    OF_SEVERAL,
    Append,
    Event,
    FeedPlace,
    Retry,
    Spread,
    Stream,
    make_append,
    revised,
)
from gateway.items import Condition, Items
from gateway.stored_extra import guarded
from spec.identifiers import canonicalize
from spec.model import AggregateType, EventType, Spec

AGGREGATES_MAX: Final = 100
"""Of one append: each is a key of the script's call."""

PATH: Final = "/_/append"

MintKey = Callable[[AggregateType], str]
PlaceOf = Callable[[str], FeedPlace | None]
"""Where a position of the feed is, in the tenant's partition; None: nowhere."""


_kept: Final[dict[bytes, tuple[Spec, bytes, Items]]] = {}


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
    read = None if isinstance(asked, Refusal) else prove(body, form)
    named = None if read is None else named_by(spec, read.sent, aliases)
    if read is None or named is None or not _fits(read, body, minting.event_bytes_max):
        exact = _read_exactly(spec, asked, body, minting, aliases, form)
        if isinstance(exact, Fault):
            return exact
        read, named = exact
    assert spec is not None and not isinstance(asked, Refusal)
    sent = read.sent
    fault = _values_fault(sent)
    if fault is not None:
        return Fault(fault, None)
    envelope = _envelope(read)
    streams = [
        Stream(minting.tenant, each.aggregate_type.name, each.key or mint_key(each.aggregate_type))
        for each in named
    ]
    lengths = _lengths(sent, streams)
    if isinstance(lengths, Refusal):
        return Fault(lengths, None)
    retry = recognized_by(minting.tenant, asked, envelope, PATH, body, minted=False)
    condition = _condition(spec, read, minting, place_of)
    if isinstance(condition, Refusal):
        return Fault(condition, retry)
    references = _references(spec, sent)
    if isinstance(references, Refusal):
        return Fault(references, retry)
    types = tuple([each.event_type for each in named])
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
    fresh = tuple(
        [which for which in sorted(minted) if spec.aggregate_types[own[which].aggregate_type].at_random]
    )
    append = make_append(
        own[0], events, expected[0], retry, tags, spread, expected[1:], *claimed, condition, fresh=fresh,
        form=OF_SEVERAL if spread is None else None,
    )  # fmt: skip
    return Several(append, minted)


def _read_exactly(
    spec: Spec | None,
    asked: Asked | Refusal,
    body: bytes,
    minting: EventContext,
    aliases: Aliases,
    form: Form,
) -> tuple[Read, list[Named]] | Fault:
    """As `prove` and `named_by`, of any body: it finds what is refused first, and its words."""
    value = decode(body)
    known = NOTHING_ASKED if isinstance(asked, Refusal) else asked
    fault = names_fault(spec, value, aliases)
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
    read = read_proven(body, value)
    fault = _values_fault(read.sent)
    if fault is not None:
        return Fault(fault, None)
    named = named_by(spec, read.sent, aliases)
    assert named is not None  # or a name was at fault
    return read, named


def _condition(
    spec: Spec, read: Read, minting: EventContext, place_of: PlaceOf
) -> Condition | Refusal | None:
    sent = read.sent.condition
    if not isinstance(sent, SentCondition):
        return None
    items = _items(spec, read, bytes(sent.fail_if_events_match), minting.salt)
    if isinstance(items, Refusal):
        return items
    if not isinstance(sent.after, str):
        return Condition(items)
    place = place_of(sent.after)
    if place is None:
        return Refusal("invalid_position", "`after` is not a position in this feed.", "condition.after")
    return Condition(items, place.seq, place.mark)


def _items(spec: Spec, read: Read, sent: bytes, salt: bytes) -> Items | Refusal:
    """Kept by the text that was sent, where it is short, for one spec and salt each."""
    kept = _kept.get(sent)
    if kept is not None and kept[0] is spec and kept[1] == salt:
        return kept[2]
    items = read_query(read.query, spec, salt, "condition.fail_if_events_match")
    if isinstance(items, tuple) and len(sent) <= KEPT_QUERY_BYTES_MAX:
        if len(_kept) >= KEPT_QUERIES:
            _kept.clear()
        _kept[sent] = spec, salt, items
    return items


def _retry(value: object, body: bytes, asked: Asked, minting: EventContext, form: Form) -> Retry | None:
    """What a request may repeat that the spec of today refuses; None where it names no identity."""
    shaped = not isinstance(value, Malformed) and shape_fault(value, form) is None
    read = read_proven(body, value) if shaped else None
    envelope = None if read is None or _values_fault(read.sent) is not None else _envelope(read)
    retry = recognized_by(minting.tenant, asked, envelope, PATH, body, minted=False)
    return retry if retry.chosen else None


# -- the body


def _fits(read: Read, body: bytes, most: int) -> bool:
    """Whether no data of it is larger."""
    return len(body) <= most or all(len(raw) <= most for raw in read.raws)


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


def _envelope(read: Read) -> Envelope:
    """As of a batch, without targets: what its checks need that look at data."""
    events = [
        EventBody(each.type, data, raw, None if each.event_id is None else each.event_id.lower())
        for each, raw, data in zip(read.sent.events, read.raws, read.datas, strict=True)
    ]
    metadata = read.sent.metadata
    causation = None if metadata.causation_id is None else metadata.causation_id.lower()
    extra = None if metadata.extra is UNSET else bytes(metadata.extra)
    return Envelope(
        tuple(events), metadata.actor.type, metadata.actor.id, None, None, None, False, None,
        causation, None if extra == b"null" else guarded(extra), None,
    )  # fmt: skip


def _values_fault(sent: Sent) -> Refusal | None:
    if not 1 <= len(sent.events) <= EVENTS_MAX:
        sentence = f"`events` must hold 1 to {EVENTS_MAX} events; it holds {len(sent.events)}."
        return Refusal("invalid_field", sentence, "events")
    fault = event_ids_fault([each.event_id for each in sent.events])
    return fault or causation_fault(sent.metadata.causation_id)


def _lengths(sent: Sent, streams: Sequence[Stream]) -> dict[Stream, int] | Refusal:
    """Each stream once, in the order of their first events, with the length that is asked for."""
    lengths: dict[Stream, int] = {}
    for n, (event, stream) in enumerate(zip(sent.events, streams, strict=True)):
        path = f"events[{n}].previous_length"
        if stream in lengths:
            if event.previous_length is not None:
                why = "Send `previous_length` only with the first event of an aggregate."
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


def _references(spec: Spec, sent: Sent) -> _References | Refusal:
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
