"""How far a subscription has come: the main line's places, what is settled of them, and the move in Postgres.

Owns: the compare-and-swap. Cursor, stragglers and attempts move in one transaction, by the count of moves as
it was seen, so that of two relays one moves them; the other is overtaken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.postgres.shares import Share
from gateway.relay import database
from gateway.relay.database import Attempt, RetryEntry, Subscribed
from gateway.relay.position import Place

MOVE_EVERY_S: Final = 0.1

Aggregate = tuple[str, str]


class Overtaken(Exception):
    """The subscription is another relay's now, or ended. What was not moved by then is theirs."""


class Changed(Exception):
    """An operator has changed the subscription, whose lease this relay still has: hand it over, and start
    again from the changed one."""


class Cursor:
    """`read` is how far the main line is read. Between that and the cursor lie the places not settled yet."""

    def __init__(self, pool: Share, of: Subscribed, lease_s: float) -> None:
        self.read = self._reached = of.place
        self.failing_since, self.confirmed_at = of.failing_since, of.confirmed_at
        self.state = "active"
        self.why: str | None = None
        self.why_code: str | None = None
        self._pool, self._of, self._lease_s = pool, of, lease_s
        self._loop = asyncio.get_running_loop()
        self._moved_to = of.place
        self._order: deque[Place] = deque()
        self._settled: set[int] = set()
        self._moves = of.moves
        self._changed: set[Aggregate] = set()
        self._attempts: list[Attempt] = []
        self._moved_at = self._loop.time()

    @property
    def moves(self) -> int:
        return self._moves

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
        """Moves the cursor at once, which shows whether another relay has moved it."""
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

    async def move(self, stragglers: Mapping[Aggregate, RetryEntry], *, holding: bool) -> None:
        """Writes how far it has come; `holding` keeps the lease. Raises Overtaken, Changed and
        PostgresTrouble."""
        reached = self._settle()
        changed, attempts = set(self._changed), list(self._attempts)
        asked_at = self._loop.time()
        async with database.connection(self._pool) as conn, conn.transaction():
            moves = await conn.fetchval(
                database.statement("move"), self._of.id, self._moves, reached.seq, reached.mark, self.state,
                self.why, self.why_code, _moment(self.failing_since), _moment(self.confirmed_at),
                self._lease_s if holding else 0.0,
            )  # fmt: skip
            if moves is None:
                await self._still_held(conn)
                raise Changed
            await self._write(conn, {each: stragglers.get(each) for each in changed})
            await database.log_attempts(conn, self._of.id, attempts)
        self._moves, self._moved_at, self._moved_to = moves, asked_at, reached
        self._changed -= changed
        del self._attempts[: len(attempts)]

    async def hand_over(self, stragglers: Mapping[Aggregate, RetryEntry]) -> None:
        """Writes what became of deliveries into what the subscription is now, as far as that goes, and ends
        the lease. Raises Overtaken, PostgresTrouble."""
        reached = self._settle()
        async with database.connection(self._pool) as conn, conn.transaction():
            now = await self._still_held(conn)
            goes_on = now.place == self._moved_to  # else it begins again, at another start
            if goes_on:
                changed = {each: stragglers.get(each) for each in self._changed}
                if now.document != self._of.document:
                    changed = {each: waits and _retried_again(waits) for each, waits in changed.items()}
                await self._write(conn, changed)
            # What another filter takes of what was read is still to be read.
            place = reached if goes_on and now.filter == self._of.filter else now.place
            ended_it = self.state != "active" and now.document == self._of.document
            says = self if ended_it else now
            await database.log_attempts(conn, now.id, self._attempts)
            await conn.execute(
                database.statement("hand_over"), now.id, place.seq, place.mark, says.state, says.why,
                says.why_code, _moment(self.confirmed_at),
            )  # fmt: skip

    async def _still_held(self, conn: Any) -> Subscribed:
        row = await conn.fetchrow(database.statement("still_held"), self._of.id, self._of.owner)
        if row is None:
            raise Overtaken
        return database.subscribed(row)

    async def _write(self, conn: Any, changed: Mapping[Aggregate, RetryEntry | None]) -> None:
        """Stragglers as they are, and None of those that are none any more."""
        ended = [aggregate for aggregate, straggler in changed.items() if straggler is None]
        await database.end_stragglers(conn, self._of.id, ended)
        noted = [straggler for straggler in changed.values() if straggler is not None]
        await database.note_stragglers(conn, self._of.id, noted)

    def _settle(self) -> Place:
        """How far all is settled."""
        while self._order and self._order[0].seq in self._settled:
            self._reached = self._order.popleft()
            self._settled.discard(self._reached.seq)
        if not self._order:
            self._reached = self.read
        return self._reached


def _retried_again(straggler: RetryEntry) -> RetryEntry:
    """By another document: tried at once, with its whole schedule."""
    return replace(straggler, state="retrying", attempts=0, due_at=straggler.since)


def _moment(at: float | None) -> object:
    return None if at is None else database.moment(at)
