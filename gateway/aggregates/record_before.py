"""The record before: what the next record of an aggregate, or of a source id, is graded against.

Owns how far back it is looked for. Must not know what is appended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.read.ranges import VERSION_MAX, Range
from gateway.names.records import Record
from gateway.stored_extra import SourceRef, split

RECORDS_BACK_MAX: Final = 1_000
"""Newest events of a stream among which the record before is looked for."""
_PAGE: Final = 100

MappedTo = Callable[[UUID, SourceRef], Awaitable[str | None]]
"""The key that a foreign id stands for, None where it was never seen. Raises CatalogUnavailable."""


class LastRecord(msgspec.Struct, frozen=True, gc=False):
    """The record before, and the event that is it."""

    record: Record
    event_id: bytes


async def record_before(
    log: Log, stream: Stream, ref: SourceRef | None = None, mapped_to: MappedTo | None = None
) -> tuple[int, LastRecord | None]:
    """The length of the stream, and the last record: of the source id where there is one, also by an earlier
    name of its scope, which `mapped_to` tells. Raises PostgresTrouble."""
    end, looked = VERSION_MAX, 0
    elsewhere: dict[SourceRef, LastRecord] = {}
    length: int | None = None
    while True:
        page = await log.page(Range(stream, 1, end, _PAGE, newest_first=True))
        length = page.length if length is None else length
        for each in page.events:
            _, said, _ = split(each.event.extra)
            if said is None:
                continue
            last = LastRecord(Record(said.content, said.context), each.event.id)
            if ref is None or said.source == ref:
                return length, last
            if said.source is not None and ref.elsewhere(said.source):
                elsewhere.setdefault(said.source, last)
        looked += len(page.events)
        if not page.events or page.events[-1].version == 1 or looked >= RECORDS_BACK_MAX:
            found = None if mapped_to is None else await _of_earlier_name(stream, elsewhere, mapped_to)
            return length, found
        end = page.events[-1].version - 1


async def _of_earlier_name(
    stream: Stream, elsewhere: Mapping[SourceRef, LastRecord], mapped_to: MappedTo
) -> LastRecord | None:
    """Of records of the same id in other scopes, the newest first: the one whose scope is called otherwise by
    now, since it does not lead here any more."""
    for ref, last in elsewhere.items():
        if await mapped_to(UUID(bytes=stream.tenant), ref) != stream.key:
            return last
    return None
