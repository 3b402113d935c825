"""The body of an append: bytes to an `Envelope` of legal fields, or the first thing wrong with it.

Owns: the fields of an append's body and what their values may be; the bytes of `data` as they were sent.
Must not know: the spec (declared types, identifiers, schemas) and the headers.

A body is refused first as a text (`invalid_json`), then for its shape (`envelope_shape`), then for a value
(`invalid_field`): the events in their order, then `metadata` in the order of the contract's table.

Two ways, one answer: a legal body is read in C by the structs below; what they and the proof of `strict_json`
do not let through is read again, slower, which finds the words for a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.admit.envelope_shape import PREVIOUS_LENGTH_MAX, Form, shape_fault
from gateway.admit.strict_json import (
    DEPTH_MAX,
    FAST_FAILURES,
    Malformed,
    crowded,
    decode_exactly,
    is_shallow,
    is_strict,
    keeps_all,
    may_nest,
)
from gateway.errors import Refusal
from gateway.stored_extra import guarded

SKIP: Final = "skip"
"""What `if_unchanged` asks for: nothing is written for a record that is the one before."""

EVENTS_MAX: Final = 1000
"""Events of one batch: about one commit's worth of rows, so that all or nothing stays one statement."""


class EventBody(Struct, frozen=True, gc=False):
    """One event as sent. `type` is None where the path names it; `event_id` is the client's own, if any,
    wherever the body had it."""

    type: str | None
    data: object
    data_raw: bytes
    event_id: str | None


class Envelope(Struct, frozen=True, gc=False):
    """A whole body. UUIDs are in lower case; `event_id` is what `metadata` had (its one event has it too);
    `extra` holds the bytes of the object as sent; `parent` is the name beside `events`, `source` what
    stands there in place of a key. `skip_unchanged`: `"if_unchanged": "skip"`."""

    events: tuple[EventBody, ...]
    actor_type: str
    actor_id: str
    target_type: str | None
    target_id: str | None
    previous_length: int | None
    skip_occ: bool
    event_id: str | None
    causation_id: str | None
    extra: bytes | None
    parent: str | None
    source: object = None
    skip_unchanged: bool = False


def read_single(body: bytes) -> Envelope | Refusal:
    """`{"data", "metadata"}`: one event, whose type the path names. Never raises."""
    read = _prove_single(body)
    if read is None:
        value = _read_exactly(body, Form.SINGLE)
        if isinstance(value, Refusal):
            return value
        read = _decode_single(body), value["data"]
    sent, data = read
    metadata = sent.metadata
    if sent.if_unchanged is UNSET and metadata == _Metadata(metadata.actor):  # and nothing else, as mostly
        actor, events = metadata.actor, (EventBody(None, data, bytes(sent.data), None),)
        return Envelope(events, actor.type, actor.id, None, None, None, False, None, None, None, None)
    if (fault := _metadata_fault(metadata)) is not None:
        return fault
    event_id = None if metadata.event_id is UNSET else _lower(metadata.event_id)
    event = EventBody(None, data, bytes(sent.data), event_id)
    if sent.if_unchanged is UNSET:
        return _envelope((event,), metadata, None)
    if (fault := _unchanged_fault(sent.if_unchanged)) is not None:
        return fault
    return _envelope((event,), metadata, None, skip_unchanged=sent.if_unchanged == SKIP)


def read_batch(
    body: bytes, events_max: int = EVENTS_MAX, *, parent_allowed: bool = False
) -> Envelope | Refusal:
    """`{"events": [{"type", "data", "event_id"?}, …], "metadata"}`, and a string `parent` where that is
    allowed. Never raises."""
    read = _prove_batch(body, parent_allowed)
    if read is None:
        value = _read_exactly(body, Form.MINTING_BATCH if parent_allowed else Form.BATCH)
        if isinstance(value, Refusal):
            return value
        sent = _decode_batch(body)
        datas = [event["data"] for event in cast("list[dict[str, object]]", value["events"])]
        read = sent, [bytes(event.data) for event in sent.events], datas
    sent, raws, datas = read
    metadata = sent.metadata
    fault = _events_fault(sent.events, events_max) or _metadata_fault(metadata) or _event_id_clash(sent)
    if fault is not None:
        return fault
    events = [
        EventBody(event.type, data, raw, None if event.event_id is UNSET else _lower(event.event_id))
        for event, raw, data in zip(sent.events, raws, datas, strict=True)
    ]
    if isinstance(metadata.event_id, str):
        events = [msgspec.structs.replace(events[0], event_id=_lower(metadata.event_id))]
    if (fault := _unchanged_fault(sent.if_unchanged)) is not None:
        return fault
    parent, source = sent.parent if isinstance(sent.parent, str) else None, sent.source
    if parent is not None and source not in (UNSET, None):
        why = "A `source` names one aggregate, so it cannot make a new child. Leave one of the two out."
        return Refusal("invalid_field", why, "source")
    found = None if source is UNSET else source
    return _envelope(tuple(events), metadata, parent, found, skip_unchanged=sent.if_unchanged == SKIP)


# ---- the fast way: a body is proven strict and well-shaped, or nothing is said about it ----


class _Ref(Struct, gc=False, forbid_unknown_fields=True):
    type: str
    id: str


class _Metadata(Struct, gc=False, forbid_unknown_fields=True):
    actor: _Ref
    target: _Ref | UnsetType | None = UNSET
    previous_length: Annotated[int, Meta(ge=0, le=PREVIOUS_LENGTH_MAX)] | UnsetType | None = UNSET
    skip_occ: bool | UnsetType | None = UNSET
    event_id: str | UnsetType | None = UNSET
    causation_id: str | UnsetType | None = UNSET
    extra: Raw | UnsetType = UNSET


class _Single(Struct, gc=False, forbid_unknown_fields=True):
    data: Raw
    metadata: _Metadata
    if_unchanged: str | UnsetType | None = UNSET


class _Event(Struct, gc=False, forbid_unknown_fields=True):
    type: str
    data: Raw
    event_id: str | UnsetType | None = UNSET


class _Batch(Struct, gc=False, forbid_unknown_fields=True):
    events: list[_Event]
    metadata: _Metadata
    parent: str | UnsetType | None = UNSET
    source: object = UNSET
    if_unchanged: str | UnsetType | None = UNSET


_decode_single = msgspec.json.Decoder(_Single).decode
_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_extra = msgspec.json.Decoder(dict[str, object] | None).decode
_decode = msgspec.json.Decoder(object).decode
_encode = msgspec.json.Encoder().encode


def _prove_single(body: bytes) -> tuple[_Single, object] | None:
    """The body and its decoded data."""
    if crowded(body):
        return None
    try:
        sent = _decode_single(body)
        if sent.if_unchanged is not UNSET:
            return None
        data = _decode(sent.data)
        colons = 2 + _encode((data, sent.metadata)).count(b":")
        if sent.metadata.extra is not UNSET:
            colons += _colons_hidden(sent.metadata.extra)
        if is_strict(body, colons, data, DEPTH_MAX - 1):
            return sent, data
    except FAST_FAILURES:
        pass
    return None


class Shared(Struct, frozen=True, gc=False):
    """The `metadata` that many bodies have in common, proven legal; `colons` of it written compactly."""

    metadata: _Metadata
    colons: int


def prove_metadata(sent: bytes) -> Shared | None:
    """None where it is not certainly legal. That no key stands in it twice is for the caller to prove, by
    counting colons as `keeps_all` does. Never raises."""
    try:
        metadata = _decode_metadata(sent)
        colons = _encode(metadata).count(b":")
        if metadata.extra is not UNSET:
            colons += _colons_hidden(metadata.extra)
    except FAST_FAILURES:
        return None
    return None if _metadata_fault(metadata) is not None else Shared(metadata, colons)


def single_of(data: object, data_raw: bytes, shared: Shared) -> Envelope:
    """What `read_single` makes of a body of these two."""
    event = EventBody(None, data, data_raw, _lower(shared.metadata.event_id))
    return _envelope((event,), shared.metadata, None)


def _prove_batch(body: bytes, parent_allowed: bool) -> tuple[_Batch, list[bytes], list[object]] | None:
    """The body and the data of its events, as sent and decoded."""
    if crowded(body):
        return None
    try:
        sent = _decode_batch(body)
        if sent.parent is not UNSET and not parent_allowed:
            return None
        if sent.source is not UNSET or sent.if_unchanged is not UNSET:
            return None
        raws = [bytes(event.data) for event in sent.events]
        datas = list(map(_decode, raws))
        types = [event.type for event in sent.events]
        ids = [event.event_id for event in sent.events if event.event_id is not UNSET]
        parents = [] if sent.parent is UNSET else [sent.parent]
        keys = 2 + 2 * len(types) + len(ids) + len(parents)
        colons = keys + _encode((datas, types, ids, sent.metadata, parents)).count(b":")
        if sent.metadata.extra is not UNSET:
            colons += _colons_hidden(sent.metadata.extra)
        # A bound for all of many events would say nothing.
        shallow = max(map(may_nest, raws), default=0) <= DEPTH_MAX - 3 or is_shallow(datas, DEPTH_MAX - 2)
        if shallow and keeps_all(body, colons):
            return sent, raws, datas
    except FAST_FAILURES:
        pass
    return None


def _colons_hidden(extra: Raw) -> int:
    """What to add to the colons of a text that repeats `extra` as sent, to have those of the decoded one.

    Raises msgspec.ValidationError if `extra` is no object or too deep.
    """
    sent = bytes(extra)
    value = _decode_extra(sent)
    if not is_shallow(value, DEPTH_MAX - 2):
        raise msgspec.ValidationError
    return _encode(value).count(b":") - sent.count(b":")


# ---- the exact way ----


def _read_exactly(body: bytes, form: Form) -> dict[str, object] | Refusal:
    """The decoded body, of which strictness and shape are certain: the structs then accept it too."""
    value = decode_exactly(body)
    if isinstance(value, Malformed):
        return Refusal("invalid_json", value.reason)
    return shape_fault(value, form) or cast("dict[str, object]", value)


# ---- values ----

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EVENT_ID = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[57][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
)


def _events_fault(events: list[_Event], events_max: int) -> Refusal | None:
    if not 1 <= len(events) <= events_max:
        sentence = f"`events` must hold 1 to {events_max} events; it holds {len(events)}."
        return Refusal("invalid_field", sentence, "events")
    return event_ids_fault([None if each.event_id is UNSET else each.event_id for each in events])


def _metadata_fault(metadata: _Metadata) -> Refusal | None:
    if metadata.skip_occ is True and isinstance(metadata.previous_length, int):
        sentence = "`skip_occ: true` contradicts `previous_length`; leave one of them out."
        return Refusal("invalid_field", sentence, "metadata.skip_occ")
    if isinstance(metadata.event_id, str) and not _EVENT_ID.fullmatch(metadata.event_id):
        return _no_uuid("metadata.event_id", "a UUIDv7 or UUIDv5")
    return None if metadata.causation_id is UNSET else causation_fault(metadata.causation_id)


def _unchanged_fault(sent: str | UnsetType | None) -> Refusal | None:
    if sent in (UNSET, None, SKIP):
        return None
    return Refusal("invalid_field", f'`if_unchanged` can only be "{SKIP}".', "if_unchanged")


def _event_id_clash(sent: _Batch) -> Refusal | None:
    if not isinstance(sent.metadata.event_id, str):
        return None
    if len(sent.events) > 1:
        sentence = "One `metadata.event_id` cannot name several events; give each event its own `event_id`."
    elif isinstance(sent.events[0].event_id, str):
        sentence = "The event already has an `event_id` of its own; leave one of them out."
    else:
        return None
    return Refusal("invalid_field", sentence, "metadata.event_id")


def event_ids_fault(ids: Sequence[str | None]) -> Refusal | None:
    """Of the ids that a client chose, by the index of their events."""
    if ids.count(None) == len(ids):  # as mostly
        return None
    seen: set[str] = set()
    for index, chosen in enumerate(ids):
        if chosen is None:
            continue
        path = f"events[{index}].event_id"
        if not _EVENT_ID.fullmatch(chosen):
            return _no_uuid(path, "a UUIDv7 or UUIDv5")
        if chosen.lower() in seen:
            return Refusal("invalid_field", "This event_id is given twice in one request.", path)
        seen.add(chosen.lower())
    return None


def causation_fault(causation_id: str | None) -> Refusal | None:
    if causation_id is not None and not _UUID.fullmatch(causation_id):
        return _no_uuid("metadata.causation_id", "a UUID")
    return None


def _no_uuid(path: str, kind: str) -> Refusal:
    sentence = f"`{path}` must be {kind} in its canonical form, 8-4-4-4-12 hexadecimal digits."
    return Refusal("invalid_field", sentence, path)


def _lower(uuid: str | UnsetType | None) -> str | None:
    return uuid.lower() if isinstance(uuid, str) else None


def _envelope(
    events: tuple[EventBody, ...],
    metadata: _Metadata,
    parent: str | None,
    source: object = None,
    *,
    skip_unchanged: bool = False,
) -> Envelope:
    target = None if metadata.target is UNSET else metadata.target
    extra = None if metadata.extra is UNSET else bytes(metadata.extra)
    return Envelope(
        events,
        metadata.actor.type,
        metadata.actor.id,
        None if target is None else target.type,
        None if target is None else target.id,
        None if metadata.previous_length is UNSET else metadata.previous_length,
        metadata.skip_occ is True,
        None if metadata.event_id is UNSET else _lower(metadata.event_id),
        None if metadata.causation_id is UNSET else _lower(metadata.causation_id),
        None if extra is None or extra == b"null" else guarded(extra),
        parent,
        source,
        skip_unchanged,
    )
