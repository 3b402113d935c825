"""Shifts the clock of the Python process that has this folder on its PYTHONPATH, by FAULTS_CLOCK_OFFSET_S.

As on a machine with a wrong clock: what reads the time of day is wrong, what measures durations is right.
"""

from __future__ import annotations

import os
import time
from typing import Any

import uuid_utils

_OFFSET_S = int(os.environ["FAULTS_CLOCK_OFFSET_S"])
_real_time, _real_time_ns, _real_uuid7 = time.time, time.time_ns, uuid_utils.uuid7


def _time() -> float:
    return _real_time() + _OFFSET_S


def _time_ns() -> int:
    return _real_time_ns() + _OFFSET_S * 1_000_000_000


def _uuid7(*, nanoseconds: int | None = None) -> Any:
    """uuid_utils reads the system's clock by itself."""
    return _real_uuid7(nanoseconds=_time_ns() if nanoseconds is None else nanoseconds)


time.time, time.time_ns, uuid_utils.uuid7 = _time, _time_ns, _uuid7
