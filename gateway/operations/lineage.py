"""The journals that one Redis still has of a partition, put together to the history that it saw.

Owns: which part of which epoch's journal belongs to it. An epoch's journal ends where the next one was
installed; what it holds beyond was never committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Final

from gateway.log.entries import placed_from_journal
from gateway.log.epoch.verify import Inspection
from gateway.log.postgres import PartitionRow
from gateway.operations.entries import Journaled, journaled, read
from gateway.operations.place import Place

EPOCHS_LOOKED_AT: Final = 64
"""Before the one that Redis is in. Sixty-four seals within the minutes that a journal is kept is trouble of
another kind."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What the journal of one epoch holds: seq `first` to `last`."""

    epoch: int
    first: int
    last: int


def joined(found: Iterable[Segment]) -> list[Segment]:
    """The segments of the history that led to the last of them, in order and without overlap. Pure."""
    history: list[Segment] = []
    for segment in sorted(found, key=lambda each: each.epoch):
        cut = [replace(each, last=min(each.last, segment.first - 1)) for each in history]
        history = [*(each for each in cut if each.first <= each.last), segment]
    return history


async def segments(place: Place, p: int, row: PartitionRow, seen: Inspection) -> list[Segment]:
    """Raises RedisTrouble."""
    found = []
    for epoch in range(max(row.rewound, seen.epoch - EPOCHS_LOOKED_AT, 1), seen.epoch + 1):
        keys = place.keys(p, epoch)
        _, oldest = await read(place.scripts, keys, keys.journal, most=1)
        _, newest = await read(place.scripts, keys, keys.journal, most=1, newest_first=True)
        if oldest and newest:
            (first, _), (last, _) = placed_from_journal(oldest[0])[0], placed_from_journal(newest[0])[-1]
            found.append(Segment(epoch, first.first_seq, last.last_seq))
    # Where the last epoch's journal is empty, it begins after its watermark; beyond q nothing counts.
    if not found or found[-1].epoch != seen.epoch:
        found.append(Segment(seen.epoch, seen.c + 1, seen.c))
    history = joined(found)
    return [replace(each, last=min(each.last, seen.q)) for each in history if each.first <= seen.q]


async def history(
    place: Place, p: int, parts: Iterable[Segment], after: int
) -> AsyncIterator[tuple[int, Journaled]]:
    """The entries beyond `after`, each with its epoch. Raises RedisTrouble."""
    for part in parts:
        async for each in journaled(place.scripts, place.keys(p, part.epoch), after, part.last):
            if each.placed.first_seq >= part.first:
                yield part.epoch, each
