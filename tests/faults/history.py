"""What the clients of a run did and were told: operations with their tries, and observations of readers.

Owns the meaning of an answer, by docs/guarantees.md: which of them settle an operation, and how. Times are
seconds by `now`. Must not know how requests are sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from time import monotonic
from typing import NamedTuple

now = monotonic
"""Not the event loop's time: uvloop's is in whole milliseconds, as of the beginning of its turn, and within
one a gateway answers both an append and a read."""

AT_LEAST_ONE = -1
"""As `Operation.expected`: `If-Match: *`."""


class StreamName(NamedTuple):
    """An aggregate; `tenant` is an index into the tenants of the run."""

    tenant: int
    aggregate_type: str
    key: str


class Receipt(NamedTuple):
    """What a 201 says."""

    key: str
    event_ids: tuple[str, ...]
    first_version: int
    length: int


class Identity(Enum):
    """What a repeated request is known by."""

    NONE = "none"
    KEY = "Idempotency-Key"
    EVENTS = "event ids chosen by the client"
    ANSWERED = "the event id that a 504 names"


class Verdict(Enum):
    """What is known of an operation."""

    COMMITTED = "committed"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Try:
    """One request. `status` 0: no answer. `reached` False: no byte of it was sent."""

    gateway: int
    sent: float
    answered: float = inf
    status: int = 0
    code: str = ""
    why: str = ""
    reached: bool = True
    receipt: Receipt | None = None
    replayed: bool = False
    length: int | None = None  # of a 409
    event_id: str | None = None  # of a 504, or of the answer to a webhook
    adopts: bool = False  # it carried the event id of an earlier 504


@dataclass(slots=True)
class Operation:
    """One append that a client wants to happen once. Payloads are unique in the run."""

    id: str
    kind: str
    tenant: int
    aggregate_type: str
    key: str | None  # None: the gateway mints it
    payloads: tuple[bytes, ...]
    identity: Identity = Identity.NONE
    idempotency_key: str | None = None
    event_ids: tuple[str, ...] = ()
    expected: int | None = None
    if_match: bool = False  # `expected` goes into the header
    batch: bool = False
    stolen: bool = False  # under an identity that belongs to another operation: has to be refused
    outdated: str = ""  # why it has to be refused: what allowed it had ended before it could be read
    tries: list[Try] = field(default_factory=list)

    @property
    def invoked(self) -> float:
        return self.tries[0].sent if self.tries else inf

    @property
    def receipts(self) -> list[Receipt]:
        return [each.receipt for each in self.tries if each.receipt is not None]

    @property
    def completed(self) -> float:
        """When a client first knew that it is committed; infinite when none does."""
        return min((each.answered for each in self.tries if self._commits(each)), default=inf)

    @property
    def verdict(self) -> Verdict:
        if any(self._commits(each) for each in self.tries):
            return Verdict.COMMITTED
        if any(self._settles_absent(each) for each in self.tries) or all(map(never, self.tries)):
            return Verdict.ABSENT
        return Verdict.UNKNOWN

    def _commits(self, one: Try) -> bool:
        """The event id of a 504 under other bytes: 422 says that the original is committed."""
        return one.status == 201 or (one.adopts and one.code == "idempotency_mismatch")

    def _settles_absent(self, one: Try) -> bool:
        """A 409 speaks of earlier tries too where the request bears an identity."""
        if one.status != 409:
            return False
        return one.adopts if self.identity in (Identity.NONE, Identity.ANSWERED) else True


def never(one: Try) -> bool:
    """Whether this request will never append anything, whatever others under its identity do."""
    if not one.reached:
        return True
    return 400 <= one.status < 500 or one.status == 503


class Seen(NamedTuple):
    """An event as a reader got it; `data` byte for byte."""

    version: int
    event_id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Observation:
    """What one read showed. `length` None: it does not tell. `folded` is (count, last payload's op) of a
    state; `lowest` and `highest` bound the versions that had to be among `events`."""

    what: str
    gateway: int
    asked: float
    answered: float
    stream: StreamName
    length: int | None
    events: tuple[Seen, ...] = ()
    lowest: int = 1
    highest: int = 0
    folded: tuple[int, str | None] | None = None
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A partition's row in Postgres at some moment."""

    at: float
    partition: int
    epoch: int
    seq: int
    chain: str
    direct: bool = False


@dataclass(slots=True)
class Fault:
    """One fault: injected at `begun`, healed at `ended`. `told` says what exactly was done. `splits`:
    gateways may have disagreed about Redis meanwhile."""

    name: str
    begun: float
    ended: float = inf
    told: str = ""
    splits: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """After faults: how long until every partition accepted appends at every gateway; None: it was given up
    after that time."""

    at: float
    after: tuple[str, ...]
    seconds: float
    stuck: tuple[str, ...] = ()
    starved_s: float = 0.0
    """Of these seconds, how long the rig itself had no CPU because of other programs."""


@dataclass(slots=True)
class SetBack:
    """Postgres lost commits: gateways were led to it at `begun`; an operator worked from `mending` to
    `ended`.
    `alarmed`: when each partition's alarm was seen. `overtaken`: the same, where gateways that knew nothing
    of what was lost had appended to its positions before: these go on. `given_up`: those that were rewound,
    because no journal had what was missing."""

    begun: float
    mending: float = inf
    ended: float = inf
    alarmed: dict[int, float] = field(default_factory=dict)
    overtaken: dict[int, float] = field(default_factory=dict)
    given_up: frozenset[int] = frozenset()


@dataclass(slots=True)
class History:
    """Everything that the rig saw in one episode, in order of its beginning."""

    operations: list[Operation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    set_backs: list[SetBack] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    """Bounds of what gateways may take that were passed."""
    reads_refused: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    """Answers that the contract does not have, and tries that should have been refused."""

    def until(self, cutoff: float) -> History:
        """As it was known at that time: later answers count as not given yet. A check on a running system
        compares this with what the servers hold afterwards."""
        operations = [
            replace(each, tries=[_as_of(one, cutoff) for one in each.tries]) for each in self.operations
        ]
        observations = [each for each in self.observations if each.answered <= cutoff]
        return replace(self, operations=operations, observations=observations)

    @property
    def mended(self) -> bool:
        """Whether no operator is at work on a Postgres that lost commits."""
        return all(each.ended < inf for each in self.set_backs)

    def without_given_up(self, partition_of: Callable[[int], int]) -> History:
        """What is still promised, where `partition_of` has the partition of a tenant: of a partition that was
        rewound, nothing that was told of requests sent before; of one whose alarm was raised, no length while
        it was."""
        operations, observations = self.operations, self.observations
        for back in self.set_backs:
            operations = [
                replace(each, tries=[_after(back, partition_of(each.tenant), one) for one in each.tries])
                for each in operations
            ]
            observations = [
                each for each in observations if not _of_before(back, partition_of(each.stream.tenant), each)
            ]
        return replace(self, operations=operations, observations=observations)


def _after(back: SetBack, partition: int, one: Try) -> Try:
    if partition in back.given_up and one.sent < back.ended:
        return Try(one.gateway, one.sent, adopts=one.adopts)
    if partition in (back.alarmed | back.overtaken) and one.sent < back.ended and one.answered > back.begun:
        return replace(one, length=None)
    return one


def of_lost_history(back: SetBack, partition: int, operation: Operation, one: Try) -> bool:
    """Whether its ETag is of before a rewind: it bears no mark, and is to match nothing."""
    marked = operation.if_match and (operation.expected or 0) > 0  # an empty stream has no history
    return marked and partition in back.given_up and one.sent >= back.ended


def _of_before(back: SetBack, partition: int, seen: Observation) -> bool:
    if seen.asked >= back.ended:
        return False
    missed = partition in (back.alarmed | back.overtaken) and seen.answered > back.begun
    return partition in back.given_up or missed


def _as_of(one: Try, cutoff: float) -> Try:
    if one.answered <= cutoff:
        return one
    return Try(one.gateway, one.sent, adopts=one.adopts)
