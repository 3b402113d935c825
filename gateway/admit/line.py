"""One line of a bulk request: its own append, judged as a request of its own would be. Pure."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.admit.append import Fault, Minting, address, compose, compose_read, retry_of
from gateway.admit.envelope import Shared, prove_metadata, single_of
from gateway.admit.preconditions import NOTHING_ASKED, Asked
from gateway.admit.strict_json import DEPTH_MAX, FAST_FAILURES, Malformed, decode, is_strict
from gateway.errors import Refusal
from gateway.events import Append, Retry
from spec.model import Spec

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_FIELDS = ("aggregate_type", "key", "type", "data", "metadata")


class _Line(Struct, gc=False, forbid_unknown_fields=True):
    aggregate_type: str
    key: str
    type: str
    data: Raw
    metadata: Raw
    idempotency_key: str | UnsetType | None = UNSET


_decode_line = msgspec.json.Decoder(_Line).decode
_decode = msgspec.json.Decoder(object).decode
_encode = msgspec.json.Encoder().encode


def judge_line(
    spec: Spec | None, line: bytes, minting: Minting, known: dict[bytes, Shared]
) -> Append | Fault:
    """In the order of the contract's table, as far as a line has the same places. `known` is what earlier
    lines had for `metadata`, by its bytes, and gets this one's: lines mostly share it."""
    append = _append(spec, line, minting, known)
    return _judge_exactly(spec, line, minting) if append is None else append


def _append(spec: Spec | None, line: bytes, minting: Minting, known: dict[bytes, Shared]) -> Append | None:
    """Of a line with nothing wrong; of any other, nothing is said about it."""
    try:
        sent = _decode_line(line)
        data = _decode(sent.data)
        colons = _colons_around(sent) + _encode(data).count(b":")
    except FAST_FAILURES:
        return None
    metadata = bytes(sent.metadata)
    shared = known.get(metadata) or prove_metadata(metadata)
    if shared is None or not is_strict(line, colons + shared.colons, data, DEPTH_MAX - 1):
        return None
    known[metadata] = shared
    place = address(spec, sent.aggregate_type, sent.key, sent.type)
    asked = _asked(sent.idempotency_key)
    if isinstance(place, Refusal) or isinstance(asked, Refusal):
        return None
    assert spec is not None
    envelope = single_of(data, bytes(sent.data), shared)
    # Without an identity it is not digested: then it only matters that it is as long as its data, or longer.
    named = asked.idempotency_key is not None or envelope.event_id is not None
    composed = compose_read(spec, place, asked, _body(sent) if named else line, envelope, minting)
    return None if isinstance(composed, Fault) else composed


def _colons_around(sent: _Line) -> int:
    """Beside those of data and metadata: of the keys, and in what stands under them."""
    colons = len(_FIELDS) + (sent.aggregate_type + sent.key + sent.type).count(":")
    if sent.idempotency_key is not UNSET:
        colons += 1 + (sent.idempotency_key or "").count(":")
    return colons


# ---- the exact way, which finds the words for a refusal ----


def _judge_exactly(spec: Spec | None, line: bytes, minting: Minting) -> Append | Fault:
    value = decode(line)
    if isinstance(value, Malformed):
        return Fault(Refusal("invalid_json", value.reason), None)
    shape = _shape_fault(value)
    names = _names(value)
    place = None if names is None else address(spec, *names)
    if isinstance(place, Refusal):
        # The spec of today refuses it, but it may repeat a line of yesterday.
        retry = None if shape is not None else _retry_of(spec, _decode_line(line), minting.tenant)
        return Fault(place, retry)
    if shape is not None:
        return Fault(shape, None)
    assert place is not None
    sent = _decode_line(line)
    asked = _asked(sent.idempotency_key)
    if isinstance(asked, Refusal):
        return Fault(asked, None)
    assert spec is not None
    return compose(spec, place, asked, _body(sent), minting)


def _names(value: object) -> tuple[str, str, str] | None:
    """Aggregate type, key and event type, where the line has them."""
    if not isinstance(value, dict):
        return None
    aggregate_type, key, event_type = value.get("aggregate_type"), value.get("key"), value.get("type")
    if isinstance(aggregate_type, str) and isinstance(key, str) and isinstance(event_type, str):
        return aggregate_type, key, event_type
    return None


def _retry_of(spec: Spec | None, sent: _Line, tenant: bytes) -> Retry | None:
    asked = _asked(sent.idempotency_key)
    if isinstance(asked, Refusal):
        return None
    return retry_of(spec, tenant, sent.aggregate_type, sent.key, sent.type, asked, _body(sent))


def _body(sent: _Line) -> bytes:
    """Of the single request that the line stands for."""
    return b'{"data":%b,"metadata":%b}' % (bytes(sent.data), bytes(sent.metadata))


def _shape_fault(value: object) -> Refusal | None:
    if not isinstance(value, dict):
        return Refusal("invalid_field", "A line is an object with aggregate_type, key, type, data, metadata.")
    for name in _FIELDS:
        if name not in value:
            return Refusal("missing_field", f"The line has no `{name}`.", name)
    for name in value:
        if name not in _FIELDS and name != "idempotency_key":
            return Refusal("unknown_field", f"A line has no field {name[:64]!r}.", name[:64])
    for name in ("aggregate_type", "key", "type"):
        if not isinstance(value[name], str):
            return Refusal("invalid_field", f"`{name}` must be a string.", name)
    if not isinstance(value.get("idempotency_key", ""), str | None):
        return Refusal("invalid_field", "`idempotency_key` must be a string.", "idempotency_key")
    return None


def _asked(key: str | UnsetType | None) -> Asked | Refusal:
    if key is UNSET or key is None:
        return NOTHING_ASKED
    if not _KEY.fullmatch(key):
        return Refusal(
            "invalid_field", "`idempotency_key` must be 1 to 255 visible ASCII characters.", "idempotency_key"
        )
    return Asked(idempotency_key=key)
