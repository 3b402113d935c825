"""Who waits for more events of a stream in this gateway; a commit wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gateway.events import Stream


class Follower:
    """Woken by every commit to its stream since the last wait."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Returns at the next commit, or when the time is up: other gateways' commits wake nobody here."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


class Followers:
    """Falsy while there are none, so that a commit pays nothing for them."""

    def __init__(self) -> None:
        self._of: dict[Stream, set[Follower]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    @contextmanager
    def follow(self, stream: Stream) -> Iterator[Follower]:
        follower = Follower()
        self._of.setdefault(stream, set()).add(follower)
        try:
            yield follower
        finally:
            followers = self._of[stream]
            followers.discard(follower)
            if not followers:
                del self._of[stream]

    def wake(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            for follower in self._of.get(stream, ()):
                follower.wake()
