"""Committed events as JSON bytes, as every way out has them. Pure.

Built from parts instead of objects: `data` and `extra` come back byte for byte, and every other text was
held to a grammar without quotes or control characters before it was stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncpg.pgproto.pgproto import UUID  # a value; its text takes a third of the time of uuid_text's

from gateway.events import Recorded
from gateway.stored_extra import identity_json, split


def event_json(recorded: Recorded) -> bytes:
    """One event as the contract gives it; what is absent is null."""
    return _event(recorded, "}")


def fed_json(recorded: Recorded, position: str) -> bytes:
    """One event as the feed gives it: with the position behind it."""
    return _event(recorded, f',"position":"{position}"}}')


def named_json(event: bytes, key: str, aliases: Sequence[str], *, keyless: bool) -> bytes:
    """An event's JSON with the aliases of its aggregate; with `keyless` the key is left out where there are
    any. The key's member stands before all that its writer chose, so the first that looks like it is it."""
    if keyless and aliases:
        event = event.replace(b'"key":"%b",' % key.encode(), b"", 1)
    listed = b",".join([b'"%b"' % alias.encode() for alias in aliases])
    return b'%b,"aliases":[%b]}' % (event[:-1], listed)


def _event(recorded: Recorded, end: str) -> bytes:
    """With what comes behind its metadata. Times are Unix seconds with milliseconds."""
    event, stream, version = recorded.event, recorded.stream, recorded.version
    target = (
        "null" if event.target_type is None else f'{{"type":"{event.target_type}","id":"{event.target_id}"}}'
    )
    causation = "null" if event.causation_id is None else f'"{UUID(event.causation_id)!s}"'
    head = (
        f'{{"id":"{UUID(event.id)!s}","stream_id":"{version}-0","version":{version},'
        f'"key":"{stream.key}","aggregate_type":"{stream.aggregate_type}",'
        f'"type":"{event.type}","data":'
    )
    metadata = (
        f',"metadata":{{"actor":{{"type":"{event.actor_type}","id":"{event.actor_id}"}},'
        f'"target":{target},"timestamp":{event.recorded_at_ms / 1000:.3f},'
        f'"correlation_id":"{UUID(event.correlation_id)!s}","causation_id":{causation},"extra":'
    )
    payload = b"null" if event.payload is None else event.payload
    if event.extra is None:  # as of most events: two texts around the payload are encoded, and no more
        rest = f'{metadata}null,"revision":{event.revision}}}{end}'
        return b"".join((head.encode(), payload, rest.encode()))
    rest = f',"revision":{event.revision}}}{end}'
    return b"".join((head.encode(), payload, metadata.encode(), _extra(event.extra), rest.encode()))


def _extra(stored: bytes) -> bytes:
    """With the member behind it, where it is of a type that declares records."""
    extra, record, recorded_as = split(stored)
    shown = b"null" if extra is None else extra
    return b'%b,"identity":%b' % (shown, identity_json(record)) if recorded_as else shown
