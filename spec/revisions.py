"""The revision of an event type, and the steps that bring data of earlier ones to it.

A step is operations on the data: `$.data` is the data so far, targets are fields of it, and there is no `@`.
"""

from __future__ import annotations

import re
from typing import Final

from spec.errors import Report, below, shown
from spec.handlers import Handler
from spec.operations import read_handler
from spec.templates import Scope

REVISION_MAX: Final = 1_000
"""Each revision but the last has a step, and old data go through all of them."""

_NUMBER = re.compile("[1-9][0-9]{0,8}")
_OPEN: Final = Scope(True, at=None)
"""What data of an earlier revision look like, its own schema said."""


def read_revision(
    declared: dict[str, object], pointer: str, report: Report
) -> tuple[int, tuple[Handler, ...]]:
    """`revision`, 1 where it is absent, and a step for each one before it."""
    revision, place = declared.get("revision", 1), below(pointer, "revision")
    if isinstance(revision, bool) or not isinstance(revision, int) or not 1 <= revision <= REVISION_MAX:
        why = f"A revision is a whole number from 1 to {REVISION_MAX}."
        report.add("invalid_value" if type(revision) is int else "wrong_type", place, why)
        return 1, ()
    return revision, _read_steps(declared.get("upcast", {}), revision, pointer, report)


def _read_steps(value: object, revision: int, pointer: str, report: Report) -> tuple[Handler, ...]:
    place = below(pointer, "upcast")
    if not isinstance(value, dict):
        report.add("wrong_type", place, '`upcast` is an object of steps, as in {"1": [operation, …]}.')
        return ()
    steps: dict[int, Handler] = {}
    for name, step in value.items():
        here = below(place, name)
        if not _NUMBER.fullmatch(name) or int(name) >= revision:
            why = f"{shown(name)} is not a revision before {revision}, which this event type has now."
            report.add("unknown_key", here, why)
        else:
            steps[int(name)] = read_handler(step, here, _OPEN, report)
    missing = [each for each in range(1, revision) if each not in steps]
    if missing:
        at = place if value else pointer
        named = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        why = (
            f"Events of revision {named} may be stored: `upcast` needs a step for each; `[]` changes nothing."
        )
        report.add("missing_key", at, why)
    return tuple(steps.get(each, ()) for each in range(1, revision))
