"""The readers of this gateway that wait for more events of a stream or of a partition. A commit wakes
them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from gateway.events import Stream
from gateway.log.entries import SequencedAppend

logger = logging.getLogger("sluice.log")

_LOOK_EVERY_S: Final = 0.1
_LOOK_WITHIN_S: Final = 5.0
"""Then a follower sees also that the gateway is about to stop."""
_LOOKS_PER_S: Final = 1_000
"""Of all followers of a tenant: some hundredths of a core."""

Tap = Callable[[Sequence[SequencedAppend]], None]
"""Called with what was just committed to a partition, in order; must return at once and keep no list."""

Tapped = Callable[[int, Tap], AbstractContextManager[None]]
"""While inside, the tap is called at each commit to a partition."""


class Follower:
    """Woken by every commit, or other change, that it follows since the last wait."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Returns at the next of these, or when the time is up: other gateways' commits wake no follower
        here."""
        timer = asyncio.get_running_loop().call_later(timeout_s, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._event.clear()


class Followers:
    """Without followers, a commit pays next to nothing for them. `announce` is told each partition that
    this gateway committed to, so that it can tell the others."""

    def __init__(self, announce: Callable[[int], None]) -> None:
        self._announce = announce
        self._of: dict[Stream, set[Follower]] = {}
        self._count: Counter[bytes] = Counter()
        self._taps: dict[int, list[Tap]] = {}

    @contextmanager
    def follow(self, stream: Stream) -> Iterator[Follower]:
        follower = Follower()
        self._of.setdefault(stream, set()).add(follower)
        self._count[stream.tenant] += 1
        try:
            yield follower
        finally:
            self._count[stream.tenant] -= 1
            if not self._count[stream.tenant]:
                del self._count[stream.tenant]
            followers = self._of[stream]
            followers.discard(follower)
            if not followers:
                del self._of[stream]

    def look_every_s(self, tenant: bytes) -> float:
        """How soon a follower of the tenant's looks whether another gateway has committed: the more of them
        there are, the later each."""
        return min(max(_LOOK_EVERY_S, self._count[tenant] / _LOOKS_PER_S), _LOOK_WITHIN_S)

    @contextmanager
    def tapped(self, partition: int, tap: Tap) -> Iterator[None]:
        """While inside, `tap` is called at each commit of this gateway to the partition."""
        self._taps.setdefault(partition, []).append(tap)
        try:
            yield
        finally:
            self._taps[partition].remove(tap)
            if not self._taps[partition]:
                del self._taps[partition]

    def committed(self, partition: int, placed: Sequence[SequencedAppend]) -> None:
        self._announce(partition)
        for tap in self._taps.get(partition, ()):
            try:
                tap(placed)
            except Exception:  # a bug: neither the commits behind this one nor the other taps wait for it
                logger.exception("commit_tap_failed", extra={"partition": partition})
        if self._of:
            for each in placed:
                for stream in each.streams:
                    for follower in self._of.get(stream, ()):
                        follower.wake()
