"""Every refusal the service can give, in one table, in the order of the checks.

Owns: codes, statuses, and what each says about the event it refused.
Must not know: HTTP headers, Redis, Postgres.

Source: the contract's table of refusals; docs/http-api.md repeats it and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Known(Enum):
    """What is known to have happened to the event of a refused append."""

    NOTHING = "nothing was written, and a repeat of the same request is refused again"
    NEVER = "nothing was written and this request never will be; retry at will"
    UNKNOWN = "the event may or may not be there; retry with the same key until it is settled"
    NOT_AN_APPEND = "the request was a read"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: how a code is answered."""

    status: int
    retryable: bool
    known: Known


# In the order in which a request is checked; the first that fails answers.
REFUSALS: dict[str, Rule] = {
    "bad_request": Rule(400, False, Known.NOTHING),
    "unauthorized": Rule(401, False, Known.NOTHING),
    "not_found": Rule(404, False, Known.NOT_AN_APPEND),
    "method_not_allowed": Rule(405, False, Known.NOTHING),
    "forbidden": Rule(403, False, Known.NOTHING),
    "tenant_suspended": Rule(403, False, Known.NOTHING),
    "rate_limited": Rule(429, True, Known.NEVER),
    "unknown_parameter": Rule(400, False, Known.NOTHING),
    "reserved_event_type": Rule(422, False, Known.NOTHING),
    "unknown_aggregate_type": Rule(404, False, Known.NOTHING),
    "unknown_event_type": Rule(404, False, Known.NOTHING),
    "invalid_identifier": Rule(422, False, Known.NOTHING),
    "unknown_alias": Rule(404, False, Known.NOTHING),
    "ambiguous_alias": Rule(422, False, Known.NOTHING),
    "invalid_field": Rule(422, False, Known.NOTHING),
    "unknown_tag": Rule(422, False, Known.NOTHING),
    "not_listed": Rule(422, False, Known.NOT_AN_APPEND),
    "invalid_position": Rule(400, False, Known.NOT_AN_APPEND),
    "unsupported_media_type": Rule(415, False, Known.NOTHING),
    "too_large": Rule(413, False, Known.NOTHING),
    "invalid_json": Rule(400, False, Known.NOTHING),
    "missing_field": Rule(422, False, Known.NOTHING),
    "unknown_field": Rule(422, False, Known.NOTHING),
    "contradiction": Rule(422, False, Known.NOTHING),
    "unknown_actor_type": Rule(422, False, Known.NOTHING),
    "unknown_target_type": Rule(422, False, Known.NOTHING),
    "schema_violation": Rule(422, False, Known.NOTHING),
    "invalid_tag": Rule(422, False, Known.NOTHING),
    "invalid_claim": Rule(422, False, Known.NOTHING),
    "storage_full": Rule(403, False, Known.NOTHING),
    "depth_exceeded": Rule(422, False, Known.NOTHING),
    "idempotency_mismatch": Rule(422, False, Known.NOTHING),
    "content_differs": Rule(409, False, Known.NOTHING),
    "version_conflict": Rule(409, False, Known.NOTHING),
    "condition_failed": Rule(409, False, Known.NOTHING),
    "rule_violated": Rule(422, False, Known.NEVER),
    "not_unique": Rule(409, False, Known.NEVER),
    "invalid_spec": Rule(422, False, Known.NOT_AN_APPEND),
    "spec_conflict": Rule(409, False, Known.NOT_AN_APPEND),
    "declared_by_spec": Rule(409, False, Known.NOT_AN_APPEND),
    "schedule_ended": Rule(409, False, Known.NOT_AN_APPEND),
    "saga_not_stuck": Rule(409, False, Known.NOT_AN_APPEND),
    "key_taken": Rule(409, False, Known.NOTHING),
    "source_taken": Rule(409, False, Known.NOTHING),
    "tenant_conflict": Rule(409, False, Known.NOT_AN_APPEND),
    "state_too_large": Rule(422, False, Known.NOT_AN_APPEND),
    "not_committed": Rule(503, True, Known.NEVER),
    "behind": Rule(503, True, Known.NOT_AN_APPEND),
    "unavailable": Rule(503, True, Known.NOT_AN_APPEND),
    "outcome_unknown": Rule(504, True, Known.UNKNOWN),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request. `path` names the place at fault; `status` overrides the table's
    where the contract gives a code two (431 for too many headers, 422 for an event type in a batch);
    `candidates` are what an abbreviation could be short for, `version` is the event that is to blame,
    `listed` the fields that can be asked for, `position` how far a list has come."""

    code: str
    error: str
    path: str | None = None
    status: int | None = None
    candidates: tuple[str, ...] = ()
    version: int | None = None
    listed: tuple[str, ...] | None = None
    position: str | None = None

    @property
    def http_status(self) -> int:
        return self.status if self.status is not None else REFUSALS[self.code].status
