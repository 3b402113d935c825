"""Shifts the clock of the Python process that has this folder on its PYTHONPATH, by as many seconds as stand
in the file FAULTS_CLOCK_FILE, at any moment: by a change there the clock steps while the process runs.

As on a machine with a wrong clock: what reads the time of day is wrong, what measures durations is right.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from struct import Struct
from typing import Any

import uuid_utils

OFFSET = Struct("=q")

with Path(os.environ["FAULTS_CLOCK_FILE"]).open("rb") as _file:
    _offset = mmap.mmap(_file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
_real_time, _real_time_ns, _real_uuid7 = time.time, time.time_ns, uuid_utils.uuid7


def _time() -> float:
    return float(_real_time() + OFFSET.unpack(_offset)[0])


def _time_ns() -> int:
    return int(_real_time_ns() + OFFSET.unpack(_offset)[0] * 1_000_000_000)


def _uuid7(*, nanoseconds: int | None = None) -> Any:
    """uuid_utils reads the system's clock by itself."""
    return _real_uuid7(nanoseconds=_time_ns() if nanoseconds is None else nanoseconds)


time.time, time.time_ns, uuid_utils.uuid7 = _time, _time_ns, _uuid7
