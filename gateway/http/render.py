"""Committed events and receipts as JSON bytes. Pure.

Built from parts instead of objects: `data` and `extra` come back byte for byte, and every other text was
held to a grammar without quotes or control characters before it was stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gateway.appends import Appended, FeedPlace
from gateway.errors import Refusal
from gateway.event_json import event_json, fed_json
from gateway.events import Stream
from gateway.relay.position import encode_place
from spec.identifiers import uuid_text

__all__ = ["event_json", "fed_json"]

encode = msgspec.json.Encoder().encode
_NO_NAMES: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType({})


def receipt_json(done: Appended) -> bytes:
    """The answer to an append of one event."""
    length, last = done.first_version, done.last
    assert last is not None
    implied = _implied(done) if done.implied else ""
    return (
        f'{{"ok":true,"key":"{done.key}","event_id":"{uuid_text(done.event_ids[0])}",'
        f'"stream_id":"{length}-0","length":{length},{implied}'
        f'"position":"{encode_place(last.p, last.seq, last.mark)}"}}'
    ).encode()


def batch_receipt_json(done: Appended) -> bytes:
    """The answer to an append of several."""
    versions = range(done.first_version, done.length + 1)
    ids = ",".join([f'"{uuid_text(each)}"' for each in done.event_ids])
    stream_ids = ",".join([f'"{version}-0"' for version in versions])
    return (
        f'{{"ok":true,"key":"{done.key}","event_ids":[{ids}],"stream_ids":[{stream_ids}],'
        f'"count":{len(done.event_ids)},"length":{done.length},{_implied(done)}'
        f'"position":"{position_text(done.last)}"}}'
    ).encode()


def receipt_of_several_json(
    done: Appended, aggregate_type: str, names: Mapping[int, tuple[str, ...]] = _NO_NAMES
) -> bytes:
    """The answer to an append of events that name their aggregates; `aggregate_type` is that of all of them,
    where they are of one aggregate. `names` are the aliases to tell with events, by their numbers."""
    events = [
        f'{{"aggregate_type":"{stream.aggregate_type}","key":"{stream.key}","event_id":"{uuid_text(event_id)}",'
        f'"stream_id":"{version}-0","length":{version}}}'
        for (stream, version), event_id in zip(places_of(done, aggregate_type), done.event_ids, strict=True)
    ]
    for n, aliases in names.items():
        events[n] = with_aliases(events[n].encode(), aliases).decode()
    return (
        f'{{"ok":true,"position":"{position_text(done.last)}","count":{len(events)},{_implied(done)}'
        f'"events":[{",".join(events)}]}}'
    ).encode()


def places_of(done: Appended, aggregate_type: str) -> Sequence[tuple[Stream, int]]:
    """The stream and the version of each event; where they are of one aggregate, its stream is without the
    tenant."""
    if done.places:
        return done.places
    stream = Stream(b"", aggregate_type, done.key)
    return [(stream, done.first_version + n) for n in range(len(done.event_ids))]


def _implied(done: Appended) -> str:
    return f'"implied_count":{done.implied},' if done.implied else ""


def position_text(last: FeedPlace | None) -> str:
    """The feed's position behind the last event of an append."""
    assert last is not None
    return encode_place(last.p, last.seq, last.mark)


def with_aliases(receipt: bytes, aliases: tuple[str, ...]) -> bytes:
    """A receipt that tells the names of the new aggregate too, and of a child its parent."""
    named = b'%b,"aliases":%b}' % (receipt[:-1], encode(aliases))
    parent = next((each.rpartition(".")[0] for each in aliases if "." in each), None)
    return named if parent is None else with_member(named, b'"parent":%b' % encode(parent))


def with_member(body: bytes, member: bytes) -> bytes:
    """An object with one more member behind the others."""
    return b"%b,%b}" % (body[:-1], member)


def raw(part: bytes) -> msgspec.Raw:
    """A part that is JSON already, for a body that is encoded as a whole."""
    return msgspec.Raw(part)


def refusal_json(refusal: Refusal, more: Mapping[str, object] | None = None) -> bytes:
    body: dict[str, object] = {"ok": False, "code": refusal.code, "error": refusal.error}
    if refusal.path is not None:
        body["path"] = refusal.path
    if refusal.candidates:
        body["candidates"] = refusal.candidates
    if refusal.version is not None:
        body["version"] = refusal.version
    if refusal.listed is not None:
        body["listed"] = refusal.listed
    if refusal.position is not None:
        body["position"] = refusal.position
    return encode({**body, **more} if more else body)
