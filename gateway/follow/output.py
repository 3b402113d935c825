"""The contract of an output: what a follower makes of events. Appends of reactions and firings implement it
too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.follow.model import Changes, Event
from gateway.follow.row_cache import RowCache
from gateway.log.entries import SequencedAppend
from gateway.relay.position import Place


class Output(Protocol):
    """One for each build, used by its worker only, one fold after the other.

    `types`: aggregate types whose events' data it needs.
    """

    types: frozenset[str]
    reads_back: bool
    """Whether it reads what it wrote: then a page is folded only once the one before is written."""
    holds_states: bool
    """Whether it holds states beside the rows."""

    def bound(self, bytes_max: int) -> None:
        """From here on it holds no more than this beside the rows."""
        ...

    @property
    def can_fold_ahead(self) -> bool:
        """Whether `fold_ahead` may be called now."""
        ...

    @property
    def is_ahead(self) -> bool:
        """Whether the next `fold` returns more than its events do."""
        ...

    async def fold_ahead(self, appends: Sequence[SequencedAppend], rows: RowCache) -> None:
        """Folds appends of its tenant, which follow on what was folded before, but leaves what they do to the
        next `fold`. Raises PostgresTrouble, and TooMuch: then the output is to be given up."""
        ...

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        """What the events do, whole appends that follow on what was folded before and end at `reached`. What
        it returns, with its `rest`, is committed with the place, or nothing is and the output is given up.
        Nothing else is folded before the rest was made, or is given up. Raises
        PostgresTrouble, and TooMuch where fewer of the appends are to be folded next: one that reads back
        does not, and one that is ahead is to be given up."""
        ...


class NeverAhead:
    """The part of an Output that folds nothing ahead."""

    can_fold_ahead = is_ahead = False

    async def fold_ahead(self, appends: Sequence[SequencedAppend], rows: RowCache) -> None:
        raise NotImplementedError
