"""A reader puts a stream that Redis does not have back in front of it: a look at Redis, rows from Postgres,
then fill.lua."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model import script
from tests.model.state import Broken, State
from tests.model.world import Draft, World


def steps(w: World, s: State) -> Iterator[State]:
    """One fill a run."""
    match s.read:
        case ():
            yield from _miss(w, s)
        case ("misses", g, n, epoch, as_of, stream):
            head = w.histories.heads[s.history][stream]
            w.step = (
                "the read by gateway {} takes {} events of stream {} from Postgres",
                g,
                head,
                stream,
            )
            d = Draft(s)
            named = epoch if w.rules.hint_epoch else s.gateways[g].epoch
            d.read = ("fills", n, named, as_of, stream, head) if head else ("answered",)
            yield d.state()
        case ("fills", *about):
            yield from _fill(w, s, *about)


def _miss(w: World, s: State) -> Iterator[State]:
    for g, gateway in enumerate(s.gateways):
        for n, node in enumerate(s.nodes):
            data = script.opened(w, node, gateway.epoch)
            if not gateway.open or data is None:
                continue
            for stream in range(w.scenario.streams):
                if not data.hot >> stream & 1:
                    w.step = ("a read by gateway {} misses stream {} in Redis {}", g, stream, n)
                    d = Draft(s)
                    d.read = ("misses", g, n, data.epoch, w.histories.seq[data.h], stream)
                    yield d.state()


def _fill(w: World, s: State, *about: Any) -> Iterator[State]:
    n, epoch, as_of, stream, head = about
    node = s.nodes[n]
    data = script.opened(w, node, epoch)
    w.step = ("Redis {} is filled with {} events of stream {}", n, head, stream)
    d = Draft(s)
    d.read = ("answered",)
    missing = data is not None and not data.hot >> stream & 1
    if data is not None and missing and (as_of >= data.evicted or not w.rules.evicted):
        here = w.histories.heads[data.h][stream]
        if head < here:
            raise Broken(f"stream {stream} is filled with {head} events and has {here}")
        if head == here:  # else this epoch has ended, and the model has no place for what is filled into it
            d.data(n, data._replace(hot=data.hot | 1 << stream))
    yield d.state()
