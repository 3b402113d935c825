"""Sagas as they stand, what they wait for, and turns that are to be taken. No I/O.

Owns: which of the sagas that wait an event is for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.follow.model import Event
from gateway.reactions.sagas import State, Turn
from spec.sagas import Saga

TURNS_MAX: Final = 1_000
TURNS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a tenant's turns that are held until they are taken: so many, and so many bytes of their states and of
what they emit. One more may go beyond: a state holds the events of up to 50 steps, 12 MB."""


@dataclass(slots=True)
class Stands:
    """A saga as its newest event says, which has these `data` where it was read itself."""

    id: bytes
    state: State
    length: int
    seq: int = 0
    data: bytes = b""
    waits: tuple[str, str | None, frozenset[str]] | None = None
    """Aggregate type, key (None: by correlation only), event types."""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A turn that is to be taken."""

    saga: Saga
    stands: Stands
    turn: Turn
    cause: bytes


class Turns:
    """Those that are held until `take_all` takes them."""

    def __init__(self, take_all: Callable[[Sequence[Due]], Awaitable[None]]) -> None:
        self._take_all = take_all
        self._due: list[Due] = []
        self._size = 0

    async def add(self, due: Sequence[Due]) -> None:
        self._due += due
        self._size += sum([each.turn.size for each in due])
        if len(self._due) >= TURNS_MAX or self._size > TURNS_BYTES_MAX:
            await self.take()

    async def take(self) -> None:
        due, self._due, self._size = self._due, [], 0
        await self._take_all(due)


class Waiting:
    """Sagas by what they wait for, so that an event is compared with none."""

    def __init__(self) -> None:
        self._newest: dict[bytes, Stands] = {}
        self._by: dict[tuple[str, str | bytes, str], list[Stands]] = {}
        """Aggregate type, key or correlation id, event type."""

    def put(self, stands: Stands) -> None:
        """In place of what the saga waited for before."""
        self._newest[stands.id] = stands
        if stands.waits is None:
            return
        of, key, types = stands.waits
        correlation = UUID(stands.state.correlation_id).bytes
        for event_type in types:
            for at in (correlation,) if key is None else (correlation, key):
                self._by.setdefault((of, at, event_type), []).append(stands)

    def take(self, event: Event) -> list[Stands]:
        """Those that wait for it. They wait no longer: their next event says what for then."""
        of, recorded = event.recorded.stream.aggregate_type, event.recorded
        taken = []
        for at in (recorded.stream.key, recorded.event.correlation_id):
            for each in self._by.pop((of, at, recorded.event.type), ()):
                if each.waits is not None and self._newest[each.id] is each:
                    each.waits = None
                    taken.append(each)
        return taken
