"""The target `pull`: events are handed to consumers that ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spec.errors import Report, below
from spec.targets.form import Form, Target, is_seconds, is_whole

LEASE_S: Final = 30
LEASE_S_MAX: Final = 3600
ATTEMPTS: Final = 20
ATTEMPTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Pull(Target):
    """Events are claimed for `lease_s`; after `attempts_max` claims without an ack an event is parked."""

    lease_s: float = LEASE_S
    attempts_max: int = ATTEMPTS


def _read(declared: Mapping[str, object], pointer: str, _environ: Mapping[str, str], report: Report) -> Pull:
    lease_s, attempts_max = declared.get("lease_s", LEASE_S), declared.get("attempts_max", ATTEMPTS)
    if not is_seconds(lease_s, LEASE_S_MAX) or lease_s == 0:
        why = f"Seconds, more than 0 and at most {LEASE_S_MAX:g}."
        report.add("invalid_value", below(pointer, "lease_s"), why)
        lease_s = LEASE_S
    if not is_whole(attempts_max, 1, ATTEMPTS_MAX):
        why = f"A whole number from 1 to {ATTEMPTS_MAX}."
        report.add("invalid_value", below(pointer, "attempts_max"), why)
        attempts_max = ATTEMPTS
    assert isinstance(lease_s, int | float) and isinstance(attempts_max, int)
    return Pull(float(lease_s), attempts_max)


PULL: Final = Form(
    kind="pull",
    made=Pull,
    required={},
    optional={
        "lease_s": {
            "description": "How long a claim lasts.",
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": LEASE_S_MAX,
            "default": LEASE_S,
        },
        "attempts_max": {
            "description": "Claims without an ack before an event is parked.",
            "type": "integer",
            "minimum": 1,
            "maximum": ATTEMPTS_MAX,
            "default": ATTEMPTS,
        },
    },
    read=_read,
)
