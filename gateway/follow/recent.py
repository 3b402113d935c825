"""The latest commits of this gateway, for followers that have folded all events before: they need not read
them from Postgres.

Owns: that what it hands on continues where a follower stands. It holds an unbroken run of each partition's
appends; what is committed elsewhere breaks the run, and followers read that, and what follows on it, from
Postgres.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from gateway.events import event_bytes
from gateway.log.entries import SequencedAppend
from gateway.log.read.followers import Tapped
from gateway.relay.position import MARK_BYTES, Place

BYTES_MAX: Final = 12 * 1024 * 1024
"""Of all partitions: what a busy gateway commits in half a second."""

EACH_BYTES: Final = 1000
"""What an append takes beside its data."""


class Recent:
    """`tapped` tells of each commit of this gateway to a partition."""

    def __init__(self, tapped: Tapped) -> None:
        self._tapped = tapped
        self._runs: dict[int, tuple[_Run, ExitStack]] = {}

    def hold(self, partitions: Iterable[int]) -> None:
        """From here on it has what is committed to these partitions, and nothing of others."""
        wanted = set(partitions)
        for p in self._runs.keys() - wanted:
            self._runs.pop(p)[1].close()
        for p in wanted - self._runs.keys():
            run, ends = _Run(), ExitStack()
            ends.enter_context(self._tapped(p, run.add))
            self._runs[p] = run, ends
        for run, _ in self._runs.values():
            run.bytes_max = BYTES_MAX // len(self._runs)

    def forget(self, p: int, seq: int) -> None:
        """No follower asks for what is committed up to here."""
        held = self._runs.get(p)
        if held is not None:
            held[0].forget(seq)

    def behind(self, p: int, place: Place, events_max: int) -> list[SequencedAppend]:
        """The appends that continue at a place, up to the end of the commit that has `events_max` of their
        events; none where it does not have the next one."""
        held = self._runs.get(p)
        return [] if held is None else held[0].behind(place, events_max)


class _Commit(msgspec.Struct, frozen=True):
    """Appends that one commit has put one behind the other, with the mark of the event before them: so they
    are found only where the history before them is the follower's."""

    before: Place
    appends: Sequence[SequencedAppend]
    end: Place
    events: int
    size: int


class _Run:
    """The newest commits of a partition, each behind the one before."""

    def __init__(self) -> None:
        self.bytes_max = BYTES_MAX
        self._commits: OrderedDict[int, _Commit] = OrderedDict()  # by the seqs behind which they are
        self._bytes = 0
        self._end: Place | None = None

    def add(self, placed: Sequence[SequencedAppend]) -> None:
        before, self._end = self._end, end_of(placed[-1])
        events = sum([len(each.events) for each in placed])
        if before is None or before.seq + events != self._end.seq:
            self._commits.clear()
            self._bytes = 0
            return
        commit = _Commit(before, tuple(placed), self._end, events, sum(map(_size, placed)))
        self._commits[before.seq] = commit
        self._bytes += commit.size
        while self._bytes > self.bytes_max:
            self._bytes -= self._commits.popitem(last=False)[1].size

    def forget(self, seq: int) -> None:
        while self._commits:
            first = next(iter(self._commits.values()))
            if first.end.seq > seq:
                return
            self._bytes -= self._commits.popitem(last=False)[1].size

    def behind(self, place: Place, events_max: int) -> list[SequencedAppend]:
        found: list[SequencedAppend] = []
        events = 0
        commit = self._commits.get(place.seq)
        if commit is None:
            found = self._within(place)
            events = sum(len(each.events) for each in found)
            commit = self._commits.get(found[-1].last_seq) if found else None
        elif commit.before != place:
            return []
        while commit is not None and events < events_max:
            found += commit.appends
            events += commit.events
            commit = self._commits.get(commit.end.seq)
        return found

    def _within(self, place: Place) -> list[SequencedAppend]:
        """The rest of a commit in which a place lies: Postgres was read up to there."""
        for commit in self._commits.values():
            if commit.before.seq < place.seq < commit.end.seq:
                ends = [end_of(each) for each in commit.appends]
                return list(commit.appends[ends.index(place) + 1 :]) if place in ends else []
        return []


def end_of(append: SequencedAppend) -> Place:
    """Behind its last event."""
    return Place(append.last_seq, append.digests[-32 : MARK_BYTES - 32])


def _size(append: SequencedAppend) -> int:
    events = append.events
    return EACH_BYTES + (event_bytes(events[0]) if len(events) == 1 else sum(map(event_bytes, events)))
