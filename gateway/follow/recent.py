"""What this gateway has just committed, for followers that have folded all before it: they need not read it
from Postgres.

Owns: that what it hands on continues where a follower stands. It holds an unbroken run of each partition's
appends; what is committed elsewhere breaks the run, and followers read that, and what follows on it, from
Postgres.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from gateway.events import event_bytes
from gateway.log.entries import SequencedAppend
from gateway.log.read.followers import Tapped
from gateway.relay.position import MARK_BYTES, Place

BYTES_MAX: Final = 8 * 1024 * 1024
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

    def behind(self, p: int, place: Place, events_max: int) -> list[SequencedAppend]:
        """The appends that continue at a place, with some events at most; none where it does not have the
        next one."""
        held = self._runs.get(p)
        return [] if held is None else list(held[0].behind(place, events_max))


class _Run:
    """The newest appends of a partition, by the seqs of their first events. Each stands with the mark of the
    event before it, so that one is found only where the history before it is the follower's."""

    def __init__(self) -> None:
        self.bytes_max = BYTES_MAX
        self._appends: OrderedDict[int, tuple[bytes, SequencedAppend]] = OrderedDict()
        self._bytes = 0
        self._end: Place | None = None

    def add(self, placed: Sequence[SequencedAppend]) -> None:
        for each in placed:
            end, self._end = self._end, _end_of(each)
            if end is None or each.first_seq != end.seq + 1:
                self._appends.clear()
                self._bytes = 0
                continue
            self._appends[each.first_seq] = end.mark, each
            self._bytes += _size(each)
        while self._bytes > self.bytes_max:
            self._bytes -= _size(self._appends.popitem(last=False)[1][1])

    def behind(self, place: Place, events_max: int) -> Iterator[SequencedAppend]:
        seq, mark, events = place.seq + 1, place.mark, 0
        while (found := self._appends.get(seq)) is not None and found[0] == mark and events < events_max:
            _, append = found
            events += len(append.events)
            seq, mark = append.last_seq + 1, _end_of(append).mark
            yield append


def _end_of(append: SequencedAppend) -> Place:
    return Place(append.last_seq, append.digests[-32 : MARK_BYTES - 32])


def _size(append: SequencedAppend) -> int:
    if len(append.events) == 1:  # as nearly always
        return EACH_BYTES + event_bytes(append.events[0])
    return EACH_BYTES + sum(map(event_bytes, append.events))
