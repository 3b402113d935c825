"""The outcomes of an append, as values that its caller matches.

Owns: what each outcome says of what is known to have happened. `Appended`, the receipt, is beside the append
that it is made of.
Must not know: the answers that clients get, Redis, Postgres.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.appends import Appended
from gateway.errors import Refusal
from gateway.events import Stream


@dataclass(frozen=True, slots=True)
class Conflict:
    """The stream has `length` committed events, not the number asked for; nothing was written. `which` of
    the append's streams it is."""

    length: int
    which: int = 0


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An identity of this append belongs to another request: which one, and what that request was answered.
    Both are None where the log can't tell any more. Mismatches are equal whatever they tell."""

    by: Literal["idempotency_key", "event_id"] | None = field(default=None, compare=False)
    original: Appended | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The committed event at `seq` of the partition matches the append's condition; nothing was written."""

    seq: int


@dataclass(frozen=True, slots=True)
class UnknownPosition:
    """No event of this history is where the append's condition begins; nothing was written."""


@dataclass(frozen=True, slots=True)
class RuleViolated:
    """Rule number `rule` of event number `event` does not hold on the state of the stream at `length`, its
    committed length at a moment after the append came; nothing was written."""

    event: int
    rule: int
    error: str
    length: int


@dataclass(frozen=True, slots=True)
class NotUnique:
    """The value at `path` is the one of another aggregate, by the committed event at `seq` or, where that is
    0, by an event of this append; nothing was written. `key` is empty where that aggregate would have been
    new: there is none."""

    path: str
    aggregate_type: str
    key: str
    seq: int = field(default=0, compare=False)

    @property
    def holder(self) -> str:
        """For a sentence."""
        if self.key:
            return f"{self.aggregate_type} {self.key}"
        return f"another new {self.aggregate_type} of the same append"


@dataclass(frozen=True, slots=True)
class ImplicationRefused:
    """What event number `event` implies can't be written, so nothing was: `code` of the table of refusals,
    `path` behind the event's own. `by` is the aggregate whose rule refused, if one did."""

    event: int
    code: Literal[
        "invalid_identifier",
        "schema_violation",
        "invalid_tag",
        "invalid_claim",
        "invalid_field",
        "rule_violated",
    ]
    error: str
    path: str
    by: Stream | None = None
    length: int = 0


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The event will never appear."""

    reason: str
    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The event may or may not appear; a retry under the same identity settles it."""

    event_id: bytes


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Postgres refused the rows for a reason only a bug can bring; kept whole for a person to look at."""

    error: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The record is the one before, and nothing was to be written then: whose receipt that is."""

    done: Appended


@dataclass(frozen=True, slots=True)
class Declined:
    """What its type declares of its aggregates does not allow it; nothing was written."""

    refusal: Refusal


Known = (
    Appended
    | UnknownPosition
    | RuleViolated
    | NotUnique
    | ImplicationRefused
    | Mismatch
    | NotCommitted
    | OutcomeUnknown
    | Quarantined
    | Unchanged
    | Declined
)
"""Outcomes that are told without anything else having to be read."""

Outcome = Known | Conflict | ConditionFailed
