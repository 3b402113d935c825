"""Folds that block nothing else: short ones run in the event loop, longer ones in a thread, in turns.

Owns: how much all folds together do in one turn of the event loop, and how long one of them runs beside it
while others wait. Must not know: what is folded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar

from gateway.events import Recorded
from gateway.follow.model import Event, Row
from gateway.log.entries import SequencedAppend
from gateway.state import AT_ONCE_LOOKS, Budget, Folded, Present, TakesLong, fold_within
from spec.handlers import Handler

LIGHT_EVENTS: Final = 30
LIGHT_BYTES: Final = 32 * 1024
"""So few events, which with the states and rows that they change are so short, are folded at once: that takes
a few milliseconds at most, and a thread costs a part of one."""

TURN_S: Final = 0.05
"""How long a fold runs beside the event loop before others, as of other tenants, have their turn; it ends
behind an event."""

LIGHT_TURN_S: Final = 0.0005
"""How long a fold of light events runs in the event loop before all else there has its turn, which takes
about as long when a gateway is busy."""
_LIGHT_TURN_LOOKS: Final = 50
_STEPS_A_LOOK: Final = 10  # at the clock

_EVENT_LOOKS: Final = 2
_LOOK_BYTES: Final = 1024
"""What takes about as long as to test an item: half of a light event, and so many bytes that are read."""

_MADE_LOOKS: Final = 4
"""What takes about as long as to make a short append, or to read a short state of a saga."""

_T = TypeVar("_T")
_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="follow")

Steps = Generator[None, None, _T]
"""Work that yields behind each event, row or timer, and returns what it makes of all of them."""


@dataclass(slots=True)
class Turn:
    """What a fold may take: `budget`, and no longer than it `has_time`."""

    budget: Budget
    until: float = inf

    def has_time(self) -> bool:
        return time.monotonic() < self.until


@dataclass(slots=True)
class _AtOnce:
    """What is left of the present turn of the event loop, for all that is folded in it."""

    loop: asyncio.AbstractEventLoop | None = None
    budget: Budget = field(default_factory=Budget)

    def left(self) -> Budget:
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            self.loop, self.budget = loop, Budget(at_once=AT_ONCE_LOOKS)
            loop.call_soon(self._over)
        return self.budget

    def takes(self, looks: int) -> bool:
        try:
            self.left().work(looks)
        except TakesLong:
            return False
        return True

    def _over(self) -> None:
        self.loop = None


_at_once: Final = _AtOnce()


def data_bytes(events: Iterable[Event]) -> int:
    return sum([len(each.recorded.event.payload or b"") for each in events])


def has_long(appends: Iterable[SequencedAppend]) -> bool:
    """Whether one of their events takes more than some microseconds to read."""
    return any(len(event.payload or b"") > LIGHT_BYTES for each in appends for event in each.events)


def row_bytes(rows: Mapping[str, Row | None]) -> int:
    return sum([len(each.data or b"") for each in rows.values() if each is not None])


async def folding(events: int, size: int, work: Callable[[Turn], Steps[_T]], *, light: bool = False) -> _T:
    """What `work` returns, which folds so many events, and reads so many bytes of them and of what they
    change. It is begun once more where its budget ended it by TakesLong. `light`: each of its steps takes
    some microseconds, however many they are."""
    if light:
        return await in_turns(work(Turn(Budget())))
    if events <= LIGHT_EVENTS and size <= LIGHT_BYTES:
        with suppress(TakesLong):
            budget = _at_once.left()
            budget.work(1 + _EVENT_LOOKS * events + size // _LOOK_BYTES)
            return _all(work(Turn(budget)))
    turn, loop = Turn(Budget()), asyncio.get_running_loop()
    steps = work(turn)
    while not (made := await loop.run_in_executor(_threads, _turn, steps, turn)):
        pass
    return made[0]


async def in_turns(steps: Steps[_T]) -> _T:
    """What the steps return, each of which takes some microseconds, in turns with all else in the event loop.
    A thread would hold up each callback of the loop for SWITCH_S, and meanwhile leave nothing for Postgres,
    Redis and clients to do."""
    while True:
        if _at_once.takes(_LIGHT_TURN_LOOKS):
            until = time.monotonic() + LIGHT_TURN_S
            try:
                while time.monotonic() < until:
                    for _ in range(_STEPS_A_LOOK):
                        next(steps)
            except StopIteration as end:
                made: _T = end.value
                return made
        await asyncio.sleep(0)


async def taking(looks: int) -> None:
    """Counts what is done beside folds in this turn of the event loop, as so many tests of items; where no
    more may be done in it, waits for the next one."""
    if not _at_once.takes(looks):
        await asyncio.sleep(0)


async def making(size: int, make: Callable[[], _T], *, light: bool = True) -> _T:
    """What `make` returns, which reads and copies so many bytes: at once, or beside the event loop where they
    are many, or where it takes long for another reason (not `light`)."""
    if light and size <= LIGHT_BYTES:
        await taking(_MADE_LOOKS + size // _LOOK_BYTES)
        return make()

    def work(turn: Turn) -> Steps[_T]:
        yield
        return make()

    return await folding(1, max(size, LIGHT_BYTES + 1), work)


def fold_in_turns(
    folded: Folded,
    events: Sequence[Recorded],
    handler_of: Callable[[str], Handler],
    turn: Turn,
    present: Present | None,
) -> Steps[Folded]:
    """The state after `events`, with what did not fit of all of them."""
    first, last = folded.length, folded.length + len(events)
    while folded.length < last:
        pending = events[folded.length - first :]
        folded = fold_within(folded, pending, handler_of, turn.budget, turn.has_time, present)
        yield
    return folded


def _all(steps: Steps[_T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: _T = end.value
            return made


def _turn(steps: Steps[_T], turn: Turn) -> tuple[_T] | None:
    """What the steps return, None where there are more of them."""
    turn.until = time.monotonic() + TURN_S
    try:
        while turn.has_time():
            next(steps)
    except StopIteration as end:
        return (end.value,)
    return None
