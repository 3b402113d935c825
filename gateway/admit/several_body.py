"""The body of an append to several aggregates, read: bytes to a `Read` of legal shape.

Owns: its structs, and the proof that a body is strict JSON of this shape. Must not know: the spec, or words
for a refusal (`several` finds them, slower, for a body that is not proven here).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.admit.envelope_shape import PREVIOUS_LENGTH_MAX, Form
from gateway.admit.strict_json import DEPTH_MAX, FAST_FAILURES, crowded, is_shallow, keeps_all, may_nest


class Ref(Struct, gc=False, forbid_unknown_fields=True):
    type: str
    id: str


class SentEvent(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    aggregate_type: str
    type: str
    data: Raw
    key: str | None = None
    previous_length: Annotated[int, Meta(ge=0, le=PREVIOUS_LENGTH_MAX)] | None = None
    event_id: str | None = None
    target: Ref | None = None


class SentMetadata(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    actor: Ref
    target: Ref | None = None
    causation_id: str | None = None
    extra: Raw | UnsetType = UNSET


class SentCondition(Struct, gc=False, forbid_unknown_fields=True):
    fail_if_events_match: Raw
    after: str | UnsetType | None = UNSET


class Sent(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Where an optional field of an event or of metadata is null, it counts as left out, but the body is not
    proven."""

    events: list[SentEvent]
    metadata: SentMetadata
    condition: SentCondition | UnsetType | None = UNSET
    idempotency_key: str | None = None


class Read(Struct, frozen=True, gc=False):
    """`raws` and `datas` are those of the events, as sent and decoded; `query` is the condition's, decoded;
    it is shared, and never changed."""

    sent: Sent
    raws: list[bytes]
    datas: list[object]
    query: object


_decode_sent = msgspec.json.Decoder(Sent).decode
_decode_extra = msgspec.json.Decoder(dict[str, object] | None).decode
_decode = msgspec.json.Decoder(object).decode
_encode = msgspec.json.Encoder().encode

KEPT_QUERIES: Final = 512
"""Of conditions, decoded."""
KEPT_QUERY_BYTES_MAX: Final = 1024

_LEVELS: Final = DEPTH_MAX - 3
"""Of the data of an event: body, events and the event are around it. Other parts may nest a little deeper."""


def prove(body: bytes, form: Form) -> Read | None:
    """None where it is not certainly strict and of this shape. Never raises."""
    if crowded(body):
        return None
    try:
        sent = _decode_sent(body)
        if sent.idempotency_key is not None and form is not Form.SEVERAL_LINE:
            return None
        raws = [bytes(each.data) for each in sent.events]
        datas = list(map(_decode, raws))
        # Of what is encoded as it was sent, its colons once more as decoded.
        colons = _encode((sent, datas)).count(b":") - sum([each.count(b":") for each in raws])
        query = None
        if isinstance(sent.condition, SentCondition):
            query, hidden = _query(bytes(sent.condition.fail_if_events_match))
            colons += hidden
        if sent.metadata.extra is not UNSET:
            colons += _hidden(bytes(sent.metadata.extra), _decode_extra)[1]
        if not keeps_all(body, colons):
            return None
        # An object with another inside has a key. A bound for all of many events would say nothing.
        if colons + body.count(b"[") > _LEVELS and max(map(may_nest, raws), default=0) > _LEVELS:
            return Read(sent, raws, datas, query) if is_shallow(datas, _LEVELS + 1) else None
        return Read(sent, raws, datas, query)
    except FAST_FAILURES:
        return None


def _query(sent: bytes) -> tuple[object, int]:
    """Writers that decide on the same boundary send the same query."""
    if len(sent) > KEPT_QUERY_BYTES_MAX:
        return _hidden(sent, _decode)
    return _kept_query(sent)


@lru_cache(KEPT_QUERIES)
def _kept_query(sent: bytes) -> tuple[object, int]:
    return _hidden(sent, _decode)


def _hidden(sent: bytes, decode: Callable[[bytes], object]) -> tuple[object, int]:
    """The part decoded, and what to add to the colons of a text that repeats it as sent.

    Raises msgspec.ValidationError where it is perhaps too deep, and what `decode` raises.
    """
    if may_nest(sent) > _LEVELS:
        raise msgspec.ValidationError
    value = decode(sent)
    return value, _encode(value).count(b":") - sent.count(b":")


def read_proven(body: bytes, value: object) -> Read:
    """Of a body of which strictness and shape are certain; `value` is what it decodes to."""
    sent = _decode_sent(body)
    whole = cast("dict[str, Any]", value)
    datas = [each["data"] for each in whole["events"]]
    query = (whole.get("condition") or {}).get("fail_if_events_match")
    return Read(sent, [bytes(each.data) for each in sent.events], datas, query)
