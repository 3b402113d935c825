"""A read: Redis tells what it has and what of it is in doubt, then Postgres is asked about the doubt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model import script
from tests.model.state import Broken, State
from tests.model.world import Draft, World

Entry = tuple[int, int, int]  # (append, first version, last seq)


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
            data = script.opened(w, node, gateway.epoch, gateway.server)
            if gateway.open and data is not None and data.h:
                w.step = ("a read by gateway {} takes seq {} of Redis {}, watermark {}", g,
                          w.histories.seq[data.h], n, w.histories.seq[data.c])  # fmt: skip
                d = Draft(s)
                d.read = ("asks", data.h, data.c, data.hot, s.top)
                yield d.state()


def _check(w: World, s: State, h: int, c: int, hot: int, top: int) -> None:
    committed = w.histories.rows[s.history]
    for stream in range(w.scenario.streams):
        if hot >> stream & 1:
            shown = _shown(w, s, _entries(w, h, stream), w.histories.seq[c])
            for append, version, _ in shown:
                if (append, version) not in committed:
                    raise Broken(f"a read shows append {append} at version {version}, where it is not")
            _check_fresh(w, s, stream, shown, top)


def _check_fresh(w: World, s: State, stream: int, shown: list[Entry], top: int) -> None:
    """It shows what was acknowledged before it began."""
    acknowledged = w.histories.at(s.history, top)
    assert acknowledged is not None
    length = sum(w.appends[append].events for append, _, _ in shown)
    if length < w.histories.heads[acknowledged][stream]:
        raise Broken(f"a read of stream {stream} shows {length} events, and more were acknowledged before it")


def _entries(w: World, h: int, stream: int) -> list[Entry]:
    entries, seq = [], 0
    for append, version in w.histories.rows[h]:
        seq += w.appends[append].events
        if w.appends[append].stream == stream:
            entries.append((append, version, seq))
    return entries


def _shown(w: World, s: State, entries: list[Entry], watermark: int) -> list[Entry]:
    """The entries up to the first that Postgres does not confirm; or, unsafe, up to the last that it does."""
    sure = [_confirmed(w, s, entry, watermark) for entry in entries]
    if w.rules.doubt == "newest":
        return entries[: max((n + 1 for n, each in enumerate(sure) if each), default=0)]
    return entries[: sure.index(False)] if False in sure else entries


def _confirmed(w: World, s: State, entry: Entry, watermark: int) -> bool:
    append, version, seq = entry
    if seq <= watermark:
        return True
    here = w.histories.at(s.history, seq)
    if not here:
        return False
    there: tuple[Any, ...] = w.histories.rows[here][-1]
    if w.rules.doubt == "newest":
        return w.event[there[0]] == w.event[append]
    return there == (append, version)
