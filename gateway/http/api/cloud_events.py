"""Committed events as CloudEvents 1.0, in the JSON format's batch. Pure.

Source: https://github.com/cloudevents/spec, v1.0.2; beside its attributes each event has as extensions what
else a reader wants: `position`, `version`, `revision`, `correlationid`, `causationid`, the last only where it
has one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.events import Recorded
from spec.identifiers import uuid_text

BATCH = b"application/cloudevents-batch+json"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cloud_event(recorded: Recorded, position: str) -> bytes:
    """`data` byte for byte as the event has them."""
    event, stream = recorded.event, recorded.stream
    causation = "" if event.causation_id is None else f',"causationid":"{uuid_text(event.causation_id)}"'
    head = (
        f'{{"specversion":"1.0","id":"{uuid_text(event.id)}",'
        f'"source":"/{stream.aggregate_type}/{stream.key}","type":"{event.type}",'
        f'"time":"{rfc_3339(event.recorded_at_ms)}","datacontenttype":"application/json",'
        f'"position":"{position}","version":{recorded.version},"revision":{event.revision},'
        f'"correlationid":"{uuid_text(event.correlation_id)}"{causation},"data":'
    )
    return b"%b%b}" % (head.encode(), b"null" if event.payload is None else event.payload)


def rfc_3339(ms: int) -> str:
    """A time in UTC with milliseconds."""
    at = _EPOCH + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
