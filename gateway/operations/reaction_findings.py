"""Judges what of timers and sagas waits for a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.operations.findings import Finding, Verdict

_SERVER, _NAME = "postgres", "timers and sagas"
WAITING: Final = "`sluice schedules list --state parked` and GET /_/sagas?state=stuck say why"


def judge(counts: Mapping[str, Any]) -> Finding:
    """`counts` is the row of reactions.sql's statement in operations.sql: pending, parked, running, stuck."""
    found = f"{counts['pending']} timers are pending, {counts['running']} sagas are running"
    if counts["parked"] or counts["stuck"]:
        found = f"{counts['parked']} timers are parked, {counts['stuck']} sagas are stuck"
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, WAITING)
    return Finding(_SERVER, _NAME, found)
