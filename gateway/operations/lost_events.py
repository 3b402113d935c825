"""Events that Redis has and Postgres does not, written to files so that a person can append them again.

Owns: which events are lost, by their ids, and the shape of the files. `lost.jsonl` has an event a line with
all that is known of it; `<tenant id>.ndjson` has the same events as lines for `POST /_/bulk`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from gateway.appends import unpack_event
from gateway.events import Event, Stream
from gateway.log.entries import stream_entry
from gateway.operations.entries import PAGE_ENTRIES, read
from gateway.operations.lineage import Segment, history
from gateway.operations.place import Place
from gateway.operations.redis_check import every_stream
from gateway.operations.standing import Standing
from gateway.stored_extra import split

_PAGE: Final = 500
SPANS_TOLD: Final = 20
_encode = msgspec.json.Encoder().encode


class Here(NamedTuple):
    """An event in Redis, at its place."""

    stream: Stream
    seq: int
    version: int
    event: Event


@dataclass(slots=True)
class Found:
    """The positions of the lost events, in the order in which they were found."""

    seqs: array[int] = field(default_factory=lambda: array("q"))

    @property
    def count(self) -> int:
        return len(self.seqs)

    @property
    def last(self) -> int:
        return max(self.seqs, default=0)


class LostEvents:
    """The files, in a folder of their own, readable by their owner only: they hold clients' data. Nothing is
    made before the first event is lost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: set[str] = set()

    def write(self, p: int, lost: Sequence[Here], known_to: int) -> None:
        """Raises OSError, also for a file that an earlier run has made."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._append("lost.jsonl", [_facts(p, each, known_to) for each in lost])
        for tenant, of_tenant in groupby(sorted(lost, key=_tenant), key=_tenant):
            self._append(f"{UUID(bytes=tenant)}.ndjson", [_encode(bulk_line(each)) for each in of_tenant])

    def _append(self, name: str, lines: Sequence[bytes]) -> None:
        how = os.O_APPEND if name in self._begun else os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.folder / name, os.O_WRONLY | how, 0o600)
        self._begun.add(name)
        with os.fdopen(descriptor, "ab") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(descriptor)


async def search(
    place: Place, standing: Standing, parts: Sequence[Segment], after: int, known_to: int, into: LostEvents
) -> Found:
    """Writes every event beyond seq `after` that Postgres does not have: those of streams that are older than
    the journal, then those of the journal, so that each aggregate's are in order. Raises RedisTrouble,
    PostgresTrouble, OSError."""
    found = Found()
    journal_from = parts[0].first if parts else standing.seen.q + 1
    older = _in_streams(place, standing, after, journal_from)
    for source in (older, _in_journal(place, standing, parts, after)):
        async for page in _pages(source):
            lost = await _absent(place, page)
            if lost:
                into.write(standing.p, lost, known_to)
                found.seqs.extend(each.seq for each in lost)
    return found


async def _in_journal(
    place: Place, standing: Standing, parts: Sequence[Segment], after: int
) -> AsyncIterator[Here]:
    async for _, each in history(place, standing.p, parts, after):
        placed = each.placed
        for n, ((stream, version), event) in enumerate(zip(placed.places(), placed.events, strict=True)):
            yield Here(stream, placed.first_seq + n, version, event)


async def _in_streams(place: Place, standing: Standing, after: int, before: int) -> AsyncIterator[Here]:
    """Of the epoch that Redis is in; streams of former epochs are not looked at."""
    if standing.seen.epoch < max(standing.row.rewound, 1) or before <= after + 1:
        return
    keys = place.keys(standing.p, standing.seen.epoch)
    async for stream in every_stream(place, standing.p, standing.seen.epoch):
        first = "-"
        while True:
            _, entries = await read(place.scripts, keys, keys.stream(stream), first, most=PAGE_ENTRIES)
            for entry in entries:
                version, seq, packed = stream_entry(entry)
                if after < seq < before:
                    yield Here(stream, seq, version, unpack_event(packed))
                first = f"({version}-0"
            if len(entries) < PAGE_ENTRIES:
                break


async def _pages(source: AsyncIterator[Here]) -> AsyncIterator[list[Here]]:
    page: list[Here] = []
    async for each in source:
        page.append(each)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


async def _absent(place: Place, page: Sequence[Here]) -> list[Here]:
    tenants = [UUID(bytes=each.stream.tenant) for each in page]
    rows = await place.fetch("present", tenants, [UUID(bytes=each.event.id) for each in page])
    there = {row["n"] for row in rows}
    return [each for n, each in enumerate(page, 1) if n not in there]


def _tenant(each: Here) -> bytes:
    return each.stream.tenant


def _facts(p: int, each: Here, known_to: int) -> bytes:
    event = each.event
    return _encode(
        {
            "partition": p,
            "seq": each.seq,
            "version": each.version,
            "known_committed": each.seq <= known_to,
            "tenant": UUID(bytes=each.stream.tenant),
            "recorded_at_ms": event.recorded_at_ms,
            "correlation_id": UUID(bytes=event.correlation_id),
            "spec_rev": event.spec_rev,
            "append": bulk_line(each),
        }
    )


def bulk_line(each: Here) -> dict[str, Any]:
    """A line for `POST /_/bulk`. It keeps the event's id, so that sending it twice appends it once."""
    stream, event = each.stream, each.event
    metadata: dict[str, Any] = {
        "actor": {"type": event.actor_type, "id": event.actor_id},
        "event_id": UUID(bytes=event.id),
    }
    if event.target_type is not None:
        metadata["target"] = {"type": event.target_type, "id": event.target_id}
    if event.causation_id is not None:
        metadata["causation_id"] = UUID(bytes=event.causation_id)
    extra, _, _ = split(event.extra)
    if extra is not None:
        metadata["extra"] = _on_one_line(extra)
    return {
        "aggregate_type": stream.aggregate_type,
        "key": stream.key,
        "type": event.type,
        "data": _on_one_line(event.payload or b"null"),
        "metadata": metadata,
    }


def _on_one_line(json: bytes) -> msgspec.Raw:
    """Line breaks can stand only between tokens."""
    return msgspec.Raw(json.replace(b"\r", b" ").replace(b"\n", b" "))


def spans(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """The positions as runs without a gap, first and last of each, in order."""
    found: list[tuple[int, int]] = []
    for seq in sorted(set(seqs)):
        if found and seq == found[-1][1] + 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def told_spans(found: Sequence[tuple[int, int]]) -> str:
    """`1…3, 7`; of many, the first ones."""
    told = [str(first) if first == last else f"{first}…{last}" for first, last in found[:SPANS_TOLD]]
    if len(found) > SPANS_TOLD:
        told.append(f"and {len(found) - SPANS_TOLD} spans more up to {found[-1][1]}")
    return ", ".join(told)
