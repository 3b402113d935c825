"""Appends whose events are records: each is graded against the record before it, on the very history that it
is appended to.

Owns: what an append of a type that declares `identity` waits for. It is handed on for the length at which its
events were graded, so the grades hold or nothing is written; where somebody else was faster they are graded
again, until its deadline. Must not know how an append is judged otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec

from gateway.aggregates.ruled import Ruled
from gateway.aside import Aside, Busy
from gateway.catalog.model import Deployed
from gateway.errors import Refusal
from gateway.events import (
    ANY_LENGTH,
    AT_LEAST_ONE,
    Append,
    Conflict,
    Declined,
    NotCommitted,
    Outcome,
    Stream,
    Unchanged,
    event_identity,
    make_append,
)
from gateway.log.append.pending import Waiter
from gateway.log.log import Log
from gateway.log.postgres import PostgresTrouble
from gateway.log.read.reader import VERSION_MAX, Range
from gateway.names.content import Grade
from gateway.names.records import Record, key_of_content, record_of
from gateway.stored_extra import RecordSaid, SourceRef, split, with_record
from spec.model import AggregateType, Spec

RECORDS_BACK_MAX: Final = 1_000
"""Newest events of a stream among which the record before is looked for."""
_PAGE: Final = 100
_AT_ONCE_BYTES: Final = 16 * 1024
"""Larger data are hashed beside the event loop."""

DeployedOf = Callable[[UUID], Deployed | None]


Create = Callable[[Spec, Append], Awaitable[Refusal | None]]
"""Raises PostgresTrouble."""


class _Last(msgspec.Struct, frozen=True, gc=False):
    """The record before, and the event that is it."""

    record: Record
    event_id: bytes


class Records:
    """Appends as `Ruled` does, and by it all that are no records."""

    def __init__(
        self,
        log: Log,
        ruled: Ruled,
        deployed_of: DeployedOf,
        aside: Aside,
        deadline_s: float,
        create: Create | None = None,
    ) -> None:
        """`create` is asked whether an append may create its project."""
        self._create = create
        self._log = log
        self._ruled = ruled
        self._deployed_of = deployed_of
        self._aside = aside
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._turns: WeakValueDictionary[Stream, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Outcome]] = set()

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """The outcome, at the latest when the append's deadline has passed."""
        declared = self._declared(append)
        return self._ruled.append(append) if declared is None else self._begun(append, declared)

    def append_each(self, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """As the log's."""
        others: list[tuple[Append, Waiter]] = []
        for append, waiter in asked:
            declared = self._declared(append)
            if declared is None:
                others.append((append, waiter))
            else:
                self._begun(append, declared).add_done_callback(partial(_tell, waiter))
        self._ruled.append_each(tenant, others)

    def _declared(self, append: Append) -> AggregateType | None:
        """Its type, where that declares records; an append to several streams has none."""
        if append.spread is not None:
            return None
        deployed = self._deployed_of(UUID(bytes=append.stream.tenant))
        declared = (
            None if deployed is None else deployed.spec.aggregate_types.get(append.stream.aggregate_type)
        )
        if deployed is None or declared is None:
            return None
        return declared if declared.identity is not None or creates_project(deployed.spec, append) else None

    def _begun(self, append: Append, declared: AggregateType) -> asyncio.Task[Outcome]:
        task = self._loop.create_task(self._append(append, declared))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _append(self, append: Append, declared: AggregateType) -> Outcome:
        try:
            if (refusal := await self._refused(append)) is not None:
                return Declined(refusal)
            if declared.identity is None:
                return await self._ruled.append(append)
            read = partial(_records, append, declared)
            light = append.size_bytes <= _AT_ONCE_BYTES
            records = read() if light else await self._aside.run(append.stream.tenant, read)
            turn = self._turns.setdefault(append.stream, asyncio.Lock())
            until = self._loop.time() + self._deadline_s
            async with turn:  # in this gateway one at a time: they would only make each other lose
                while True:
                    length, last = await self._before(append)
                    outcome = await self._try(append, declared, records, length, last)
                    fits = append.expected == ANY_LENGTH or (append.expected == AT_LEAST_ONE and length > 0)
                    if not (isinstance(outcome, Conflict) and fits):
                        return outcome
                    if self._loop.time() > until:
                        return NotCommitted("other appends to the aggregate were faster until its deadline")
        except Busy as busy:
            return NotCommitted(busy.why.rstrip("."))
        except PostgresTrouble:
            return NotCommitted("Postgres does not answer, and the record before is needed")

    async def _refused(self, append: Append) -> Refusal | None:
        """Raises PostgresTrouble."""
        deployed = self._deployed_of(UUID(bytes=append.stream.tenant))
        if self._create is None or deployed is None or not creates_project(deployed.spec, append):
            return None
        return await self._create(deployed.spec, append)

    async def _try(
        self,
        append: Append,
        declared: AggregateType,
        records: Sequence[Record | None],
        length: int,
        last: _Last | None,
    ) -> Outcome:
        if declared.mint == "content" and ":" not in append.stream.key:
            settled = await self._of_content(append, records, last)
            if settled is not None:
                return settled
        said = _graded(records, last, append.source)
        found = [each for each in said if each is not None]
        same = len(found) == len(said) and all(each.grade == Grade.UNCHANGED for each in found)
        if append.skip_unchanged and last is not None and same:
            return await self._unchanged(append, last)
        events = tuple(
            [
                msgspec.structs.replace(event, extra=with_record(split(event.extra)[0], record))
                for event, record in zip(append.events, said, strict=True)
            ]
        )
        expected = append.expected
        if expected == ANY_LENGTH or (expected == AT_LEAST_ONE and length):
            expected = length
        return await self._ruled.append(
            make_append(
                append.stream,
                events,
                expected,
                append.retry,
                append.tags,
                claims=append.claims,
                claim_paths=append.claim_paths,
            )
        )

    async def _of_content(
        self, append: Append, records: Sequence[Record | None], last: _Last | None
    ) -> Outcome | None:
        """Of an aggregate whose key is its content: what is settled without an append."""
        stated = {each.content for each in records if each is not None}
        if last is None:
            if not stated:
                return Declined(
                    Refusal("content_differs", "The first event of such an aggregate says its content.")
                )
            key = key_of_content(UUID(bytes=append.stream.tenant), next(iter(stated)))
            if len(stated) > 1 or key != append.stream.key:
                return Declined(
                    Refusal("content_differs", "The key is not that of this content: POST /{type} makes it.")
                )
            return None
        if stated - {last.record.content}:
            return Declined(
                Refusal("content_differs", "The aggregate holds other content, which never changes.")
            )
        if stated and None not in records:
            return await self._unchanged(append, last)
        return None

    async def _unchanged(self, append: Append, last: _Last) -> Outcome:
        """Nothing is written; a repeat of what was gets its own receipt."""
        if append.chosen:
            settled = await self._log.settled(append.retry)
            if settled is not None:
                return settled
        tenant = append.stream.tenant
        done = await self._log.receipt(tenant, event_identity(tenant, last.event_id), last.event_id)
        return NotCommitted("the record before is gone") if done is None else Unchanged(done)

    async def _before(self, append: Append) -> tuple[int, _Last | None]:
        """The length of the stream, and the last record: of the same source id where the append has one."""
        stream, end, looked = append.stream, VERSION_MAX, 0
        length: int | None = None
        while True:
            page = await self._log.page(Range(stream, 1, end, _PAGE, newest_first=True))
            length = page.length if length is None else length
            for each in page.events:
                _, said, _ = split(each.event.extra)
                if said is not None and (append.source is None or said.source == SourceRef(*append.source)):
                    return length, _Last(Record(said.content, said.context), each.event.id)
            looked += len(page.events)
            if not page.events or page.events[-1].version == 1 or looked >= RECORDS_BACK_MAX:
                return length, None
            end = page.events[-1].version - 1


def creates_project(spec: Spec, append: Append) -> bool:
    """Whether it may be the first of a project."""
    projects = None if spec.public_ids is None else spec.public_ids.projects
    return projects is not None and append.stream.aggregate_type == projects.type and append.expected <= 0


def _records(append: Append, declared: AggregateType) -> list[Record | None]:
    assert declared.identity is not None
    key = append.stream.key
    return [
        record_of(declared.identity, msgspec.json.decode(event.payload or b"null"), key, event.type)
        for event in append.events
    ]


def _graded(
    records: Sequence[Record | None], last: _Last | None, source: tuple[str, str, str] | None
) -> list[RecordSaid | None]:
    """Each against the one before it."""
    ref = None if source is None else SourceRef(*source)
    said: list[RecordSaid | None] = []
    prior = None if last is None else last.record
    for record in records:
        if record is None:
            said.append(None)
            continue
        said.append(RecordSaid(record.content, record.context, record.graded(prior).value, ref))
        prior = record
    return said


def _tell(waiter: Waiter, settled: asyncio.Future[Outcome]) -> None:
    if waiter.done():
        return
    if settled.cancelled() or settled.exception() is not None:
        waiter.set_result(NotCommitted("something failed inside the gateway; nothing was written"))
    else:
        waiter.set_result(settled.result())
