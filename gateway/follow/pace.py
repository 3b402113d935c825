"""How long a worker rests behind a page: meanwhile events come, and rows are written once for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

RESTS: Final = 9.0
"""How long a build rests for the time that it took, while this process hears of commits: so it takes a tenth
of a core. Less where it would not catch up with what is committed meanwhile."""

SERVES_RESTS: Final = 2.0
SERVES_RESTS_MOST_S: Final = 0.05
"""How long builds that serve rest for the time that their last page took, if it had more than a few events,
so that readers have a change within a tenth of a second."""

PRESSED_S: Final = 0.5
"""How long they rest where appends use all of this process' time: so more events are folded at once, and
fewer rows are written for them."""

RESTS_LEAST: Final = 0.25
_GAP_EVERY_S: Final = 2.0


class Pace:
    """Of builds that do not serve; `busy` says whether events are being committed."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._rests, self._gap, self._gap_at = RESTS, 0, float("-inf")
        self._loop = asyncio.get_running_loop()

    def build_rest_s(self, took_s: float, gap: int) -> float:
        """Behind a page of a build that is `gap` positions behind: none but while events are committed."""
        if not self._busy():
            return 0.0
        now = self._loop.time()
        if now - self._gap_at > _GAP_EVERY_S:
            catches_up = gap < 0.98 * self._gap
            self._rests = min(self._rests * 1.5, RESTS) if catches_up else max(self._rests / 2, RESTS_LEAST)
            self._gap, self._gap_at = gap, now
        return self._rests * took_s


def rest_s(took_s: float, *, pressed: bool) -> float:
    """Of builds that serve, behind a page that took so long."""
    return PRESSED_S if pressed else min(SERVES_RESTS * took_s, SERVES_RESTS_MOST_S)
