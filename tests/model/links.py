"""Rows of appends, each judged on the state that the one before it leaves.

Each function follows one of gateway/log/append/pending.py: expected_of, Link.holds_in, Pending.placed_at.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.history import Version, firsts
from tests.model.state import ANSWERED, COMMITTED, Pending
from tests.model.world import Draft, World

AS_IT_ASKS, BEHIND_ALL, NOWHERE = range(3)
"""What is asked for an append: its own length; that, and that no earlier one of the call was refused; or a
length that no stream has."""


def asked(w: World, pendings: Sequence[Pending], batch: tuple[int, ...], epoch: int) -> tuple[int, ...]:
    """For each append of a batch."""
    if not w.linked or w.rules.links == "length":
        return (AS_IT_ASKS,) * len(batch)
    found: list[int] = []
    here: set[int] = set()
    for i in batch:
        on, free = w.appends[i].on, w.appends[i].free
        within = on in here
        stands = on is None or within or _holds(w, pendings[on], epoch)
        if on is None or free:
            found.append(AS_IT_ASKS)
        elif within:
            found.append(BEHIND_ALL)
        else:
            found.append(AS_IT_ASKS if stands or w.rules.links == "call" else NOWHERE)
        if stands or not w.rules.link_free:
            here.add(i)
    return tuple(found)


def _holds(w: World, pending: Pending, epoch: int) -> bool:
    place = pending.place
    return place == COMMITTED or (place == epoch if w.rules.link_epoch else place > 0)


def placed(w: World, d: Draft, i: int, version: Version, epoch: int) -> None:
    """It was sequenced at this version, in this epoch."""
    if i in w.linked:
        on = w.appends[i].on
        behind = on is None or _holds(w, d.pendings[on], epoch)
        d.pending(i, place=epoch if behind and firsts(version)[0] == w.place(i) else 0)


def committed(d: Draft, i: int) -> None:
    """Where it was sequenced."""
    if d.pendings[i].place:
        d.pending(i, place=COMMITTED)


def lost(d: Draft, i: int) -> None:
    """What it was sequenced in. One that is to be sequenced again loses its place then."""
    if d.pendings[i].place > 0 and d.pendings[i].stage >= ANSWERED:
        d.pending(i, place=0)
