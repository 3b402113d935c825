"""Judges what of timers and sagas waits for a person, and whether gateways see to the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.operations.findings import Finding, Verdict

LATE_S: Final = 60.0
WAITING: Final = "`sluice schedules list --state parked` and `sluice sagas list --state stuck` say why"
UNKEPT: Final = "no gateway looks at their events: none runs, or SLUICE_REACTIONS is off at all of them"
LATE: Final = "no gateway fires it (SLUICE_REACTIONS is off at all of them), or its tenant stores all it may"
_SERVER, _NAME = "postgres", "timers and sagas"


def judge(counts: Mapping[str, Any]) -> Finding:
    """`counts` is the row of reactions.sql's statement in operations.sql."""
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
