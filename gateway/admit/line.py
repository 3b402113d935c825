"""One line of a bulk request: its own append, judged as a request of its own would be. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.admit.address import Address, address, misnamed
from gateway.admit.append import EventContext, Fault, compose, compose_read, creation, large_data, retry_of
from gateway.admit.envelope import Shared, prove_metadata, single_of
from gateway.admit.envelope_shape import Form, shape_fault
from gateway.admit.preconditions import NOTHING_ASKED, Asked
from gateway.admit.several import MintKey, PlaceOf, judge_several
from gateway.admit.several_names import first_type
from gateway.admit.strict_json import DEPTH_MAX, FAST_FAILURES, Malformed, crowded, decode, is_strict
from gateway.appends import Append, Retry
from gateway.errors import Refusal
from spec.identifiers import GLOBAL
from spec.model import Spec
from spec.violations import WEIGHT_MIN
from spec.violations import is_light as judged_at_once

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_NAMES = len(Form.LINE.value.required)


class _Line(Struct, gc=False, forbid_unknown_fields=True):
    aggregate_type: str
    key: str
    type: str
    data: Raw
    metadata: Raw
    idempotency_key: str | UnsetType | None = UNSET
    if_unchanged: str | UnsetType | None = UNSET


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder(object).decode
_encode = msgspec.json.Encoder().encode


class Creation(NamedTuple):
    """The append as one that creates the aggregate, and what it is where there are events already."""

    first: Append
    otherwise: Append


Keys = Mapping[tuple[str, str], str | Refusal]
"""By aggregate type and `key` of a line: the key of the aggregate that this alias names, or why none."""

NO_ALIASES: Final[Keys] = MappingProxyType({})


class SeveralLine(NamedTuple):
    """The append of a line that is a body of /_/append; `first_type` is the aggregate type of its first
    event."""

    append: Append
    first_type: str


class OfSeveral(NamedTuple):
    """What such lines need beside the rest."""

    mint_key: MintKey
    place_of: PlaceOf
    keys: Keys = NO_ALIASES


def is_several(line: bytes) -> bool:
    """Whether a line is meant as a body of /_/append."""
    if b'"events"' not in line:
        return False
    try:
        sent = _decode_members(line)
    except FAST_FAILURES:
        return False
    return "events" in sent and "type" not in sent


def judge_several_line(
    spec: Spec | None, line: bytes, minting: EventContext, of: OfSeveral
) -> SeveralLine | Fault:
    """A line that is an append over several aggregates, which may name an Idempotency-Key."""
    value = decode(line)
    if isinstance(value, Malformed):
        return Fault(Refusal("invalid_json", value.reason.replace("The body", "The line", 1)), None)
    assert isinstance(value, dict)
    asked = _asked(value.get("idempotency_key"))
    form, body = Form.SEVERAL_LINE, line
    if shape_fault(value, form) is None:
        sent = _decode_members(line)
        kept = [name for name in ("events", "metadata", "condition") if name in sent]
        body = b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), bytes(sent[name])) for name in kept])
        form = Form.SEVERAL
    judged = judge_several(spec, asked, body, minting, of.mint_key, of.keys, of.place_of, form)
    return judged if isinstance(judged, Fault) else SeveralLine(judged.append, first_type(body))


def judge_line(
    spec: Spec | None,
    line: bytes,
    minting: EventContext,
    known: dict[bytes, Shared],
    keys: Keys = NO_ALIASES,
    source: tuple[str, str, str] | None = None,
) -> Append | Creation | Fault:
    """In the order of the contract's table, as far as a line has the same places. `known` is what earlier
    lines had for `metadata`, by its bytes, and gets this one's: lines mostly share it. `source` is the
    foreign id that the line named, where its key is what that stands for."""
    append = None if source is not None else _append(spec, line, minting, known, keys)
    return _judge_exactly(spec, line, minting, keys, source) if append is None else append


def is_light(spec: Spec | None, line: bytes) -> bool:
    """Whether `judge_line` takes under 10 ms for this one, by the type that it names."""
    weight = WEIGHT_MIN if spec is None else spec.weight
    if spec is None or judged_at_once(line, weight):
        return judged_at_once(line, weight)
    try:
        sent = _decode_line(line)
    except FAST_FAILURES:
        return False
    declared = spec.aggregate_types.get(sent.aggregate_type)
    event_type = None if declared is None else declared.events.get(sent.type)
    return judged_at_once(line, WEIGHT_MIN) if event_type is None else event_type.is_light(line)


def _append(
    spec: Spec | None, line: bytes, minting: EventContext, known: dict[bytes, Shared], keys: Keys
) -> Append | Creation | None:
    """Of a line with nothing wrong; of any other, nothing is said about it."""
    if crowded(line):
        return None
    try:
        sent = _decode_line(line)
        data = _decode(sent.data)
        colons = _colons_around(sent) + _encode(data).count(b":")
    except FAST_FAILURES:
        return None
    if sent.if_unchanged is not UNSET:
        return None
    metadata = bytes(sent.metadata)
    shared = known.get(metadata) or prove_metadata(metadata)
    if shared is None or not is_strict(line, colons + shared.colons, data, DEPTH_MAX - 1):
        return None
    known[metadata] = shared
    key = keys.get((sent.aggregate_type, sent.key), sent.key)
    if isinstance(key, Refusal):
        return None
    place = address(spec, sent.aggregate_type, key, sent.type)
    asked = _asked(sent.idempotency_key)
    if isinstance(place, Refusal) or isinstance(asked, Refusal):
        return None
    assert spec is not None
    envelope = single_of(data, bytes(sent.data), shared)
    # Without an identity it is not digested: then it only matters that it is as long as its data, or longer.
    named = asked.idempotency_key is not None or envelope.event_id is not None
    composed = compose_read(spec, place, asked, _body(sent) if named else line, envelope, minting)
    return None if isinstance(composed, Fault) else _creating(place, composed, sent)


def _colons_around(sent: _Line) -> int:
    """Beside those of data and metadata: of the keys, and in what stands under them."""
    colons = _NAMES + (sent.aggregate_type + sent.key + sent.type).count(":")
    if sent.idempotency_key is not UNSET:
        colons += 1 + (sent.idempotency_key or "").count(":")
    return colons


# ---- the exact way, which finds the words for a refusal ----


def _judge_exactly(
    spec: Spec | None,
    line: bytes,
    minting: EventContext,
    keys: Keys,
    source: tuple[str, str, str] | None,
) -> Append | Creation | Fault:
    value = decode(line)
    if isinstance(value, Malformed):
        reason = value.reason.replace("The body", "The line", 1)
        return Fault(Refusal("invalid_json", reason), None)
    names = value if isinstance(value, dict) else {}
    named = _meant(keys, names.get("aggregate_type"), names.get("key"))
    key = GLOBAL if isinstance(named, Refusal) else named
    refusal = misnamed(spec, names.get("aggregate_type"), key, names.get("type"))
    if refusal is None and isinstance(named, Refusal):
        refusal = named
    asked = _asked(names.get("idempotency_key"))
    shape = shape_fault(value, Form.LINE)
    if refusal is not None:
        if shape is not None or isinstance(asked, Refusal):
            return Fault(refusal, None)
        # The spec of today refuses it, but it may repeat a line of yesterday.
        key = names["key"] if isinstance(named, Refusal) else key
        return Fault(refusal, _retry_of(spec, line, str(key), asked, minting.tenant))
    if isinstance(asked, Refusal):
        return Fault(asked, None)
    if shape is not None:
        return Fault(large_data(line, minting.event_bytes_max, single=True) or shape, None)
    assert spec is not None
    sent = _decode_line(line)
    place = address(spec, sent.aggregate_type, str(key), sent.type)
    assert isinstance(place, Address)
    if source is not None:
        place = msgspec.structs.replace(place, source=source)
    composed = compose(spec, place, asked, _body(sent), minting)
    return composed if isinstance(composed, Fault) else _creating(place, composed, sent)


def _creating(place: Address, append: Append, sent: _Line) -> Append | Creation:
    if not place.aggregate_type.idempotent_create:
        return append
    first = creation(place, append, _body(sent))
    return append if first is None else Creation(first, append)


def _meant(keys: Keys, aggregate_type: object, key: object) -> object:
    """The key that an alias stands for, or why it stands for none; any other key as it is."""
    if isinstance(aggregate_type, str) and isinstance(key, str):
        return keys.get((aggregate_type, key), key)
    return key


def _retry_of(spec: Spec | None, line: bytes, key: str, asked: Asked, tenant: bytes) -> Retry | None:
    sent = _decode_line(line)
    return retry_of(spec, tenant, sent.aggregate_type, key, sent.type, asked, _body(sent))


def _body(sent: _Line) -> bytes:
    """Of the single request that the line stands for."""
    skip = b"" if sent.if_unchanged is UNSET else b',"if_unchanged":%b' % _encode(sent.if_unchanged)
    return b'{"data":%b,"metadata":%b%b}' % (bytes(sent.data), bytes(sent.metadata), skip)


def _asked(key: object) -> Asked | Refusal:
    """What counts as the line's header."""
    if key is UNSET or key is None:
        return NOTHING_ASKED
    read = read_key(key)
    return read if isinstance(read, Refusal) else Asked(idempotency_key=read)


def read_key(key: object) -> str | Refusal:
    """An Idempotency-Key that is named `idempotency_key`, in a line or a query."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        sentence = "`idempotency_key` must be a string of 1 to 255 visible ASCII characters."
        return Refusal("invalid_field", sentence, "idempotency_key")
    return key
