"""What the log says of an append, as an answer: status, body, headers. One place for single appends, batches
and bulk lines."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

import msgspec

from gateway.admit.append import SPEC_REFUSALS, Fault
from gateway.appends import ANOTHER_HISTORY, Append, Appended, Retry
from gateway.catalog.narrowness import Only
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import render
from gateway.items import Condition
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.outcomes import (
    ConditionFailed,
    Conflict,
    Declined,
    ImplicationRefused,
    Known,
    Mismatch,
    NotCommitted,
    NotUnique,
    Outcome,
    OutcomeUnknown,
    Quarantined,
    RuleViolated,
    Unchanged,
    UnknownPosition,
)
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.outbox import Filter, LostPlace, Outbox, Page
from gateway.relay.position import START, Place, encode, encode_one
from spec.identifiers import uuid_text

MISSED_EVENTS_MAX = 100
MISSED_BYTES_MAX = 256 * 1024


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A status and a body; `length` where the ETag names one, `done` where something was appended."""

    status: int
    body: bytes
    length: int | None = None
    retry_after_s: int | None = None
    done: Appended | None = None

    @property
    def replayed(self) -> bool:
        return self.done is not None and self.done.replayed


def refused(refusal: Refusal, retry_after_s: int | None = None, **more: object) -> Answer:
    body = render.refusal_json(refusal, more or None)
    if retry_after_s is None and refusal.http_status == 503:
        retry_after_s = 1
    return Answer(refusal.http_status, body, retry_after_s=retry_after_s)


class Outcomes:
    def __init__(self, log: Log, outbox: Outbox) -> None:
        self._log = log
        self._outbox = outbox

    async def of_append(
        self,
        append: Append | None,
        outcome: Outcome,
        *,
        minimal: bool,
        batch: bool = False,
        only: Only | None = None,
    ) -> Answer:
        """`minimal` leaves out what a 409's caller missed; `batch` is the receipt of several; `only` is what
        the caller's key is narrowed to."""
        if isinstance(outcome, ConditionFailed):
            assert append is not None and append.condition is not None
            return await self.of_condition(append.stream.tenant, append.condition, minimal=minimal)
        if not isinstance(outcome, Conflict):
            return known(outcome, batch=batch, only=only)
        assert append is not None
        return await self.of_conflict(append.stream, append.expected, outcome.length, minimal=minimal)

    async def of_several(self, append: Append, outcome: Outcome, *, minimal: bool) -> Answer:
        """The same of an append whose events name their aggregates."""
        if not isinstance(outcome, Conflict):
            return await self.of_append(append, outcome, minimal=minimal, batch=True)
        which = outcome.which
        first = 0 if append.spread is None else append.spread.order.index(which)
        expected = append.lengths[which]
        stream, path = append.streams[which], f"events[{first}].previous_length"
        return await self.of_conflict(stream, expected, outcome.length, minimal=minimal, path=path)

    async def of_fault(self, fault: Fault, *, batch: bool = False) -> Answer:
        """The refusal, unless the request repeats one that is committed: that is answered with its receipt,
        whatever the spec says by now."""
        retry = to_look_up(fault)
        earlier = None if retry is None else await self.of_retry(retry, batch=batch)
        if earlier is None or earlier.status == _MISMATCH.http_status:  # the later fault of the two
            return refused(fault.refusal)
        return earlier

    async def of_retry(self, retry: Retry, *, batch: bool, only: Only | None = None) -> Answer | None:
        """What is settled already under the identities that the client chose; None where nothing is."""
        if not retry.chosen:
            return None
        try:
            found = await self._log.settled(retry)
        except PostgresTrouble:
            why = "The event will never appear by this request: Postgres does not answer."
            return refused(Refusal("not_committed", why), 1)
        return None if found is None else known(found, batch=batch, only=only)

    async def of_conflict(
        self, stream: Stream, expected: int, length: int, *, minimal: bool, path: str | None = None
    ) -> Answer:
        """The stream is `length` long, not as `expected`; `path` is where that is in the request."""
        if expected == ANOTHER_HISTORY:
            wanted, expected = "and `If-Match` names another history: `sluice rewind` gave events up", 0
        else:
            wanted = f"expected {expected}" if expected >= 0 else "expected at least one"
        events = "1 event" if length == 1 else f"{length} events"
        refusal = Refusal(
            "version_conflict", f"Concurrent write detected. Stream has {events}, {wanted}.", path
        )
        more: dict[str, object] = {"length": length}
        if not minimal:
            more |= await self._missed(stream, max(expected, 0), length)
        return Answer(409, render.refusal_json(refusal, more), length)

    async def of_condition(self, tenant: bytes, condition: Condition, *, minimal: bool) -> Answer:
        """A committed event matches: what does, bounded, and a position behind all of it."""
        wanted, p = Filter(tenant, items=condition.items), self._outbox.partition(tenant)
        after = START.moved(p, Place(condition.after, condition.mark))
        try:
            page = None
            if not minimal:
                page = await self._outbox.page(wanted, after, MISSED_EVENTS_MAX, MISSED_BYTES_MAX)
            told = {} if page is None else _matched(page)
            whole = page is not None and told["matched_next"] is None
            position = page.position if page is not None and whole else await self._outbox.end(tenant)
        except (PostgresTrouble, LostPlace):
            why = "The event will never appear: its condition failed; the matching events can't be read now."
            return refused(Refusal("not_committed", why), 1)
        return refused(_CONDITION_FAILED, None, **told, position=encode(position))

    async def _missed(self, stream: Stream, known: int, length: int) -> dict[str, object]:
        """What the caller has not seen, oldest first, bounded; it can page on from `missed_next`."""
        if known >= length:
            return {"missed": [], "missed_next": None}
        try:
            wanted = Range(stream, known + 1, length, MISSED_EVENTS_MAX, bytes_max=MISSED_BYTES_MAX)
            page = await self._log.page(wanted)
        except PostgresTrouble:
            return {"missed": [], "missed_next": known + 1}
        parts: list[object] = []
        size = 1  # the opening bracket
        for recorded in page.events:
            part = render.event_json(recorded)
            size += len(part) + 1  # and a comma, or the closing bracket
            if size > MISSED_BYTES_MAX:
                break
            parts.append(render.raw(part))
        seen = known + len(parts)
        return {"missed": parts, "missed_next": seen + 1 if seen < length else None}


def _matched(page: Page) -> dict[str, object]:
    """Oldest first; `matched_next` is where to read on, if that is not all."""
    parts: list[object] = []
    size, last = 1, None
    for entry in page.entries:
        part = render.fed_json(entry.recorded, encode_one(page.p, entry.place))
        size += len(part) + 1
        if size > MISSED_BYTES_MAX and parts:
            break
        parts.append(render.raw(part))
        last = encode_one(page.p, entry.place)
    whole = len(parts) == len(page.entries)
    following = None if whole and page.caught_up else encode(page.position) if whole else last
    return {"matched": parts, "matched_next": following}


def known(outcome: Known, *, batch: bool, only: Only | None = None) -> Answer:
    """A key that is `only` for something hears nothing of other aggregates."""
    match outcome:
        case Appended():
            return appended(outcome, batch=batch)
        case Unchanged(done):
            return unchanged(done, batch=batch)
        case Declined(refusal):
            return refused(refusal)
        case UnknownPosition():
            return refused(_UNKNOWN_POSITION)
        case RuleViolated(event, rule, error, length):
            path = f"events[{event}].rules[{rule}]" if batch else f"rules[{rule}]"
            return refused(Refusal("rule_violated", error, path), length=length)
        case NotUnique(path, aggregate_type, key) if only is not None and not only.reads(aggregate_type, key):
            return refused(Refusal("not_unique", "Another aggregate has this value.", path))
        case NotUnique(path, key="", holder=new):
            return refused(Refusal("not_unique", f"This value is claimed by {new}.", path))
        case NotUnique(path, aggregate_type, key):
            why = f"Another aggregate has this value: {aggregate_type} {key}."
            holder = {"aggregate_type": aggregate_type, "key": key}
            return refused(Refusal("not_unique", why, path), holder=holder)
        case ImplicationRefused(event, code, error, path, by, length):
            place = f"events[{event}].{path}" if batch else path
            refusal = replace(Refusal("schema_violation", error, place), code=code)
            if by is None:
                return refused(refusal)
            if only is not None and not only.reads(by.aggregate_type, by.key):
                return refused(refusal, length=length)
            return refused(refusal, aggregate_type=by.aggregate_type, key=by.key, length=length)
        case Mismatch(by, original):
            return _mismatched(by, original if only is None else None)
        case NotCommitted(reason, retry_after_s):
            refusal = Refusal("not_committed", f"The event will never appear: {reason}.")
            return refused(refusal, retry_after_s)
        case Quarantined(error):
            why = f"Postgres rejected it ({error}); it is quarantined for the operator."
            return refused(Refusal("not_committed", f"The event will never appear: {why}"), 30)
        case OutcomeUnknown(event_id):
            return refused(_UNKNOWN, 1, event_id=uuid_text(event_id))
        case _:
            assert_never(outcome)


def _mismatched(by: str | None, original: Appended | None) -> Answer:
    """With the receipt of the request that holds the identity, in the form in which it was given."""
    if by is None:
        return refused(_MISMATCH)
    what = "Idempotency-Key" if by == "idempotency_key" else "event_id"
    why = f"This {what} belongs to another request (path, body or version differ)"
    if original is None:
        return refused(Refusal("idempotency_mismatch", f"{why}. {_A_NEW_ONE}"), by=by)
    receipt = appended(original, batch=original.of_batch).body
    refusal = Refusal("idempotency_mismatch", f"{why}, which `receipt` answered. {_A_NEW_ONE}")
    return refused(refusal, by=by, receipt=render.raw(receipt))


def to_look_up(fault: Fault) -> Retry | None:
    """What may have been accepted under an earlier spec, although this one refuses it; None: nothing."""
    retry = fault.retry
    if retry is None or not retry.chosen or fault.refusal.code not in SPEC_REFUSALS:
        return None
    return retry


def appended(done: Appended, *, batch: bool) -> Answer:
    if done.places:
        return Answer(201, render.receipt_of_several_json(done, ""), done=done)
    body = render.batch_receipt_json(done) if batch else render.receipt_json(done)
    return Answer(201, body, done.length, done=done)


def unchanged(done: Appended, *, batch: bool) -> Answer:
    """The receipt of the record before, for one that says the same: nothing was written. It is no replay: the
    record before came by a request of its own."""
    body = appended(done, batch=batch or len(done.event_ids) > 1).body
    done = msgspec.structs.replace(done, replayed=False)
    return Answer(200, render.with_member(body, b'"unchanged":true'), done.length, done=done)


def unforeseen(method: str) -> Refusal:
    """A bug of ours: logged whole, told without detail."""
    if method == "POST":
        return Refusal(
            "outcome_unknown",
            "Something failed inside the gateway. Retry with the same Idempotency-Key or event_id.",
        )
    return Refusal("unavailable", "Something failed inside the gateway. Try again shortly.")


_CONDITION_FAILED = Refusal(
    "condition_failed",
    "An event that the condition excludes is committed after the position `after`.",
    "condition",
)
_UNKNOWN_POSITION = Refusal(
    "invalid_position",
    "`after` is not a position in this feed: nothing was committed there.",
    "condition.after",
)
_A_NEW_ONE = "Use a new one for a new request."
_MISMATCH = Refusal(
    "idempotency_mismatch",
    "This Idempotency-Key or event_id belongs to another request (path, body or version differ). "
    f"{_A_NEW_ONE}",
)
_UNKNOWN = Refusal(
    "outcome_unknown",
    "The event may or may not be there. Retry with the same Idempotency-Key, or with this event_id as "
    "metadata.event_id, until the answer is 201, 409 or idempotency_mismatch.",
)
