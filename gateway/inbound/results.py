"""What became of a request: values that the intake makes and the edge answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from gateway.appends import Appended, FeedPlace
from gateway.inbound.handshakes import Answered
from gateway.inbound.normalize import Quarantine
from gateway.inbound.verdicts import Rejected
from gateway.outcomes import (
    ConditionFailed,
    Conflict,
    Declined,
    ImplicationRefused,
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

OTHER_BYTES: Final = Quarantine(
    "idempotency_mismatch", "A delivery of this id came before with other bytes; its event is unchanged."
)

NOT_THERE: Final = Quarantine(
    "not_found", "There is no such aggregate yet, and `to.must_exist` requires one."
)


class Told(msgspec.Struct, frozen=True, gc=False):
    """What became of one delivery. Without an event it is in quarantine, or by `to.when` and `to.types`
    `ignored`; `last` is the event's place."""

    event_id: bytes | None
    duplicate: bool = False
    last: FeedPlace | None = None
    ignored: bool = False


IGNORED: Final = Told(None, ignored=True)


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """All deliveries of a request are settled; `batch`: the answer lists them."""

    deliveries: tuple[Told, ...]
    batch: bool


@dataclass(frozen=True, slots=True)
class Deferred:
    """Not all of it is committed, and the sender should come again. `unknown`: it may be all the same."""

    why: str
    unknown: bool
    retry_after_s: int = 1


TOO_SLOW: Final = Deferred("it takes longer than the sender waits", unknown=True)
NO_CERTIFICATE: Final = Deferred("the certificate of its signature is not available", unknown=False)
STORAGE_FULL: Final = Deferred(
    "its tenant has reached the limit of stored bytes", unknown=False, retry_after_s=60
)
BEING_REMOVED: Final = Deferred("a deployment may be removing the event that it becomes", unknown=False)
FAILED: Final = Deferred("something failed inside the gateway", unknown=True)
NO_POSTGRES: Final = Deferred("Postgres answered unexpectedly", unknown=False)

Result = Answered | Rejected | Accepted | Deferred


def judged(outcome: Outcome) -> Appended | Quarantine | Deferred:
    """What the outcome of its append means for a delivery."""
    match outcome:
        case Appended():
            return outcome
        case Mismatch():
            return OTHER_BYTES
        case NotCommitted(reason, retry_after_s):
            return Deferred(reason, unknown=False, retry_after_s=retry_after_s)
        case Quarantined(error):
            return Deferred(f"Postgres rejected it ({error}); it is quarantined for the operator", False, 30)
        case OutcomeUnknown():
            return Deferred("its outcome is not known yet", unknown=True)
        case Conflict():
            return NOT_THERE
        case NotUnique(path=path, holder=holder):
            return Quarantine("not_unique", f"{path}: {holder} has this value.")
        case RuleViolated(error=error):
            return Quarantine("rule_violated", error)
        case Unchanged(done):
            return msgspec.structs.replace(done, replayed=True)
        case Declined(refusal):
            return Quarantine(refusal.code, refusal.error)
        case ConditionFailed() | UnknownPosition():  # a delivery has no condition
            return FAILED
        case ImplicationRefused(code="rule_violated", error=error, path=path):
            return Quarantine("rule_violated", f"{path}: {error}")
        case ImplicationRefused(error=error, path=path):
            return Quarantine("schema_violation", f"{path}: {error}")
        case _:
            assert_never(outcome)
