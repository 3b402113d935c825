"""Appends whose events are records: each is graded against the record before it, on the very history that it
is appended to.

Owns: what an append of a type that declares `identity` waits for. It is handed on for the length at which its
events were graded, so the grades hold or nothing is written; where another append was faster they are graded
again, until its deadline. Must not know how an append is judged otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec

from gateway.aggregates.judging import DeployedOf
from gateway.aggregates.record_before import LastRecord, MappedTo, record_before
from gateway.aggregates.ruled import Ruled
from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, Append, event_identity, make_append
from gateway.aside import Aside, Busy
from gateway.catalog.model import Deployed, tenant_of
from gateway.errors import Refusal
from gateway.events import Event, Stream
from gateway.json_values import decode_data
from gateway.log.append.pending import Waiter
from gateway.log.log import Log
from gateway.names.content import Grade
from gateway.names.records import Record, key_of_content, record_of
from gateway.outcomes import Conflict, Declined, NotCommitted, Outcome, OutcomeUnknown, Unchanged
from gateway.postgres.errors import PostgresTrouble
from gateway.stored_extra import RecordSaid, SourceRef, split, with_record
from spec.identity import IdentityRule
from spec.model import AggregateType, Spec
from spec.names import Projects

_AT_ONCE_BYTES: Final = 16 * 1024
"""Larger data are hashed beside the event loop."""

Names = tuple[str, str, str]


Create = Callable[[Spec, Append], Awaitable[Declined | NotCommitted | None]]
"""Raises PostgresTrouble."""


class Records:
    """Appends as `Ruled` does, and by it all that are no records."""

    def __init__(
        self,
        log: Log,
        ruled: Ruled,
        deployed_of: DeployedOf,
        aside: Aside,
        deadline_s: float,
        mapped_to: MappedTo,
        create: Create | None = None,
    ) -> None:
        """`create` is asked whether an append may create its project."""
        self._mapped_to = mapped_to
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
        deployed = self._recorded(append.stream.tenant)
        work = None if deployed is None else self._work(append, deployed)
        return self._ruled.append(append) if work is None else self._begun(work)

    def append_each(self, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """As the log's."""
        deployed = self._recorded(tenant)
        if deployed is None:
            self._ruled.append_each(tenant, asked)
            return
        others: list[tuple[Append, Waiter]] = []
        for append, waiter in asked:
            work = self._work(append, deployed)
            if work is None:
                others.append((append, waiter))
            else:
                self._begun(work).add_done_callback(partial(_tell, append, waiter))
        self._ruled.append_each(tenant, others)

    def _recorded(self, tenant: bytes) -> Deployed | None:
        """The tenant's spec, where appends may be of records, or make a project."""
        deployed = self._deployed_of(tenant_of(tenant))
        return deployed if deployed is not None and deployed.spec.recorded else None

    def _work(self, append: Append, deployed: Deployed) -> Coroutine[None, None, Outcome] | None:
        """What appends it where events of it are records, or make a project."""
        types = deployed.spec.aggregate_types
        if append.spread is not None or append.condition is not None or append.sources:
            found = [types.get(stream.aggregate_type) for stream in append.streams]
            rules = {
                which: each.identity
                for which, each in enumerate(found)
                if each is not None and each.identity is not None
            }
            work = bool(rules) or creates_project(deployed.spec, append)
            return self._append_several(append, rules) if work else None
        declared = types.get(append.stream.aggregate_type)
        if declared is None:
            return None
        if declared.identity is None and not creates_project(deployed.spec, append):
            return None
        return self._append(append, declared)

    def _begun(self, work: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        task = self._loop.create_task(_settled(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _append_several(self, append: Append, rules: Mapping[int, IdentityRule]) -> Outcome:
        """One to several streams, or on a condition: those with a rule, by their numbers, at the lengths at
        which their events were graded, the others as they ask."""
        until = self._loop.time() + self._deadline_s
        if (settled := await self._refused(append)) is not None:
            return settled
        if not rules:
            return await self._ruled.append(append)
        records = await self._records(append, rules)
        while True:
            events, lengths = await self._graded_events(append, records)
            outcome = await self._ruled.append(_with(append, events, lengths))
            if not isinstance(outcome, Conflict):
                return outcome
            if outcome.which not in rules or not _takes(append.lengths[outcome.which], outcome.length):
                return outcome
            if self._loop.time() > until:
                return NotCommitted("other appends to the aggregates came first until its deadline")

    async def _records(self, append: Append, rules: Mapping[int, IdentityRule]) -> dict[int, Record | None]:
        """Raises Busy."""
        read = partial(_records, append, rules)
        light = append.size_bytes <= _AT_ONCE_BYTES
        return read() if light else await self._aside.run(append.stream.tenant, read)

    async def _graded_events(
        self, append: Append, records: Mapping[int, Record | None]
    ) -> tuple[tuple[Event, ...], list[int]]:
        """The events with what is said of those that are records, and the lengths at which that holds."""
        events, lengths = list(append.events), list(append.lengths)
        before: dict[tuple[int, Names | None], Record | None] = {}
        for n, record in records.items():
            which = 0 if append.spread is None else append.spread.order[n]
            source = append.sources[n] if append.sources else None
            if (which, source) not in before:
                length, last = await self._before(append.streams[which], source)
                before[which, source] = None if last is None else last.record
                if _takes(lengths[which], length):
                    lengths[which] = length
            said = None
            if record is not None:
                ref = None if source is None else SourceRef(*source)
                grade = record.graded(before[which, source]).value
                said = RecordSaid(record.content, record.context, grade, ref)
                before[which, source] = before[which, None] = record
            extra = with_record(split(events[n].extra)[0], said)
            events[n] = msgspec.structs.replace(events[n], extra=extra)
        return tuple(events), lengths

    async def _append(self, append: Append, declared: AggregateType) -> Outcome:
        if (settled := await self._refused(append)) is not None:
            return settled
        if declared.identity is None:
            return await self._ruled.append(append)
        records = [*(await self._records(append, {0: declared.identity})).values()]
        turn = self._turns.setdefault(append.stream, asyncio.Lock())
        until = self._loop.time() + self._deadline_s
        async with turn:  # in this gateway one at a time: they would only make each other lose
            while True:
                length, last = await self._before(append.stream, append.source)
                outcome = await self._try(append, declared, records, length, last)
                if not (isinstance(outcome, Conflict) and _takes(append.expected, length)):
                    return outcome
                if self._loop.time() > until:
                    return NotCommitted("other appends to the aggregate came first until its deadline")

    async def _refused(self, append: Append) -> Outcome | None:
        """What an append is told that may not create its project; a repeat of one that did has its receipt.
        Raises PostgresTrouble."""
        deployed = self._deployed_of(tenant_of(append.stream.tenant))
        if self._create is None or deployed is None or not creates_project(deployed.spec, append):
            return None
        refused = await self._create(deployed.spec, append)
        if refused is None or not append.chosen:
            return refused
        return await self._log.settled(append.retry) or refused

    async def _try(
        self,
        append: Append,
        declared: AggregateType,
        records: Sequence[Record | None],
        length: int,
        last: LastRecord | None,
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
        expected = length if _takes(append.expected, length) else append.expected
        return await self._ruled.append(_with(append, events, (expected,)))

    async def _of_content(
        self, append: Append, records: Sequence[Record | None], last: LastRecord | None
    ) -> Outcome | None:
        """Of an aggregate whose key is its content: what is settled without an append."""
        stated = {each.content for each in records if each is not None}
        if last is None:
            if not stated:
                return Declined(
                    Refusal("content_differs", "The first event of such an aggregate must have its content.")
                )
            key = key_of_content(UUID(bytes=append.stream.tenant), next(iter(stated)))
            if len(stated) > 1 or key != append.stream.key:
                return Declined(
                    Refusal("content_differs", "The key is not that of this content: POST /{type} makes it.")
                )
            return None
        if stated - {last.record.content}:
            return Declined(
                Refusal("content_differs", "The aggregate was made with other content, which can't change.")
            )
        if stated and None not in records:
            return await self._unchanged(append, last)
        return None

    async def _unchanged(self, append: Append, last: LastRecord) -> Outcome:
        """Nothing is written; a repeat of what was gets its own receipt."""
        if append.chosen:
            settled = await self._log.settled(append.retry)
            if settled is not None:
                return settled
        tenant = append.stream.tenant
        done = await self._log.receipt(tenant, event_identity(tenant, last.event_id), last.event_id)
        return NotCommitted("the record before is gone") if done is None else Unchanged(done)

    async def _before(self, stream: Stream, source: Names | None) -> tuple[int, LastRecord | None]:
        ref = None if source is None else SourceRef(*source)
        return await record_before(self._log, stream, ref, self._mapped_to)


def creates_project(spec: Spec, append: Append) -> bool:
    """Whether it may have the first event of a project."""
    projects = None if spec.public_ids is None else spec.public_ids.projects
    return projects is not None and any(of_projects(projects, append))


def of_projects(projects: Projects, append: Append) -> list[bool]:
    """Of each stream of an append, whether it may begin as a project's."""
    lengths = zip(append.streams, append.lengths, strict=True)
    return [stream.aggregate_type == projects.type and asked <= 0 for stream, asked in lengths]


async def _settled(work: Coroutine[None, None, Outcome]) -> Outcome:
    try:
        return await work
    except Busy as busy:
        return NotCommitted(busy.why.rstrip("."))
    except PostgresTrouble:
        return NotCommitted("Postgres does not answer, and the record before is needed")


def _takes(asked: int, length: int) -> bool:
    """Whether an append that asks for no exact length may find this one."""
    return asked == ANY_LENGTH or (asked == AT_LEAST_ONE and length > 0)


def _records(append: Append, rules: Mapping[int, IdentityRule]) -> dict[int, Record | None]:
    """Of the events to streams with a rule, by their numbers."""
    found: dict[int, Record | None] = {}
    for n, event in enumerate(append.events):
        which = 0 if append.spread is None else append.spread.order[n]
        if which in rules:
            data = decode_data(event.payload or b"null")
            found[n] = record_of(rules[which], data, append.streams[which].key, event.type)
    return found


def _with(append: Append, events: tuple[Event, ...], lengths: Sequence[int]) -> Append:
    return make_append(
        append.stream,
        events,
        lengths[0],
        append.retry,
        append.tags,
        append.spread,
        tuple(lengths[1:]),
        append.claims,
        append.claim_paths,
        append.condition,
        append.implied,
        form=append.form,
    )


def _graded(
    records: Sequence[Record | None], last: LastRecord | None, source: Names | None
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


def _tell(append: Append, waiter: Waiter, settled: asyncio.Future[Outcome]) -> None:
    if waiter.done():
        return
    if settled.cancelled() or settled.exception() is not None:
        waiter.set_result(OutcomeUnknown(append.append_id))
    else:
        waiter.set_result(settled.result())
