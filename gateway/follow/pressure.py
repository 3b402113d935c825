"""Whether a process gets more work than it can do.

A gateway that shares its cores with Postgres, Redis and its clients never uses all of one, under any load:
the time that it waits for a core counts too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PRESSED: Final = 0.8
RELIEVED: Final = 0.65
"""Of a core: from the first on it is pressed, below the second it is not any more. While all requests are in
Redis or Postgres, a gateway has nothing to do, however busy it is."""

PRESSED_EVERY_S: Final = 0.5
_WAITED: Final = Path("/proc/thread-self/schedstat")


def wanted_s() -> float:
    """CPU time that this process has used, and how long this thread has waited for a core: where the system
    does not say that (it does on Linux), it counts as no time."""
    try:
        waited_s = int(_WAITED.read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited_s = 0.0
    return time.process_time() + waited_s


class Pressure:
    """`clock` and `wanted` are in seconds, and never fall."""

    def __init__(self, clock: Callable[[], float], wanted: Callable[[], float] = wanted_s) -> None:
        self._clock = clock
        self._wanted = wanted
        self._pressed, self._at, self._before = False, clock(), wanted()

    def __call__(self) -> bool:
        """Whether it wanted nearly all of a core of late."""
        now = self._clock()
        if now - self._at >= PRESSED_EVERY_S:
            wanted = self._wanted()
            least = RELIEVED if self._pressed else PRESSED
            self._pressed = wanted - self._before > least * (now - self._at)
            self._at, self._before = now, wanted
        return self._pressed
