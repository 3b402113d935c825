"""What the sequencer hands to the committer."""

from __future__ import annotations

from typing import Protocol

from gateway.log.append.pending import Pending
from gateway.log.commit_connection import Ready
from gateway.log.entries import SequencedAppend
from gateway.log.postgres import REDIS


class SequencedBatch:
    """What one script call placed, or one look in direct mode, in order; and the (seq, chain) around it.
    `ready`: what its commit sends, where that was made ahead; other calls may have joined it since."""

    __slots__ = ("after", "before", "epoch", "events", "mode", "pendings", "placed", "ready")

    def __init__(
        self, epoch: int, before: tuple[int, str], after: tuple[int, str], mode: str = REDIS
    ) -> None:
        self.mode = mode
        self.epoch = epoch
        self.before = before
        self.after = after
        self.placed: list[SequencedAppend] = []
        self.pendings: list[Pending] = []
        self.events = 0
        self.ready: Ready | None = None

    def add(self, pending: Pending, placed: SequencedAppend) -> None:
        self.pendings.append(pending)
        self.placed.append(placed)
        self.events += len(placed.events)


class Commits(Protocol):
    """Where sequenced calls go."""

    @property
    def appends(self) -> int:
        """How many are sequenced and not committed yet."""

    def put(self, sequenced: SequencedBatch) -> None: ...

    async def room(self) -> None:
        """Returns when the next call may be sequenced: one waits at most while another commits."""

    async def settled(self) -> None:
        """Returns when nothing is on its way to Postgres."""
