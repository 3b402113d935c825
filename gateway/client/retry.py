"""Attempts of one call: what to send, how long to wait, when to give up. Pure; a client carries it out.

Source: the table of refusals and docs/guarantees.md, which say of each answer whether it may be repeated and
what is known of the event.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from gateway.client.errors import (
    ConditionFailed,
    Conflict,
    NotCommitted,
    NotUnique,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from gateway.client.model import Event
from gateway.errors import REFUSALS, Known

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the reading of a text as JSON raises."""
_NOT_OURS = "the answer is not from the service"


@dataclass(frozen=True, slots=True)
class Patience:
    """How a client retries: waits double from `first_s` to `most_s`, each shortened by up to half at random,
    never below `Retry-After`, until `give_up_s` have passed since the first attempt."""

    give_up_s: float = 60.0
    first_s: float = 0.05
    most_s: float = 5.0

    def pause_s(self, failures: int, chance: float) -> float:
        """After this many failures in a row; `chance` is from 0 to 1."""
        return float(min(self.first_s * 2 ** min(failures - 1, 30), self.most_s)) * (1 - chance / 2)


@dataclass(frozen=True, slots=True)
class Request:
    """`wait_s` is how long the service may take before it answers, beside its own deadlines."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes | None = None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` by lower-case name."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no answer. `sent`: the request may have arrived all the same."""

    why: str
    sent: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """To wait before the next attempt, and why the one before did not do."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how its answer is read. `idempotency_key` is an append's."""

    request: Request
    read: Callable[[Answer], T]
    idempotency_key: str | None = None


Attempts = Generator["Request | Pause", "Answer | Lost | None", T]


def attempts(
    call: Call[T], patience: Patience, clock: Callable[[], float], chance: Callable[[], float]
) -> Attempts[T]:
    """Yields a request, to be sent the answer or the loss of it; or a pause. Returns what the answer
    says. Raises Refused and what is below SluiceError else."""
    until, failures, unknown = clock() + patience.give_up_s, 0, False
    while True:
        got = yield call.request
        assert got is not None
        if isinstance(got, Answer) and 200 <= got.status < 300:
            try:
                return call.read(got)
            except UNREADABLE as fault:  # a proxy's page: that is no word of what the gateway did
                if call.idempotency_key is not None:
                    raise OutcomeUnknown(f"{got.status}: {_NOT_OURS}", call.idempotency_key) from fault
                raise Refused(got.status, "unknown", _NOT_OURS, None, {}) from fault
        if isinstance(got, Answer) and not may_repeat(got):
            refused = refusal(got)
            says_nothing = got.status in (401, 403) or _body(got).get("code") not in REFUSALS
            if unknown and call.idempotency_key is not None and says_nothing:
                # The key was revoked meanwhile, or a proxy answered: that is no word of the attempt before.
                raise OutcomeUnknown(str(refused), call.idempotency_key)
            raise refused
        failures += 1
        unknown = unknown or written(got)
        pause_s = max(patience.pause_s(failures, chance()), retry_after_s(got))
        if clock() + pause_s > until:
            raise _given_up(call.idempotency_key, got, unknown)
        yield Pause(pause_s, why_of(got))


def may_repeat(answer: Answer) -> bool:
    """By its code; what is not ours (a proxy's page) by its status."""
    rule = REFUSALS.get(_body(answer).get("code", ""))
    return rule.retryable if rule else answer.status == 429 or answer.status >= 500


def written(got: Answer | Lost) -> bool:
    """Whether the append that failed so may have been written all the same."""
    if isinstance(got, Lost):
        return got.sent
    rule = REFUSALS.get(_body(got).get("code", ""))
    return rule is None or rule.known is Known.UNKNOWN


def retry_after_s(got: Answer | Lost) -> float:
    text = got.headers.get("retry-after", "") if isinstance(got, Answer) else ""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def refusal(answer: Answer) -> Refused:
    """What an answer that is no success says."""
    body = _body(answer)
    error = body.get("error", _NOT_OURS)
    if body.get("code") == "version_conflict" and "missed" in body:
        missed = msgspec.json.decode(answer.content, type=_Missed).missed
        return Conflict(error, body, body["length"], missed, body["missed_next"])
    if body.get("code") == "condition_failed" and "matched" in body:
        matched = msgspec.json.decode(answer.content, type=_Matched).matched
        return ConditionFailed(error, body, matched, body["matched_next"], body["position"])
    if body.get("code") == "not_unique" and "holder" in body:
        return NotUnique(error, body.get("path"), body, body["holder"])
    return Refused(answer.status, body.get("code", "unknown"), error, body.get("path"), body)


class _Matched(msgspec.Struct):
    matched: tuple[Event, ...]


class _Missed(msgspec.Struct):
    missed: tuple[Event, ...]


def _body(answer: Answer) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(answer.content)
    except UNREADABLE:
        return {}
    return body if isinstance(body, dict) else {}


def why_of(got: Answer | Lost) -> str:
    return got.why if isinstance(got, Lost) else str(refusal(got))


def _given_up(
    idempotency_key: str | None, got: Answer | Lost, unknown: bool
) -> OutcomeUnknown | NotCommitted | Unavailable:
    why = why_of(got)
    if idempotency_key is None:
        return Unavailable(why)
    return OutcomeUnknown(why, idempotency_key) if unknown else NotCommitted(why)
