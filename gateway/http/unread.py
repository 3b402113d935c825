"""Answers that clients have asked for and do not read: how long, and how much memory they take.

Owns: the sum of what stands in write buffers beyond their high-water mark, of each key and of all, and which
connection is ended where it is too much, or where its client takes nothing for too long. Below that mark a
connection costs nothing here: small answers are never looked at. Must not know: what is in an answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.config import Config
from gateway.http.bounds import Limited

LARGE_BYTES: Final = 64 * 1024
"""Beyond it a transport tells that its buffer is full: asyncio's high-water mark. No answer that is smaller
is ever refused."""

_LOOKS: Final = 4
"""So often a connection is looked at within the time in which its client has to take something."""

_PATIENCE_S: Final = 1.0
"""Whose client took something within it is not ended for the share of its key: it is slow, and reads."""


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A connection whose client has something to read: how much, and since when it took none of it."""

    transport: Transport
    holder: str
    size: int
    since: float = field(default=0.0)


class Unread:
    """One a gateway. `holder_of` finds whose key an Authorization header brings: its handle, else ""."""

    def __init__(
        self,
        config: Config,
        limited: Limited,
        holder_of: Callable[[bytes | None], str],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.holder_of = holder_of
        self._timeout_s = config.write_timeout_s
        self._each_max = config.key_unread_bytes_max
        self._total_max = config.unread_bytes_max
        self._limited = limited
        self._clock = clock or asyncio.get_running_loop().time
        self._waiting: dict[object, _Waiting] = {}
        self._sums: defaultdict[str, int] = defaultdict(int)
        self.total = 0
        self._next_look: asyncio.TimerHandle | None = None

    def has_room(self, holder: str, size: int) -> bool:
        """Whether the key may be sent an answer of so many bytes beside those that it has not read yet. One
        that has read all may, whatever its size."""
        held = self._sums.get(holder, 0)
        return not held or held + size <= self._each_max

    def refused(self, holder: str) -> str:
        """Counts an answer for which there was no room; the words for it."""
        self._limited.count("unread", holder)
        return (
            f"This key has {self._each_max} bytes of unread answers. Read them, or close their connections; "
            "try again in 1 s."
        )

    def begin(self, connection: object, transport: Transport, holder: str) -> None:
        """The connection's client has to take what is in the buffer: nothing more is added meanwhile."""
        if connection in self._waiting:
            return
        waiting = _Waiting(transport, holder, transport.get_write_buffer_size(), self._clock())
        self._waiting[connection] = waiting
        self._sums[holder] += waiting.size
        self.total += waiting.size
        if self._next_look is None:
            self._look_later()
        if self._sums[holder] > self._each_max:
            self._make_room(holder, _PATIENCE_S, lambda: self._sums.get(holder, 0) > self._each_max)
        while self.total > self._total_max:
            most = max(self._sums, key=self._sums.__getitem__)
            if not self._make_room(most, 0.0, lambda: self.total > self._total_max):
                break

    def end(self, connection: object) -> None:
        """It has taken most of it, or is closed."""
        waiting = self._waiting.pop(connection, None)
        if waiting is not None:
            self._take(waiting, waiting.size)

    def _take(self, waiting: _Waiting, size: int) -> None:
        waiting.size -= size
        self.total -= size
        self._sums[waiting.holder] -= size
        if not self._sums[waiting.holder]:
            del self._sums[waiting.holder]

    def _make_room(self, holder: str, patience_s: float, wanting: Callable[[], bool]) -> bool:
        """Ends connections of this key whose clients took nothing for so long, first where it was longest.
        Returns whether it ended one."""
        now, ended = self._clock(), False
        its_own = [(key, each) for key, each in self._waiting.items() if each.holder == holder]
        for _, each in its_own:
            self._look_at(each, now)
        for key, each in sorted(its_own, key=lambda pair: pair[1].since):
            if not wanting() or now - each.since < patience_s:
                break
            self._end(key, each, "unread")
            ended = True
        return ended

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(self._timeout_s / _LOOKS, self._look)

    def _look(self) -> None:
        self._next_look = None
        now = self._clock()
        for key, each in list(self._waiting.items()):
            self._look_at(each, now)
            if now - each.since >= self._timeout_s:
                self._end(key, each, "write_timeout")
        if self._waiting:
            self._look_later()

    def _look_at(self, waiting: _Waiting, now: float) -> None:
        taken = waiting.size - waiting.transport.get_write_buffer_size()
        if taken > 0:
            waiting.since = now
            self._take(waiting, taken)

    def _end(self, connection: object, waiting: _Waiting, limit: str) -> None:
        self._limited.count("unread" if limit == "unread" else "write_timeout", waiting.holder)
        self.end(connection)
        waiting.transport.abort()
