"""Token buckets, one for each of those who share a limit. Pure: the clock is an argument.

A bucket holds up to `burst` tokens and gains `per_s` a second; who takes a token may pass. It is kept as
one number, the time at which it will be full again (the generic cell rate algorithm of ITU-T I.371), so a
bucket that is full needs no memory at all.
"""

from __future__ import annotations

from typing import Final

COUNT_MAX: Final = 20_000
"""Buckets in memory, 200 bytes each. Beyond it the one that was used longest ago is forgotten, which is as
if it were full: a limit may then be missed, no request is refused by mistake."""

_ROUNDING_S: Final = 1e-9


class Buckets:
    """Each named bucket is full until it is first used. `now` in seconds, never going back."""

    __slots__ = ("_burst_s", "_count_max", "_full_at", "_token_s")

    def __init__(self, per_s: float, burst: int, count_max: int = COUNT_MAX) -> None:
        assert per_s > 0
        assert burst >= 1
        self._token_s = 1 / per_s
        self._burst_s = burst / per_s
        self._count_max = count_max
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, who: str, now: float) -> float:
        """0.0: a token was taken. Otherwise none was, and there will be one in that many seconds."""
        full_at = max(self._full_at.pop(who, now), now)
        wait_s = full_at + self._token_s - self._burst_s - now
        if wait_s > _ROUNDING_S:
            self._full_at[who] = full_at
            return wait_s
        if len(self._full_at) >= self._count_max:
            del self._full_at[next(iter(self._full_at))]
        self._full_at[who] = full_at + self._token_s
        return 0.0

    def give_back(self, who: str) -> None:
        """Undoes a `take` that turned out not to count."""
        if who in self._full_at:
            self._full_at[who] -= self._token_s
