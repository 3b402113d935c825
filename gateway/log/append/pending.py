"""An append on its way through the log, and what is known of it at each moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from gateway.appends import ANOTHER_HISTORY, Append
from gateway.log.commit_connection import Ready
from gateway.log.entries import SequencedAppend
from gateway.log.limits import Limits
from gateway.log.postgres import REDIS
from gateway.outcomes import NotCommitted, NotUnique, Outcome, OutcomeUnknown
from gateway.telemetry.steps import Link as Span

APPEND_BYTES: Final = 3 * 1024
"""What an append that waits takes beside its packed bytes: its objects, and those of its events."""

PARTITION_SHARE: Final = 4
"""Of what a gateway's queues may hold, one partition's may hold a quarter: one that can't commit leaves the
others their room."""

_ANY_TIME: Final = 2**53
"""As a seq: beyond all that there are."""

# A gateway that stops looks that often whether every append has its outcome.
_DRAINED_EVERY_S = 0.01


class Waiter(Protocol):
    """Receives an append's outcome: a future, or one of many for which futures would cost too much."""

    def done(self) -> bool:
        """Whether it has its outcome, or no longer waits for it."""

    def set_result(self, outcome: Outcome, /) -> None:
        """Must return at once, and do no more than take note."""


class ToldLater(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """A waiter that notes its outcome; `settled` takes it then (ToldTogether.add)."""

    settled: Callable[[Any], None]
    outcome: Outcome | None = None

    def done(self) -> bool:
        return self.outcome is not None

    def set_result(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.settled(self)


_T = TypeVar("_T")


class ToldTogether(Generic[_T]):
    """Waiters that are told in one turn of the event loop are answered together in the next: a callback of
    its own for each costs more than the header of its answer. `failed` gets one whose `answer` raised, within
    the `except`."""

    def __init__(self, answer: Callable[[_T], None], failed: Callable[[_T], None]) -> None:
        self._answer = answer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._told: list[_T] = []

    def add(self, waiter: _T) -> None:
        if not self._told:
            self._loop.call_soon(self._answer_all)
        self._told.append(waiter)

    def _answer_all(self) -> None:
        told, self._told = self._told, []
        for waiter in told:
            try:
                self._answer(waiter)
            except Exception:
                self._failed(waiter)


class Link(msgspec.Struct, gc=False, eq=False):
    """Of an append to `first_version` that was decided on the state that another one leaves, `after`, which
    was not committed then; or that others were decided on. It is placed only where that one was placed at its
    own version, so nothing is appended to another state than the one it was decided on; a `free` one is
    placed anywhere. `placed`: it was sequenced there, in `epoch`, or is `committed` there, and so are those
    before it."""

    first_version: int
    after: Link | None = None
    free: bool = False
    placed: bool = False
    epoch: int = 0
    committed: bool = False

    def holds_in(self, epoch: int) -> bool:
        """Whether it has its place. That of an epoch that has ended is lost, although its gateway may not
        have given it up yet."""
        return self.placed and (self.committed or self.epoch == epoch)


class Look(msgspec.Struct, frozen=True, gc=False):
    """Of a condition: the seq of the first event that matches, 0: none up to `seq`, in this epoch. `lasts`:
    where it told of them, the seq of the last event with each of the condition's tags, 0: none has it. Up to
    the condition's own position none matches, whether anything was asked or not."""

    epoch: int
    seq: int
    matched: int
    lasts: tuple[int, ...] = ()


class Pending(msgspec.Struct, gc=False, eq=False):
    """Mutable, owned by the partition's tasks; nothing that it refers to refers to it.

    `number`: the order of admission in this gateway. `deadline`: by the loop's clock.
    `in_doubt`: a script call that carried it may still run, or ran and was not answered, or its rows are on
    their way to Postgres. While it is False, dropping the append means that it will never appear.
    `again`: it was sequenced before, so Postgres must be asked for it before it is sequenced once more.
    `looked_up`: the partition's seq when Postgres was asked for its identities; None before.
    `hint`: the head in Postgres of a stream that Redis does not have, '<as of>:<head>'; of an append to
    several, one for each, a blank between them.
    `sent`: an earlier call placed it, or may have: the original of a retry may be our own.
    `span`: of the request, where traces are on. `link`: of one that belongs to a row of appends.
    `taken`: by Postgres, when it was asked, another aggregate has a value that it claims. `beyond`: a seq at
    which one of its values was claimed; that has to be committed before Postgres is asked.
    `look`: what Postgres said of its condition, if it has one, or that it need not be asked; None before.
    `told` counts outcomes one by one; those of `resolve_at` are counted by the batch.
    """

    append: Append
    number: int
    deadline: float
    waiter: Waiter
    told: Callable[[Outcome], None]
    hint: str = ""
    in_doubt: bool = False
    again: bool = False
    looked_up: int | None = None
    sent: bool = False
    span: Span | None = None
    link: Link | None = None
    taken: NotUnique | None = None
    beyond: int = 0
    look: Look | None = None

    @property
    def done(self) -> bool:
        return self.waiter.done()

    @property
    def to_look_up(self) -> bool:
        """Whether Postgres must be asked for its identities before it may be sequenced."""
        if self.looked_up is not None:
            return False
        append = self.append
        chosen = self.again or append.retry.chosen or (append.claims and append.claims_values)
        return bool(chosen) and not self.done

    def placed_at(self, first_version: int, epoch: int) -> None:
        link = self.link
        if link is not None:
            after = link.after is None or link.after.holds_in(epoch)
            link.placed, link.epoch = link.first_version == first_version and after, epoch

    def hint_in(self, epoch: int) -> str:
        """`hint`; and before it may have been sequenced, of streams whose keys were made for it what Postgres
        would say of them, as of whenever it is asked: nothing."""
        append = self.append
        if self.hint or not append.fresh or self.again:
            return self.hint
        return _hint_of_fresh(epoch, append.fresh, len(append.streams))

    def reset(self) -> None:
        """It may have been sequenced, in what is not there any more: nothing that was found out holds."""
        self.again = True
        self.looked_up = None
        self.hint = ""
        self.taken = None
        self.look = None
        if self.link is not None:
            self.link.placed = False

    def resolve(self, outcome: Outcome) -> None:
        if not self.waiter.done():
            self.waiter.set_result(outcome)
            self.told(outcome)

    def resolve_at(self, first_version: int, p: int, last_seq: int, versions: tuple[int, ...] = ()) -> bool:
        """It was committed at this version (these, if to several streams), its last event at `last_seq` of
        partition `p`; whether a caller still waited for that."""
        if self.link is not None:
            self.link.after = None  # or each would hold all before it in memory
            self.link.committed = True
        if self.waiter.done():
            return False
        self.waiter.set_result(self.append.committed_at(first_version, p, last_seq, versions))
        return True

    def expire(self) -> None:
        """The deadline has passed: resolves with what is known."""
        if self.in_doubt:
            self.resolve(OutcomeUnknown(self.append.append_id))
        else:
            self.resolve(NotCommitted("it was not sequenced in time; nothing was written"))


@lru_cache(256)
def _hint_of_fresh(epoch: int, fresh: tuple[int, ...], streams: int) -> str:
    empty = f"{epoch}.{_ANY_TIME}:0"
    return " ".join([empty if n in fresh else "" for n in range(streams)])


def expected_of(batch: Sequence[Pending], epoch: int) -> list[float]:
    """What each append asks for, where all are sequenced in this order, in this epoch: its own, and a half
    more where it goes after one of the batch. Where the one that it was decided on has no place, and gets
    none here, no length will do: whether it was committed before is found all the same."""
    expected: list[float] = []
    here: set[int] = set()  # those that get their places, if none before them in the batch is refused
    for pending in batch:
        asked: float = pending.append.expected
        link = pending.link
        if link is not None:
            after = link.after
            within = id(after) in here
            stands = within or after is None or after.holds_in(epoch)
            if within and not link.free:
                asked += 0.5
            elif not (stands or link.free):
                asked = ANOTHER_HISTORY
            if stands:
                here.add(id(link))
        expected.append(asked)
    return expected


class Outstanding(deque[Pending]):
    """Appends handed over that may have no outcome yet, in the order of their deadlines. A deque, since every
    append goes into it."""

    def let_go(self) -> None:
        """Removes the first ones that have their outcome. Called at each script call: those that were just
        answered are still in the processor's cache, where they cost little to free, and their memory is there
        for the next ones; and Python's collector finds no more objects than before."""
        while self and self[0].waiter.done():
            self.popleft()

    def expire(self, now: float) -> None:
        """Resolves the appends whose deadline has passed. Called a few times per second."""
        self.let_go()
        while self and self[0].deadline <= now:
            self.popleft().expire()
            self.let_go()

    @property
    def unsettled(self) -> int:
        """How many have no outcome."""
        return sum(not pending.done for pending in self)

    async def drained(self) -> None:
        """Returns when every one has its outcome."""
        while self.unsettled:  # noqa: ASYNC110 - an event would cost each append, and this is waited for once
            await asyncio.sleep(_DRAINED_EVERY_S)


class Backlog:
    """The memory that all queues of a gateway hold, in bytes."""

    size_bytes = 0


class Queue(deque[Pending]):
    """Appends that wait to be sequenced, in the order of admission, and their size in bytes."""

    size_bytes = 0

    def __init__(self, backlog: Backlog) -> None:
        super().__init__()
        self._backlog = backlog

    def full(self, bytes_max: int) -> bool:
        """Whether no more may be put here, where all queues of the gateway may hold `bytes_max`."""
        return self._backlog.size_bytes >= bytes_max or self.size_bytes * PARTITION_SHARE >= bytes_max

    def put(self, pending: Pending) -> None:
        self.append(pending)
        size = pending.append.size_bytes + APPEND_BYTES
        self.size_bytes += size
        self._backlog.size_bytes += size

    def let_go(self) -> bool:
        """Keeps none at the head that has its outcome; whether there was one. All have the same time to wait,
        so what was expired is there."""
        before = len(self)
        while self and self[0].done:
            self._let_go_of(self.popleft().append.size_bytes + APPEND_BYTES)
        return len(self) < before

    def _let_go_of(self, held: int) -> None:
        self.size_bytes -= held
        self._backlog.size_bytes -= held

    def put_back(self, back: list[Pending]) -> None:
        """Where they were before they were taken."""
        waiting = sorted([*back, *self], key=lambda pending: pending.number)
        self.empty()
        for pending in waiting:
            self.put(pending)

    def empty(self) -> None:
        self.clear()
        self._backlog.size_bytes -= self.size_bytes
        self.size_bytes = 0

    def drop(self, settled: set[Pending]) -> None:
        """Those that need not be sequenced."""
        kept = [pending for pending in self if pending not in settled]
        self.empty()
        for pending in kept:
            self.put(pending)

    def take(self, most: int, limits: Limits, *, looked_up: bool) -> list[Pending]:
        """At most so many, and as many as one call may carry; none beyond one that must be `looked_up` and is
        not yet. What was answered meanwhile (a deadline) falls out here."""
        batch: list[Pending] = []
        most = min(most, limits.sequence_appends_max)
        bytes_max, events_max = limits.sequence_bytes_max, limits.commit_rows_max
        events = size = held = 0
        while self and len(batch) < most:
            pending = self[0]
            if looked_up and pending.to_look_up:
                break
            append = pending.append
            bytes_with, events_with = size + append.size_bytes, events + len(append.events)
            if batch and (bytes_with > bytes_max or events_with > events_max):
                break
            self.popleft()
            held += append.size_bytes + APPEND_BYTES
            if not pending.waiter.done():
                batch.append(pending)
                size, events = bytes_with, events_with
        self._let_go_of(held)
        return batch


class SequencedBatch:
    """What one script call placed, or one look in direct mode, in order; and the (seq, chain) around it.
    `ready`: what its commit sends, where that was made ahead; other calls may have joined it since."""

    __slots__ = ("after", "before", "epoch", "events", "mode", "pendings", "placed", "ready")

    def __init__(
        self, epoch: int, before: tuple[int, str], after: tuple[int, str], mode: str = REDIS
    ) -> None:
        self.mode = mode
        self.epoch = epoch
        self.before = before
        self.after = after
        self.placed: list[SequencedAppend] = []
        self.pendings: list[Pending] = []
        self.events = 0
        self.ready: Ready | None = None

    def add(self, pending: Pending, placed: SequencedAppend) -> None:
        self.pendings.append(pending)
        self.placed.append(placed)
        self.events += len(placed.events)


class Commits(Protocol):
    """Where sequenced calls go."""

    @property
    def appends(self) -> int:
        """How many are sequenced and not committed yet."""

    @property
    def commits_next(self) -> bool:
        """Whether what comes next in the partition is being committed by this gateway."""

    def put(self, sequenced: SequencedBatch) -> None: ...

    async def room(self) -> None:
        """Returns when the next call may be sequenced: one waits at most while another commits."""

    async def settled(self) -> None:
        """Returns when nothing is on its way to Postgres."""
