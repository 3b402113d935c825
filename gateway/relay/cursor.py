"""How far a subscription has come: the main line's places, what is settled of them, and the move in Postgres.

Owns: the compare-and-swap. Cursor, stragglers and attempts move in one transaction, by the count of moves as
it was seen, so that of two relays one moves them; the other is overtaken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import asyncpg

from gateway.relay import database
from gateway.relay.database import Attempt, Straggler, Subscribed
from gateway.relay.position import Place

MOVE_EVERY_S: Final = 0.1

Aggregate = tuple[str, str]


class Overtaken(Exception):
    """Somebody else has changed the subscription: another relay, or a person. Start from what it is now."""


class Cursor:
    """`read` is how far the main line is read. Between that and the cursor lie the places not settled yet."""

    def __init__(self, pool: asyncpg.Pool, of: Subscribed, lease_s: float) -> None:
        self.read = self._reached = of.place
        self.failing_since, self.confirmed_at = of.failing_since, of.confirmed_at
        self.state, self.why = "active", of.why
        self._pool, self._of, self._lease_s = pool, of, lease_s
        self._loop = asyncio.get_running_loop()
        self._order: deque[Place] = deque()
        self._settled: set[int] = set()
        self._moves = of.moves
        self._changed: set[Aggregate] = set()
        self._attempts: list[Attempt] = []
        self._moved_at = self._loop.time()

    @property
    def open_events(self) -> int:
        return len(self._order)

    def begin(self, place: Place) -> None:
        """An event of the main line is to be delivered."""
        self._order.append(place)

    def settle(self, seqs: Iterable[int]) -> None:
        """These are confirmed, or left to a straggler."""
        self._settled.update(seqs)

    def change(self, aggregate: Aggregate) -> None:
        """The aggregate's straggler is to be written as it is at the next move, or ended."""
        self._changed.add(aggregate)

    def tried(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    def doubt(self) -> None:
        """Move at once: that tells whether somebody else has."""
        self._moved_at = float("-inf")

    # -- when

    @property
    def move_in_s(self) -> float:
        """Until the next move is due; 0 or less: it is."""
        waits = MOVE_EVERY_S if self._attempts or self._changed else self._lease_s / 3
        return 0.0 if self.state != "active" else self._moved_at + waits - self._loop.time()

    def lease_lasts(self, seconds: float) -> bool:
        """Whether the lease is good for so many more seconds."""
        return self._loop.time() - self._moved_at < self._lease_s - seconds

    # -- the move

    async def move(self, stragglers: Mapping[Aggregate, Straggler], *, holding: bool) -> None:
        """Writes how far it has come; `holding` keeps the lease. Raises Overtaken, PostgresTrouble."""
        reached = self._settle()
        changed, attempts = set(self._changed), list(self._attempts)
        asked_at = self._loop.time()
        async with database.connection(self._pool) as conn, conn.transaction():
            moves = await conn.fetchval(
                database.statement("move"), self._of.id, self._moves, reached.seq, reached.mark, self.state,
                self.why, _moment(self.failing_since), _moment(self.confirmed_at),
                self._lease_s if holding else 0.0,
            )  # fmt: skip
            if moves is None:
                raise Overtaken
            ended = [each for each in changed if each not in stragglers]
            await database.end_stragglers(conn, self._of.id, ended)
            noted = [stragglers[each] for each in changed if each in stragglers]
            await database.note_stragglers(conn, self._of.id, noted)
            await database.log_attempts(conn, self._of.id, attempts)
        self._moves, self._moved_at = moves, asked_at
        self._changed -= changed
        del self._attempts[: len(attempts)]

    def _settle(self) -> Place:
        """How far all is settled."""
        while self._order and self._order[0].seq in self._settled:
            self._reached = self._order.popleft()
            self._settled.discard(self._reached.seq)
        if not self._order:
            self._reached = self.read
        return self._reached


def _moment(at: float | None) -> object:
    return None if at is None else database.moment(at)
