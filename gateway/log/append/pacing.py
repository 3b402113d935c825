"""When the next call of a partition is made, and how many of the appends that wait it carries.

Owns: the size of batches, and nothing that is promised: any append may go with any call. A call and its
commit cost the gateway, Redis and Postgres as much as several appends, however few they carry.
"""

from __future__ import annotations

import asyncio

from gateway.log.append.pending import Commits, Queue

_HALF_MIN = 16  # fewer are not worth a call of their own
# With more, Redis, Postgres and this process wait for each other, measured with 256 connections; unless so
# much is under way that the rest keeps them busy, as of a bulk request (docs/decisions/0025).
_USUAL_MAX = 96
_CROWD_MIN = 16  # so many elsewhere keep everybody busy
# Beside another gateway: what two halves have together. After fewer than the least it is not worth the wait:
# a single client must not wait at all.
_SHARED_ENOUGH = 32
_SHARED_MIN = 8
# About as long as it takes those who were just answered to be back with their next appends.
_GATHER_S = 0.002


class GatewayLoad:
    """The partitions of one gateway that have appends under way."""

    def __init__(self) -> None:
        self._busy: dict[BatchPolicy, None] = {}

    def around(self, one: BatchPolicy) -> bool:
        """Whether the other partitions have enough appends under way to keep the gateway busy."""
        self._busy[one] = None
        appends = 0
        for each in tuple(self._busy):
            under_way = each.under_way
            if each is not one:
                appends += under_way
                if not under_way:
                    del self._busy[each]
            if appends >= _CROWD_MIN:
                return True
        return False


class BatchPolicy:
    """Of one partition of this gateway."""

    def __init__(self, queue: Queue, commits: Commits, crowd: GatewayLoad) -> None:
        self._queue = queue
        self._commits = commits
        self._crowd = crowd
        self.calling = 0
        """Appends in the call that is under way."""
        self._ended_at = 0  # the seq after this gateway's last call
        self.shared = False
        """Another gateway's events came between its last two calls with appends."""
        self._crowded = False
        self._last = 0  # appends in this gateway's last call
        self._gathered = asyncio.Event()
        self._gathered.set()
        self._loop = asyncio.get_running_loop()

    @property
    def under_way(self) -> int:
        return len(self._queue) + self.calling + self._commits.appends

    async def turn(self) -> None:
        """Returns when the next call may be made.

        One half of what is under way is sequenced while the other commits: all in one call would keep Redis,
        Postgres and this process waiting for each other in turn (docs/decisions/0022). Where others fill that
        time, halves would only be smaller calls, and all goes together: other gateways that share the
        partition (docs/decisions/0020), or other partitions of this one (docs/decisions/0024). A call that
        would be small then waits for those who were just answered.
        """
        self._crowded = self._crowd.around(self)
        if not (self.shared or self._crowded):
            # Of very much, half may be sequenced already, and a commit takes what several calls gave.
            if self.largest == _USUAL_MAX or self._commits.appends > len(self._queue):
                await self._commits.room()
            return
        await self._commits.settled()
        if len(self._queue) < self._enough():
            self._gathered.clear()
            self._loop.call_later(_GATHER_S, self._gathered.set)
        await self._gathered.wait()

    def _enough(self) -> int:
        """So many in the queue wait for no others: in a crowd all that a call may carry."""
        if self._crowded:
            return self.largest
        return _SHARED_ENOUGH if self._last >= _SHARED_MIN else 0

    @property
    def most(self) -> int:
        """The number of appends that the next call may carry."""
        if self.shared or self._crowded:
            return self.largest
        half = (len(self._queue) + self._commits.appends + 1) // 2
        return max(_HALF_MIN, min(half, self.largest))

    @property
    def largest(self) -> int:
        """That number if halves are of no use."""
        return max(_USUAL_MAX, (len(self._queue) + self._commits.appends) // 4)

    def called(self, before: int, after: int) -> None:
        """A call moved the partition from one seq to the other. One without appends tells nothing."""
        if self.calling:
            self.shared = before != self._ended_at
            self._last = self.calling
            self._ended_at = after
