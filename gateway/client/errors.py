"""Why a call did not succeed, and what is known to have happened."""

from __future__ import annotations

from typing import Any

from gateway.client.model import Event


class SluiceError(Exception):
    """The base of all errors below."""


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
    """The stream has `length` events, another number than `previous_length`. `missed` are the events in
    between, oldest first; `missed_next` is the version from which to read the rest, if there is more."""

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
    """Events that the condition excludes are committed: `matched`, oldest first; `matched_next` is the
    position from which to read the rest, if there is more. `position` is after all of them: after a new
    decision, append with it as `after`."""

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
    """Another aggregate, `aggregate_type` and `key`, has the value at `path`."""

    def __init__(self, error: str, path: str | None, body: dict[str, Any], holder: dict[str, str]) -> None:
        super().__init__(409, "not_unique", error, path, body)
        self.aggregate_type = holder["aggregate_type"]
        self.key = holder["key"]


class Unavailable(SluiceError):
    """No answer came before the client's patience ended. Appends raise NotCommitted or OutcomeUnknown."""


class NotCommitted(Unavailable):
    """No success before the client's patience ended; the append's events will never appear."""


class OutcomeUnknown(SluiceError):
    """The events may or may not be committed. The same call with this `idempotency_key` settles it, at any
    time; it is the call's own key if it had one."""

    def __init__(self, why: str, idempotency_key: str) -> None:
        super().__init__(f"{why}; repeat the call with idempotency_key={idempotency_key!r} to settle it")
        self.idempotency_key = idempotency_key
