"""Shifts the clock of the Python process that finds this file on its PYTHONPATH, by FAULTS_CLOCK_OFFSET_S seconds.

As a machine with a wrong clock: what reads the time of day is wrong, what measures durations is right.
"""

from __future__ import annotations

import os
import time
from typing import Any

import uuid_utils

_OFFSET_S = int(os.environ["FAULTS_CLOCK_OFFSET_S"])
_time, _time_ns, _uuid7 = time.time, time.time_ns, uuid_utils.uuid7


def _shifted_uuid7(timestamp: int | None = None, nanos: int | None = None) -> Any:
    """uuid_utils reads the clock by itself."""
    if timestamp is not None:
        return _uuid7(timestamp, nanos)
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return _uuid7(seconds, nanoseconds)


time.time = lambda: _time() + _OFFSET_S
time.time_ns = lambda: _time_ns() + _OFFSET_S * 1_000_000_000
uuid_utils.uuid7 = _shifted_uuid7
