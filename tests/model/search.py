"""Breadth-first search over every interleaving within a scenario's bounds: the first broken promise that it
meets is the shortest way to one."""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.model.protocol import at_rest, check, successors
from tests.model.scenario import Scenario
from tests.model.state import Broken, State
from tests.model.world import World


@dataclass(frozen=True)
class Found:
    """`broken` is None where every promise holds in all states within the bounds; `seconds` of CPU."""

    states: int
    seconds: float
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def told(self) -> str:
        lines = [
            f"{self.states:,} states, {self.seconds:.1f} s of CPU: {self.broken or 'every promise holds'}"
        ]
        return "\n".join([*lines, *[f"  {n + 1:2}. {step}" for n, step in enumerate(self.trace)]])


@contextmanager
def _no_collections() -> Iterator[None]:
    """States make no cycles, and the collector would walk over millions of them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_no_collections()
def explore(scenario: Scenario) -> Found:
    """Safety: whether every promise holds in every state."""
    w, begun = World(scenario), time.process_time()
    start = w.first()
    parents: dict[State, State | None] = {start: None}
    queue = deque((start,))
    while queue:
        s = queue.popleft()
        try:
            for following in successors(w, s):
                if following not in parents:
                    parents[following] = s
                    check(w, following)
                    queue.append(following)
        except Broken as broken:
            last = _text(w)
            trace = (*_trace(w, parents, s), last)
            return Found(len(parents), time.process_time() - begun, str(broken), trace)
    return Found(len(parents), time.process_time() - begun)


def _text(w: World) -> str:
    text, *about = w.step
    return str(text).format(*about)


def _trace(w: World, parents: dict[State, State | None], s: State) -> tuple[str, ...]:
    """What led to a state, found by going its way once more."""
    path = [s]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    path.reverse()
    steps = []
    for before, after in itertools.pairwise(path):
        for following in successors(w, before):
            if following == after:
                steps.append(_text(w))
                break
    return tuple(steps)


@_no_collections()
def strand(scenario: Scenario) -> Found:
    """Liveness: whether from every state, with no more faults, a way leads to rest. The bound on epochs cuts
    the search off, so the states at it count as good. Raises Broken when safety is broken on the way."""
    w, begun = World(scenario), time.process_time()
    start = w.first()
    parents: dict[State, State | None] = {start: None}
    back: dict[State, list[State]] = {start: []}
    queue = deque((start,))
    while queue:
        s = queue.popleft()
        for following in successors(w, s):
            if following not in parents:
                parents[following] = s
                back[following] = []
                queue.append(following)
            if following.left == s.left and following != s:
                back[following].append(s)
    good = [s for s in parents if s.epoch == scenario.epochs or at_rest(w, s)]
    reached = set(good)
    while good:
        for before in back[good.pop()]:
            if before not in reached:
                reached.add(before)
                good.append(before)
    stranded = next((s for s in parents if s not in reached), None)
    if stranded is None:
        return Found(len(parents), time.process_time() - begun)
    return Found(
        len(parents),
        time.process_time() - begun,
        "no way leads to rest from here",
        _trace(w, parents, stranded),
    )
