"""Why a call did not succeed, and what is known to have happened."""

from __future__ import annotations

from typing import Any

from gateway.client.model import Event


class SluiceError(Exception):
    """Any of the below."""


class Refused(SluiceError):
    """The service refused the request and would refuse it again, or it can't be sent as it is. Nothing was
    written."""

    def __init__(self, status: int, code: str, error: str, path: str | None, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {code}: {error}" + (f" ({path})" if path else ""))
        self.status = status
        self.code = code
        self.error = error
        self.path = path
        self.body = body


class Conflict(Refused):
    """The stream has `length` events, not as many as `previous_length` said. `missed` are those that came in
    between, from the oldest on; `missed_next` is the version to read on from where that was not all."""

    def __init__(
        self,
        error: str,
        body: dict[str, Any],
        length: int,
        missed: tuple[Event, ...],
        missed_next: int | None,
    ) -> None:
        super().__init__(409, "version_conflict", error, None, body)
        self.length = length
        self.missed = missed
        self.missed_next = missed_next


class ConditionFailed(Refused):
    """Events that the condition excludes are committed: `matched`, from the oldest on; `matched_next` is the
    position to read on from where that was not all. `position` lies behind all of them: after a new decision,
    append with it as `after`."""

    def __init__(
        self,
        error: str,
        body: dict[str, Any],
        matched: tuple[Event, ...],
        matched_next: str | None,
        position: str,
    ) -> None:
        super().__init__(409, "condition_failed", error, "condition", body)
        self.matched = matched
        self.matched_next = matched_next
        self.position = position


class NotUnique(Refused):
    """The value at `path` is the one of another aggregate: of `aggregate_type` and `key`."""

    def __init__(self, error: str, path: str | None, body: dict[str, Any], holder: dict[str, str]) -> None:
        super().__init__(409, "not_unique", error, path, body)
        self.aggregate_type = holder["aggregate_type"]
        self.key = holder["key"]


class Unavailable(SluiceError):
    """No answer within the time that the client has patience for: nothing was asked to be written."""


class NotCommitted(Unavailable):
    """The same of an append, of which it is known that its events will never appear."""


class OutcomeUnknown(SluiceError):
    """The events may or may not be there. The same call with this `idempotency_key` settles it, whenever it
    is made; the key was the call's own if it named one."""

    def __init__(self, why: str, idempotency_key: str) -> None:
        super().__init__(f"{why}; repeat the call with idempotency_key={idempotency_key!r} to settle it")
        self.idempotency_key = idempotency_key
