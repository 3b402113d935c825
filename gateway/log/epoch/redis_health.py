"""Whether this gateway reaches the Redis of a partition, and for how long it has or has not.

Owns: when Redis counts as lost, and when as steady. What follows from that, direct mode, is the verifier's.
"""

from __future__ import annotations

# A call that is refused is followed by a look that writes; where those look well, so many calls decide.
_REFUSED_CALLS = 10
# One look that fails may be this gateway's own doing: it stood still, and its timers came before its answers.
_FAILED_LOOKS = 2


class RedisHealth:
    """Told of every look at Redis. Times are on the loop's clock, in seconds."""

    __slots__ = (
        "_answered_at", "_failed", "_lost_after_s", "_missed_by", "_refusals", "_refused_since",
        "_steady_after_s", "_steady_since", "_suspected",
    )  # fmt: skip

    def __init__(self, lost_after_s: float, steady_after_s: float, now: float) -> None:
        self._lost_after_s = lost_after_s
        self._steady_after_s = steady_after_s
        self._answered_at = now
        self._failed = 0
        self._suspected = False
        self._refusals = 0  # since a call was carried out
        self._refused_since = now
        self._steady_since: float | None = None
        # Other gateways that can't reach it; None until they were heard.
        self._missed_by: tuple[str, ...] | None = None

    def answered(self, now: float) -> None:
        self._answered_at = now
        self._failed = 0
        self._suspected = False
        if self._steady_since is None:
            self._steady_since = now

    def failed(self) -> None:
        self._failed += 1
        self._steady_since = None

    def refused(self, now: float) -> None:
        """A call was refused, or not answered: none should begin before a look has shown that this Redis
        writes."""
        self._suspected = True
        if self._refusals == 0:
            self._refused_since = now
        self._refusals += 1

    def carried_out(self) -> None:
        """A call was answered, and has written."""
        self._refusals = 0

    def begin_again(self, now: float) -> None:
        """Appends have just left this Redis: from here on it has to be steady, and others were not heard yet.
        A gateway that then stands still must not come back before it has heard them."""
        self._missed_by = None
        self._refusals = 0
        if self._steady_since is not None:
            self._steady_since = now

    def heard(self, missed_by: tuple[str, ...]) -> None:
        """Which other gateways can't reach it."""
        self._missed_by = missed_by

    @property
    def failing(self) -> bool:
        """Whether the last look failed, or a call since then."""
        return self._suspected or self._failed > 0

    def lost(self, now: float) -> bool:
        """Redis has not answered for too long: appends must not wait for it any more."""
        if self._refusals >= _REFUSED_CALLS and now - self._refused_since >= self._lost_after_s:
            return True
        return self._failed >= _FAILED_LOOKS and now - self._answered_at >= self._lost_after_s

    def steady(self, now: float) -> bool:
        """It has answered long enough, and every other gateway reaches it: appends may go back to it."""
        since = self._steady_since
        return since is not None and now - since >= self._steady_after_s and self._missed_by == ()
