"""Judges timers and sagas: those that wait for an operator, and whether gateways process the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.operations.findings import Finding, Verdict, ok_or

LATE_S: Final = 60.0
WAITING: Final = "`sluice schedules list --state parked` and `sluice sagas list --state stuck` say why"
UNKEPT: Final = "no gateway looks at their events: none runs, or SLUICE_REACTIONS is off at all of them"
NOT_SET: Final = "correct the schedule in the spec, and set the timers by POST /_/schedules"
LATE: Final = "no gateway fires it (SLUICE_REACTIONS is off at all of them), or its tenant stores all it may"
_SERVER, _NAME = "postgres", "timers and sagas"


def judge(counts: Mapping[str, Any]) -> list[Finding]:
    """`counts` is the row of reactions.sql's statement in operations.sql."""
    return [_waiting(counts), _not_set(counts)]


def _waiting(counts: Mapping[str, Any]) -> Finding:
    found = f"{counts['pending']} timers are pending, {counts['running']} sagas are running"
    if counts["unkept"]:
        return Finding(_SERVER, _NAME, f"{found}; of {counts['unkept']} tenants", Verdict.WARNING, UNKEPT)
    if (counts["late_s"] or 0) > LATE_S:
        found = f"{found}; one was due {counts['late_s']:.0f} s ago"
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, LATE)
    if counts["parked"] or counts["stuck"]:
        found = f"{counts['parked']} timers are parked, {counts['stuck']} sagas are stuck"
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, WAITING)
    return Finding(_SERVER, _NAME, found)


def _not_set(counts: Mapping[str, Any]) -> Finding:
    found = str(counts["not_set"])
    if counts["not_set"]:
        found = f"{found}, the last one by {counts['not_set_last']}"
    return ok_or(_SERVER, "timers not set", found, not counts["not_set"], NOT_SET, Verdict.WARNING)
