"""A request to append, judged: (spec, path, headers, body) to an `Append`, or the first refusal.

Owns: the order of the checks after authorization (the contract's table of refusals), and how an event is
made of what was sent. Must not know: sockets, Redis, Postgres; clock and randomness are arguments.

The checks come in two halves, since the body is read in between: `address` (address.py) for path and spec,
`compose` for body and metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from gateway.admit.address import (
    RESERVED,
    Address,
    bad_identifier,
    undeclared_event,
    unknown_actor,
    unknown_target,
)
from gateway.admit.envelope import Envelope, read_batch, read_single
from gateway.admit.preconditions import Asked, agreed_length
from gateway.admit.strict_json import Malformed, decode
from gateway.appends import (
    ANOTHER_HISTORY,
    ANY_LENGTH,
    OF_BATCH,
    Append,
    Retry,
    identity,
    make_append,
    make_retry,
    request_digest,
    same_append,
)
from gateway.errors import Refusal
from gateway.events import Claim, Event, Stream, Tags, revised
from gateway.names.claims import claims_of
from spec.identifiers import canonicalize
from spec.model import AggregateType, EventType, Spec
from spec.tags import TagFault, tags_of

# What may be refused although an earlier request like it was accepted: the spec has changed, or the tenant
# has come to its bound since.
SPEC_REFUSALS = frozenset(
    (
        "unknown_aggregate_type",
        "unknown_event_type",
        "not_committed",
        "invalid_identifier",
        "unknown_actor_type",
        "unknown_target_type",
        "schema_violation",
        "invalid_tag",
        "invalid_claim",
        "storage_full",
    )
)

SCHEMA_WORK_MAX = 10_000_000
"""Comparisons that the data of one request may take to be checked by their schemas: two seconds at
the worst, beside the event loop. 256 KiB of data take a tenth of it by an ordinary schema."""

_data_raw = attrgetter("data_raw")


class EventContext(msgspec.Struct, frozen=True, gc=False):
    """What a new event takes from outside: pure code has no clock and no randomness."""

    tenant: bytes
    spec_rev: int
    now_ms: int
    correlation_id: bytes
    mint: Callable[[], bytes]  # UUIDv7, 16 bytes
    event_bytes_max: int
    schema_work_max: int = SCHEMA_WORK_MAX
    rewound: int = 0  # the mark that ETags of the tenant's streams carry
    not_stored: Refusal | None = None  # why nothing more of the tenant is stored
    salt: bytes = b""  # the tenant's own, for hashed tags
    importing: bool = False  # whether the gateway itself appends, as its importer


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A refusal after the body was read; `retry` is set where the request named identities, so that a
    committed original can still be answered with its receipt."""

    refusal: Refusal
    retry: Retry | None


def compose(spec: Spec, place: Address, asked: Asked, body: bytes, minting: EventContext) -> Append | Fault:
    """The second half: body, metadata, schema. `place.event_type` tells a single append from a batch."""
    single = place.event_type is not None
    envelope = read_single(body) if single else read_batch(body, parent_allowed=place.path.count("/") == 1)
    if isinstance(envelope, Refusal):
        return Fault(_before_the_envelope(place, envelope, body, minting.event_bytes_max), None)
    return compose_read(spec, place, asked, body, envelope, minting)


def compose_read(
    spec: Spec, place: Address, asked: Asked, body: bytes, envelope: Envelope, minting: EventContext
) -> Append | Fault:
    """The same where the body has been read already."""
    single = place.event_type is not None
    retry = recognized_by(minting.tenant, asked, envelope, place.path, body, minted=place.minted)
    types = (place.event_type,) if place.event_type is not None else _types(place, envelope)
    if isinstance(types, Refusal):
        return Fault(types, retry)
    if len(body) > minting.event_bytes_max:  # or no data in it can be
        refusal = sizes_fault(map(len, map(_data_raw, envelope.events)), minting.event_bytes_max, single)
        if refusal is not None:
            return Fault(refusal, None)
    expected = agreed_length(asked, envelope.previous_length, skip_occ=envelope.skip_occ)
    if place.minted and not isinstance(expected, Refusal):
        expected = _of_a_new_aggregate(expected, asked)
    if isinstance(expected, Refusal):
        return Fault(expected, None)
    if asked.mark is not None and asked.mark != minting.rewound and expected > 0:
        expected = ANOTHER_HISTORY
    ids = _references(spec, envelope, importing=minting.importing)
    if isinstance(ids, Refusal):
        return Fault(ids, retry)
    refusal = schemas_fault(types, envelope, minting.schema_work_max, single=single)
    if refusal is not None:
        return Fault(refusal, retry)
    marks = _UNMARKED
    if not single or types[0].marked:
        owners = (place.aggregate_type.name,) * len(types)
        found = marks_of_events(types, owners, envelope, minting, single=single)
        if isinstance(found, Refusal):
            return Fault(found, retry)
        marks = found
    if minting.not_stored is not None:
        return Fault(minting.not_stored, retry)
    append = _append(place, types, envelope, ids, retry, expected, minting, *marks)
    if asked.skip_unchanged or envelope.skip_unchanged or place.source is not None:
        return _of_record(place, append, skip=asked.skip_unchanged or envelope.skip_unchanged)
    return append


def _of_record(place: Address, append: Append, *, skip: bool) -> Append | Fault:
    if skip and place.aggregate_type.identity is None:
        why = f"{place.aggregate_type.name!r} declares no `identity`, so no record counts as unchanged."
        return Fault(Refusal("invalid_field", why, "if_unchanged"), None)
    return msgspec.structs.replace(append, source=place.source, skip_unchanged=skip)


def creation(place: Address, append: Append, body: bytes) -> Append | None:
    """Where the type says `idempotent_create` and the request names no identity: the same append as the one
    that creates the aggregate, known again by path and body. On a conflict there are events already, and the
    append is one like any other. None: it is that anyway."""
    asked = append.expected in (ANY_LENGTH, 0)
    if not place.aggregate_type.idempotent_create or place.minted or append.chosen or not asked:
        return None
    tenant, digest = append.stream.tenant, request_digest(place.path, body, ANY_LENGTH)
    retry = Retry(tenant, (identity(tenant, "create", digest),), (), digest)
    first = same_append(append, append.stream, 0, retry)
    return msgspec.structs.replace(first, source=append.source, skip_unchanged=append.skip_unchanged)


def before_the_head(spec: Spec | None, aggregate: str, body: bytes, refusal: Refusal) -> Refusal:
    """What answers a batch whose path or headers are refused: the event types stand in its body, but the
    table looks at reserved ones before the spec, and at unknown ones before the key and the headers."""
    names = _names_sent(decode(body))
    if refusal.code == "unknown_aggregate_type" or spec is None:
        return _reserved(names) or refusal
    return _reserved(names) or _unknown(names, spec.aggregate_types[aggregate]) or refusal


def _before_the_envelope(place: Address, refusal: Refusal, body: bytes, most: int) -> Refusal:
    """What answers where the envelope is refused: event types and sizes come first, as far as they can be
    read."""
    value = decode(body)
    single = place.event_type is not None
    names = [] if single else _names_sent(value)
    earlier = _reserved(names) or _unknown(names, place.aggregate_type)
    if earlier is None and not isinstance(value, Malformed):
        earlier = large_data(body, most, single=single)
    return earlier or refusal


def large_data(body: bytes, most: int, *, single: bool) -> Refusal | None:
    """Of a body that is JSON, whatever else it is."""
    return sizes_fault(_sizes_sent(body, single), most, single) if len(body) > most else None


def _names_sent(value: object) -> list[object]:
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        return []
    return [event.get("type") if isinstance(event, dict) else None for event in events]


def _sizes_sent(body: bytes, single: bool) -> list[int]:
    try:
        if single:
            return [len(bytes(_decode_data(body).data))]
        return [len(bytes(event.data)) for event in _decode_datas(body).events]
    except msgspec.MsgspecError:  # not where data should be
        return []


class _Data(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw()


class _Datas(msgspec.Struct):
    events: list[_Data] = []


_decode_data = msgspec.json.Decoder(_Data).decode
_decode_datas = msgspec.json.Decoder(_Datas).decode


def _of_a_new_aggregate(expected: int, asked: Asked) -> int | Refusal:
    """A new aggregate has no events; asking for another length is a contradiction."""
    if expected in (ANY_LENGTH, 0):
        return 0
    path = asked.expected_by or "metadata.previous_length"
    return Refusal("invalid_field", "A new aggregate has 0 events; no other length can be expected.", path)


def retry_of(
    spec: Spec | None,
    tenant: bytes,
    aggregate: str,
    key: str | None,
    event: str | None,
    asked: Asked,
    body: bytes,
) -> Retry | None:
    """What a request would be recognized by whose path the spec of today refuses; None where it names no
    identity of its own."""
    path = f"/{aggregate}"
    if key is not None:
        path += "/" + (canonicalize(key, spec.singletons if spec is not None else ()) or key)
    if event is not None:
        path += f"/{event}"
    envelope = read_single(body) if event is not None else read_batch(body, parent_allowed=key is None)
    read = None if isinstance(envelope, Refusal) else envelope
    retry = recognized_by(tenant, asked, read, path, body, minted=key is None)
    return retry if retry.chosen else None


def recognized_by(
    tenant: bytes, asked: Asked, envelope: Envelope | None, path: str, body: bytes, *, minted: bool
) -> Retry:
    key = asked.idempotency_key
    events = () if envelope is None else envelope.events
    chosen = []
    for each in events:
        if each.event_id is not None:
            chosen.append(uuid_bytes(each.event_id))  # noqa: PERF401 - of one event, a comprehension costs more
    if key is None and not chosen:  # as of most
        return Retry(tenant, (), (), b"")
    digest = request_digest(path, body, _asked_beside_the_body(asked, envelope, minted=minted))
    return make_retry(tenant, None if key is None else key.encode(), tuple(chosen), digest)


def _asked_beside_the_body(asked: Asked, envelope: Envelope | None, *, minted: bool) -> int:
    """What the headers add to the version that the request asks for without them: ANY_LENGTH where they say
    the same once more. A version in the body is among its bytes, and a new aggregate has the length 0."""
    said = None if envelope is None else envelope.previous_length
    if minted:
        said = 0
    if said is not None and agreed_length(asked, said, skip_occ=False) == said:
        return ANY_LENGTH
    return asked.expected


def sizes_fault(sizes: Iterable[int], most: int, single: bool) -> Refusal | None:
    for n, size in enumerate(sizes):
        if size > most:
            sentence = f"The data has {size} bytes; the limit is {most}."
            return Refusal("too_large", sentence, _base(n, single))
    return None


def _types(place: Address, envelope: Envelope) -> tuple[EventType, ...] | Refusal:
    """The types that a batch names, in the order of the checks: reserved names first."""
    declared = place.aggregate_type.events
    names = [event.type or "" for event in envelope.events]
    refusal = _reserved(names) or _unknown(names, place.aggregate_type)
    return tuple([declared[name] for name in names]) if refusal is None else refusal


def _reserved(names: Sequence[object]) -> Refusal | None:
    for n, name in enumerate(names):
        if isinstance(name, str) and name.startswith("_"):
            return Refusal("reserved_event_type", RESERVED, f"events[{n}].type")
    return None


def _unknown(names: Sequence[object], aggregate_type: AggregateType) -> Refusal | None:
    for n, name in enumerate(names):
        if isinstance(name, str) and name not in aggregate_type.events:
            return undeclared_event(name, aggregate_type, f"events[{n}].type", status=422)
    return None


def _references(spec: Spec, envelope: Envelope, *, importing: bool) -> tuple[str, str | None] | Refusal:
    """The canonical ids of actor and target."""
    if not importing and envelope.actor_type not in spec.agent_types:
        return unknown_actor(envelope.actor_type, spec, "metadata.actor.type")
    if envelope.target_type is not None and envelope.target_type not in spec.target_types:
        return unknown_target(envelope.target_type, spec, "metadata.target.type")
    actor_id = envelope.actor_id if importing else canonicalize(envelope.actor_id, spec.singletons)
    if actor_id is None:
        return bad_identifier(envelope.actor_id, spec, "metadata.actor.id")
    if envelope.target_id is None:
        return actor_id, None
    target_id = canonicalize(envelope.target_id, spec.singletons)
    if target_id is None:
        return bad_identifier(envelope.target_id, spec, "metadata.target.id")
    return actor_id, target_id


def is_light(place: Address, body: bytes) -> bool:
    """Whether `compose` takes under 10 ms for this body: then it may run where everything else waits."""
    judge = place.aggregate_type if place.event_type is None else place.event_type
    return judge.is_light(body)


def schemas_fault(
    types: tuple[EventType, ...], envelope: Envelope, work_max: int, *, single: bool
) -> Refusal | None:
    """The first of the data that its schema refuses, or that would take more than `work_max` comparisons
    together with those before."""
    work, one = 0, len(types) == 1
    n = -1  # of one event, `enumerate` and `zip` cost as much as the check
    for event in envelope.events:
        n += 1
        event_type = types[n]
        light = len(event.data_raw) <= event_type.light_bytes or event_type.is_light(event.data_raw)
        if not (one and light):
            work += event_type.compiled.work(event.data_raw)
            if work > work_max:
                return Refusal("schema_violation", too_much_work(event_type, work_max), _base(n, single))
        if event_type.compiled.whole.is_valid(event.data):  # as mostly
            continue
        violation = event_type.compiled.explained(event.data)
        return Refusal("schema_violation", violation.message, violation.under(_base(n, single)))
    return None


def _base(n: int, single: bool) -> str:
    """The path of the data of event `n`."""
    return "data" if single else f"events[{n}].data"


Claimed = tuple[tuple[Claim, ...], tuple[str, ...]]
"""Claims, and the path of the value of each."""

_UNMARKED: Final[tuple[Tags, Claimed]] = (), ((), ())


def marks_of_events(
    types: tuple[EventType, ...],
    owners: Sequence[str],
    envelope: Envelope,
    minting: EventContext,
    *,
    single: bool,
) -> tuple[Tags, Claimed] | Refusal:
    """Their tags and claims; `owners` are the aggregate types of the events."""
    for event_type in types:
        if event_type.marked:
            break
    else:  # as mostly; cheaper than `any` for one event
        return _UNMARKED
    tags = _tags(types, envelope, minting.salt, single=single)
    if isinstance(tags, Refusal):
        return tags
    claimed = _claims(types, owners, envelope, minting, single=single)
    return claimed if isinstance(claimed, Refusal) else (tags, claimed)


def _tags(types: tuple[EventType, ...], envelope: Envelope, salt: bytes, *, single: bool) -> Tags | Refusal:
    tags: list[tuple[str, ...]] = []
    for n, (event_type, event) in enumerate(zip(types, envelope.events, strict=True)):
        found = tags_of(event_type.tags, event.data, salt)
        if isinstance(found, TagFault):
            return Refusal("invalid_tag", found.error, f"{_base(n, single)}{found.path}")
        tags.append(found)
    return tuple(tags) if any(tags) else ()


def _claims(
    types: tuple[EventType, ...],
    owners: Sequence[str],
    envelope: Envelope,
    minting: EventContext,
    *,
    single: bool,
) -> Claimed | Refusal:
    claims: list[Claim] = []
    paths: list[str] = []
    for n, (event_type, owner, event) in enumerate(zip(types, owners, envelope.events, strict=True)):
        base = _base(n, single)
        found = claims_of(event_type, owner, n, event.data, minting.tenant, minting.salt)
        if isinstance(found, TagFault):
            return Refusal("invalid_claim", found.error, f"{base}{found.path}")
        claims += found[0]
        paths += [f"{base}{path}" for path in found[1]]
    return tuple(claims), tuple(paths)


def too_much_work(event_type: EventType, work_max: int) -> str:
    return (
        f"Checking this against the schema of {event_type.name} could take over {work_max} comparisons in "
        f"one request, up to {event_type.compiled.weight} for each value. Send fewer values at once, or "
        "deploy a schema with fewer alternatives."
    )


def _append(
    place: Address,
    types: tuple[EventType, ...],
    envelope: Envelope,
    ids: tuple[str, str | None],
    retry: Retry,
    expected: int,
    minting: EventContext,
    tags: Tags,
    claimed: Claimed,
) -> Append:
    actor_id, target_id = ids
    causation_id = None if envelope.causation_id is None else uuid_bytes(envelope.causation_id)
    events: list[Event] = []
    for event in envelope.events:
        event_type = types[len(events)]
        events.append(
            Event(
                # In the order of the fields: a dozen names cost as much as the rest.
                minting.mint() if event.event_id is None else uuid_bytes(event.event_id),
                event_type.name,
                envelope.actor_type,
                actor_id,
                envelope.target_type,
                target_id,
                minting.correlation_id,
                causation_id,
                minting.spec_rev,
                minting.now_ms,
                envelope.extra,
                event.data_raw,
            )
        )
        if event_type.revision != 1:
            events[-1] = revised(events[-1], event_type.revision)
    stream = Stream(minting.tenant, place.aggregate_type.name, place.key)
    claims, paths = claimed
    fresh = (0,) if place.minted and place.aggregate_type.at_random else ()
    form = OF_BATCH if place.event_type is None and len(events) == 1 else None
    return make_append(
        stream, tuple(events), expected, retry, tags, claims=claims, claim_paths=paths, fresh=fresh, form=form
    )


def uuid_bytes(uuid: str) -> bytes:
    return bytes.fromhex(uuid.replace("-", ""))
