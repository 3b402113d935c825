"""Holds what readers were given against what is committed: the promises of docs/feed.md and
docs/subscriptions.md. Pure.

Owns: what counts as a violation, and its name.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TOLD_MAX = 5
"""Of each kind and reader: a reader that went wrong once is often wrong from there on."""


class Violation(NamedTuple):
    """`kind`: lost, doubled, reordered, phantom, changed, unsigned or bug."""

    kind: str
    told: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A row of the outbox; those of a partition come in the order of `seq`."""

    seq: int
    id: str
    aggregate_type: str
    key: str
    version: int
    type: str

    def __str__(self) -> str:
        return f"{self.aggregate_type}/{self.key} v{self.version} (seq {self.seq}, {self.id})"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asked for; empty takes all."""

    types: frozenset[str] = frozenset()
    event_types: frozenset[str] = frozenset()

    def of(self, committed: Sequence[Committed]) -> list[Committed]:
        return [each for each in committed if self._takes(each)]

    def _takes(self, row: Committed) -> bool:
        return (not self.types or row.aggregate_type in self.types) and (
            not self.event_types or row.type in self.event_types
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """An event as a follower of the feed was given it; `seq` is where its position stands."""

    seq: int
    id: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as a receiver got it. `id` is its `webhook-id`, `event_id` its body's; `accepted`: it was
    answered with success; `signed`: its signature held."""

    id: str
    event_id: str
    body: bytes
    accepted: bool
    signed: bool = True


def check_acknowledged(acknowledged: Collection[str], committed: Sequence[Committed]) -> list[Violation]:
    """What writers were told that it is committed, is; and nothing else, once they repeat no more."""
    stored = {each.id: each for each in committed}
    lost = (each for each in sorted(acknowledged) if each not in stored)
    extra = (row for id_, row in stored.items() if id_ not in acknowledged)
    return [
        *_few(Violation("lost", f"{each} was acknowledged and is not stored") for each in lost),
        *_few(Violation("phantom", f"{row} is stored and nobody was told") for row in extra),
    ]


def check_follower(name: str, wanted: Sequence[Committed], seen: Sequence[Seen]) -> list[Violation]:
    """`seen` is all of `wanted` in its order, each once."""
    if [(each.seq, each.id) for each in wanted] == [(each.seq, each.id) for each in seen]:
        return []
    rows, counts = {each.id: each for each in wanted}, Counter(each.id for each in seen)
    found = _few(Violation("lost", f"{name} never saw {row}") for row in wanted if row.id not in counts)
    found += _few(
        Violation("phantom", f"{name} saw {each}, which is not of its filter, or not committed")
        for each in counts
        if each not in rows
    )
    found += _few(
        Violation("doubled", f"{name} saw {rows[each]} {times} times")
        for each, times in counts.items()
        if times > 1 and each in rows
    )
    known = [each for each in seen if each.id in rows]
    found += _few(
        Violation("changed", f"{name} saw {rows[each.id]} at position {each.seq}")
        for each in known
        if rows[each.id].seq != each.seq
    )
    return found + _few(
        Violation("reordered", f"{name} saw {rows[after.id]} behind {rows[before.id]}")
        for before, after in itertools.pairwise(known)
        if rows[after.id].seq < rows[before.id].seq
    )


def check_receiver(name: str, wanted: Sequence[Committed], arrivals: Sequence[Arrival]) -> list[Violation]:
    """Each of `wanted` was accepted. Of each aggregate, the first arrivals come in its order, without gaps,
    and each only when the one before it was accepted. An event has one id and one body, however often it
    comes."""
    accepted = {each.event_id for each in arrivals if each.accepted}
    return [
        *_few(Violation("lost", f"{name} never accepted {row}") for row in wanted if row.id not in accepted),
        *_few(_out_of_order(name, wanted, arrivals)),
        *_few(_unlike(name, arrivals)),
    ]


def _out_of_order(name: str, wanted: Sequence[Committed], arrivals: Sequence[Arrival]) -> Iterator[Violation]:
    lanes: dict[tuple[str, str], list[Committed]] = defaultdict(list)
    place: dict[str, tuple[list[Committed], int]] = {}
    for row in wanted:
        lane = lanes[row.aggregate_type, row.key]
        place[row.id] = lane, len(lane)
        lane.append(row)
    arrived, accepted = set(), set()
    for each in arrivals:
        if each.event_id not in place:
            yield Violation("phantom", f"{name} got {each.event_id}, not of its filter, or not committed")
            continue
        lane, at = place[each.event_id]
        if each.event_id not in arrived and at and lane[at - 1].id not in accepted:
            yield Violation("reordered", f"{name} got {lane[at]} before it accepted {lane[at - 1]}")
        arrived.add(each.event_id)
        if each.accepted:
            accepted.add(each.event_id)


def _unlike(name: str, arrivals: Sequence[Arrival]) -> Iterator[Violation]:
    first: dict[str, Arrival] = {}
    for each in arrivals:
        before = first.setdefault(each.event_id, each)
        if each.id != each.event_id:
            yield Violation("changed", f"{name} got {each.event_id} under the id {each.id}")
        if each.body != before.body:
            yield Violation("changed", f"{name} got {each.event_id} with another body than before")
        if not each.signed:
            yield Violation("unsigned", f"{name} got {each.event_id} with a signature that does not hold")


def _few(found: Iterator[Violation]) -> list[Violation]:
    return list(itertools.islice(found, _TOLD_MAX))
