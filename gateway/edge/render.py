"""Committed events and receipts as JSON bytes. Pure.

Built from parts instead of objects: `data` and `extra` come back byte for byte, and every other text was
held to a grammar without quotes or control characters before it was stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.errors import Refusal
from gateway.events import Appended, Recorded

encode = msgspec.json.Encoder().encode


def uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def seconds(ms: int) -> str:
    """Unix seconds with milliseconds, as the contract shows them."""
    return f"{ms // 1000}.{ms % 1000:03d}"


def event_json(recorded: Recorded) -> bytes:
    """One event as the contract gives it; what is absent is null."""
    event, version = recorded.event, recorded.version
    target = (
        "null" if event.target_type is None else f'{{"type":"{event.target_type}","id":"{event.target_id}"}}'
    )
    causation = "null" if event.causation_id is None else f'"{uuid_text(event.causation_id)}"'
    head = (
        f'{{"id":"{uuid_text(event.id)}","stream_id":"{version}-0","version":{version},'
        f'"key":"{recorded.stream.key}","aggregate_type":"{recorded.stream.aggregate_type}",'
        f'"type":"{event.type}","data":'
    )
    tail = (
        f',"metadata":{{"actor":{{"type":"{event.actor_type}","id":"{event.actor_id}"}},'
        f'"target":{target},"timestamp":{seconds(event.recorded_at_ms)},'
        f'"correlation_id":"{uuid_text(event.correlation_id)}","causation_id":{causation},"extra":'
    )
    payload = b"null" if event.payload is None else event.payload
    extra = b"null" if event.extra is None else event.extra
    return b"%b%b%b%b}}" % (head.encode(), payload, tail.encode(), extra)


def events_json(events: tuple[Recorded, ...]) -> bytes:
    return b"[" + b",".join([event_json(each) for each in events]) + b"]"


def fed_json(recorded: Recorded, position: str) -> bytes:
    """One event as the feed gives it: with the position behind it."""
    return b'%b,"position":"%b"}' % (event_json(recorded)[:-1], position.encode())


def receipt_json(done: Appended) -> bytes:
    """The answer to an append of one event."""
    length = done.length
    return (
        f'{{"ok":true,"key":"{done.key}","event_id":"{uuid_text(done.event_ids[0])}",'
        f'"stream_id":"{length}-0","length":{length}}}'
    ).encode()


def batch_receipt_json(done: Appended) -> bytes:
    """The answer to an append of several."""
    versions = range(done.first_version, done.length + 1)
    ids = ",".join([f'"{uuid_text(each)}"' for each in done.event_ids])
    stream_ids = ",".join([f'"{version}-0"' for version in versions])
    return (
        f'{{"ok":true,"key":"{done.key}","event_ids":[{ids}],"stream_ids":[{stream_ids}],'
        f'"count":{len(done.event_ids)},"length":{done.length}}}'
    ).encode()


def with_aliases(receipt: bytes, aliases: tuple[str, ...]) -> bytes:
    """A receipt that tells the names of the new aggregate too."""
    return b'%b,"aliases":%b}' % (receipt[:-1], encode(aliases))


def raw(part: bytes) -> msgspec.Raw:
    """A part that is JSON already, for a body that is encoded as a whole."""
    return msgspec.Raw(part)


def refusal_json(refusal: Refusal, more: Mapping[str, object] | None = None) -> bytes:
    body: dict[str, object] = {"ok": False, "code": refusal.code, "error": refusal.error}
    if refusal.path is not None:
        body["path"] = refusal.path
    if refusal.candidates:
        body["candidates"] = refusal.candidates
    return encode({**body, **more} if more else body)
