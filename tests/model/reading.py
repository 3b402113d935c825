"""A read: Redis tells what it has and what of it is in doubt, then Postgres is asked about the doubt."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import script
from tests.model.history import Row, firsts
from tests.model.state import Broken, State
from tests.model.world import Draft, World

Entry = tuple[Row, int, int, int]  # (row, its first version in the stream, its events there, its last seq)


def steps(w: World, s: State) -> Iterator[State]:
    """One read a run."""
    if not s.read:
        yield from _begin(w, s)
    elif s.read[0] == "asks":
        w.step = ("the read asks Postgres about what is in doubt and answers",)
        _check(w, s, *s.read[1:])
        d = Draft(s)
        d.read = ("answered",)
        yield d.state()


def _begin(w: World, s: State) -> Iterator[State]:
    for g, gateway in enumerate(s.gateways):
        for n, node in enumerate(s.nodes):
            data = script.opened(w, node, gateway.epoch)
            if gateway.open and not gateway.direct and data is not None and data.h:
                w.step = ("a read by gateway {} takes seq {} of Redis {}, watermark {}", g,
                          w.histories.seq[data.h], n, w.histories.seq[data.c])  # fmt: skip
                d = Draft(s)
                d.read = ("asks", data.h, data.c, data.hot, s.top)
                yield d.state()


def _check(w: World, s: State, h: int, c: int, hot: int, top: int) -> None:
    committed = w.histories.rows[s.history]
    for stream in range(w.scenario.streams):
        if hot >> stream & 1 and w.histories.heads[h][stream]:
            entries = _entries(w, h, stream)
            length = _length(w, s, entries, w.histories.seq[c])
            for row, version, _, _ in entries:
                if version <= length and row not in committed:
                    raise Broken(f"a read shows append {row[0]} at version {version}, where it is not")
            _check_fresh(w, s, stream, length, top)


def _check_fresh(w: World, s: State, stream: int, length: int, top: int) -> None:
    """It shows what was acknowledged before it began; what is too old for Redis comes from Postgres."""
    acknowledged = w.histories.at(s.history, top)
    assert acknowledged is not None
    if length < w.histories.heads[acknowledged][stream]:
        raise Broken(f"a read of stream {stream} shows {length} events, and more were acknowledged before it")


def _entries(w: World, h: int, stream: int) -> list[Entry]:
    entries, seq = [], 0
    for append, version in w.histories.rows[h]:
        of = w.appends[append]
        seq += of.size
        for (each, _, events), first in zip(of.parts, firsts(version), strict=True):
            if each == stream:
                entries.append(((append, version), first, events, seq))
    return entries


def _length(w: World, s: State, entries: list[Entry], watermark: int) -> int:
    """Up to the first entry that Postgres does not confirm; or, unsafe, up to the last that it does."""
    sure = [_confirmed(w, s, entry, watermark) for entry in entries]
    if w.rules.doubt == "newest":
        while sure and not sure[-1]:
            sure.pop()
        first_unsure = len(sure)
    else:
        first_unsure = sure.index(False) if False in sure else len(sure)
    if first_unsure < len(entries):
        return entries[first_unsure][1] - 1
    _, version, events, _ = entries[-1]
    return version + events - 1


def _confirmed(w: World, s: State, entry: Entry, watermark: int) -> bool:
    row, _, _, seq = entry
    if seq <= watermark:
        return True
    here = w.histories.at(s.history, seq)
    if not here:
        return False
    there = w.histories.rows[here][-1]
    if w.rules.doubt == "newest":
        return w.event[there[0]] == w.event[row[0]]
    return there == row
