"""A request to append to several aggregates, judged: (spec, body) to an `Append`, or the first refusal. Pure.

Owns: what such a body means, and the order of its checks, which is that of a batch; its paths begin with
`events[n]`. Must not know: how aliases are found, or how a position of the feed is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast
from weakref import ReferenceType

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.admit.address import bad_identifier, unknown_actor, unknown_target
from gateway.admit.append import (
    EventContext,
    Fault,
    marks_of_events,
    recognized_by,
    schemas_fault,
    sizes_fault,
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
from gateway.appends import ANY_LENGTH, OF_SEVERAL, Append, FeedPlace, Retry, make_append
from gateway.errors import Refusal
from gateway.events import Event, Spread, Stream, revised
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


_NO_ALIASES: Final[Aliases] = {}

_kept: Final[dict[bytes, tuple[ReferenceType[Spec], bytes, Items]]] = {}
"""Items by the text that was sent, with the spec and the salt that they were read by. They do not keep a spec
alive that was replaced."""


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


def judge_ordinary(
    spec: Spec, asked: Asked, body: bytes, minting: EventContext, mint_key: MintKey, place_of: PlaceOf
) -> Several | None:
    """As `judge_several` of a body without aliases; None where something is refused, or may be."""
    read = prove(body, Form.SEVERAL)
    named = None if read is None else named_by(spec, read.sent, _NO_ALIASES)
    if read is None or named is None or not _fits(read, body, minting.event_bytes_max):
        return None
    judged = _judge_read(spec, asked, body, read, named, minting, mint_key, place_of)
    return None if isinstance(judged, Fault) else judged


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
    return _judge_read(spec, asked, body, read, named, minting, mint_key, place_of)


def _judge_read(
    spec: Spec,
    asked: Asked,
    body: bytes,
    read: Read,
    named: Sequence[Named],
    minting: EventContext,
    mint_key: MintKey,
    place_of: PlaceOf,
) -> Several | Fault:
    sent = read.sent
    fault = _values_fault(sent)
    if fault is not None:
        return Fault(fault, None)
    envelope = _envelope(read)
    to = _streams(sent, named, minting.tenant, mint_key)
    if isinstance(to, Refusal):
        return Fault(to, None)
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
    owners = [each.aggregate_type for each in sent.events]
    marks = marks_of_events(types, owners, envelope, minting, single=False)
    if isinstance(marks, Refusal):
        return Fault(marks, retry)
    tags, claimed = marks
    if minting.not_stored is not None:
        return Fault(minting.not_stored, retry)
    events = _made(types, envelope, references, minting)
    own, expected = to.streams, to.lengths
    fresh: tuple[int, ...] = ()
    if to.minted:
        random = [which for which in to.minted if spec.aggregate_types[own[which].aggregate_type].at_random]
        fresh = tuple(sorted(random))
    spread = Spread(own, to.order) if len(own) > 1 else None
    append = make_append(
        own[0], events, expected[0], retry, tags, spread, expected[1:], *claimed, condition, fresh=fresh,
        form=OF_SEVERAL if spread is None else None,
    )  # fmt: skip
    return Several(append, to.minted)


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
    text = bytes(sent.fail_if_events_match)
    items = _items(spec, read, text, minting.salt)
    if isinstance(items, Refusal):
        return items
    if not isinstance(sent.after, str):
        return Condition(items, size_bytes=len(text))
    place = place_of(sent.after)
    if place is None:
        return Refusal("invalid_position", "`after` is not a position in this feed.", "condition.after")
    return Condition(items, place.seq, place.mark, len(text))


def _items(spec: Spec, read: Read, sent: bytes, salt: bytes) -> Items | Refusal:
    """Kept by the text that was sent, where it is short, for one spec and salt each."""
    kept = _kept.get(sent)
    if kept is not None and kept[0]() is spec and kept[1] == salt:
        return kept[2]
    items = read_query(read.query, spec, salt, "condition.fail_if_events_match")
    if isinstance(items, tuple) and len(sent) <= KEPT_QUERY_BYTES_MAX:
        if len(_kept) >= KEPT_QUERIES:
            _kept.clear()
        _kept[sent] = ReferenceType(spec), salt, items
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
        causation, None if extra is None or extra == b"null" else guarded(extra), None,
    )  # fmt: skip


def _values_fault(sent: Sent) -> Refusal | None:
    if not 1 <= len(sent.events) <= EVENTS_MAX:
        sentence = f"`events` must hold 1 to {EVENTS_MAX} events; it holds {len(sent.events)}."
        return Refusal("invalid_field", sentence, "events")
    fault = event_ids_fault([each.event_id for each in sent.events])
    return fault or causation_fault(sent.metadata.causation_id)


class _Streams(Struct, frozen=True, gc=False):
    """Each stream once, in the order of their first events, with the length that is asked for; of each event
    the number of its stream; and which of them are minted."""

    streams: tuple[Stream, ...]
    lengths: tuple[int, ...]
    order: tuple[int, ...]
    minted: frozenset[int]


_NONE_MINTED: Final[frozenset[int]] = frozenset()
_FIRST: Final = (0,)


def _streams(sent: Sent, named: Sequence[Named], tenant: bytes, mint_key: MintKey) -> _Streams | Refusal:
    one, only = sent.events[0].previous_length, named[0].key
    if only is not None and len(named) == 1:  # as mostly
        stream = Stream(tenant, named[0].aggregate_type.name, only)
        return _Streams((stream,), (ANY_LENGTH if one is None else one,), _FIRST, _NONE_MINTED)
    numbers: dict[Stream, int] = {}
    lengths: list[int] = []
    order: list[int] = []
    minted: list[int] = []
    for n, (event, (aggregate_type, _, key)) in enumerate(zip(sent.events, named, strict=True)):
        stream = Stream(tenant, aggregate_type.name, key or mint_key(aggregate_type))
        which = numbers.setdefault(stream, len(lengths))
        order.append(which)
        asked = event.previous_length
        if key is None:
            minted.append(which)
        if which < len(lengths):
            if asked is not None:
                why = "Send `previous_length` only with the first event of an aggregate."
                return Refusal("contradiction", why, f"events[{n}].previous_length")
        elif key is not None:
            lengths.append(ANY_LENGTH if asked is None else asked)
        elif asked in (None, 0):
            lengths.append(0)
        else:
            why = "A new aggregate has 0 events; no other length can be expected."
            return Refusal("invalid_field", why, f"events[{n}].previous_length")
    if len(lengths) > AGGREGATES_MAX:
        why = f"The events are of {len(lengths)} aggregates; one append has at most {AGGREGATES_MAX}."
        return Refusal("invalid_field", why, "events")
    known = frozenset(minted) if minted else _NONE_MINTED
    return _Streams(tuple(numbers), tuple(lengths), tuple(order), known)


_NO_TARGET: Final = (None, None)


class _References(Struct, frozen=True):
    """Canonical ids: the actor's, and of each event the target's type and id."""

    actor_id: str
    targets: tuple[tuple[str | None, str | None], ...]


def _references(spec: Spec, sent: Sent) -> _References | Refusal:
    actor = sent.metadata.actor
    if actor.type not in spec.agent_types:
        return unknown_actor(actor.type, spec, "metadata.actor.type")
    shared = sent.metadata.target
    given = [("metadata.target", shared)] if shared is not None else []
    for n, each in enumerate(sent.events):
        if each.target is not None:
            given.append((f"events[{n}].target", each.target))
    for path, target in given:
        if target.type not in spec.target_types:
            return unknown_target(target.type, spec, f"{path}.type")
    actor_id = canonicalize(actor.id, spec.singletons)
    if actor_id is None:
        return bad_identifier(actor.id, spec, "metadata.actor.id")
    if not given:  # as mostly
        return _References(actor_id, (_NO_TARGET,) * len(sent.events))
    canonical: dict[str, str] = {}
    for path, target in given:
        if target.id not in canonical:
            found = canonicalize(target.id, spec.singletons)
            if found is None:
                return bad_identifier(target.id, spec, f"{path}.id")
            canonical[target.id] = found
    meant = [each.target or shared for each in sent.events]
    named = [_NO_TARGET if each is None else (each.type, canonical[each.id]) for each in meant]
    return _References(actor_id, tuple(named))


def _made(
    types: Sequence[EventType], envelope: Envelope, references: _References, minting: EventContext
) -> tuple[Event, ...]:
    causation = None if envelope.causation_id is None else uuid_bytes(envelope.causation_id)
    events = []
    for event_type, event, target in zip(types, envelope.events, references.targets, strict=True):
        made = Event(
            minting.mint() if event.event_id is None else uuid_bytes(event.event_id),
            event_type.name, envelope.actor_type, references.actor_id, *target,
            minting.correlation_id, causation, minting.spec_rev, minting.now_ms, envelope.extra,
            event.data_raw,
        )  # fmt: skip
        events.append(made if event_type.revision == 1 else revised(made, event_type.revision))
    return tuple(events)
