"""Every step that may follow a state, and what must hold in each."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import committing, directly, faults, filling, reading, sequencing, verifying
from tests.model.state import ANSWERED, NEW, Broken, State
from tests.model.world import World

_LATE = {
    "call": sequencing.late_call,
    "commit": committing.late_commit,
    "verify": verifying.late_verify,
}


def successors(w: World, s: State) -> Iterator[State]:
    """`w.step` says of each what led to it. Raises Broken when a step breaks a promise."""
    for g, gateway in enumerate(s.gateways):
        if gateway.alive:
            yield from sequencing.steps(w, s, g)
            yield from committing.steps(w, s, g)
            yield from verifying.steps(w, s, g)
            yield from directly.steps(w, s, g)
    for message in s.late:
        yield from _LATE[message[0]](w, s, message)
    if w.scenario.reads:
        yield from reading.steps(w, s)
    if w.scenario.fills:
        yield from filling.steps(w, s)
    yield from faults.steps(w, s)


def check(w: World, s: State) -> None:
    """A watermark is where Postgres has been."""
    for n, node in enumerate(s.nodes):
        if node.data is not None and node.data.c not in w.histories.held[s.history]:
            raise Broken(f"the watermark of Redis {n} is at a history that Postgres does not have")


def at_rest(w: World, s: State) -> bool:
    """Everybody has an answer, some gateway's partition is open, and q = c = seq where there is a Redis."""
    for i, pending in enumerate(s.pendings):
        if pending.stage < ANSWERED and not (pending.stage == NEW and _never_sent(w, s, i)):
            return False
    if any(gateway.runs for gateway in s.gateways):
        return False
    settled = [
        node.replid
        for node in s.nodes
        if node.master
        and node.data is not None
        and (node.data.epoch, node.data.h, node.data.c) == (s.epoch, s.history, s.history)
        and node.data.fence == w.identity(node)
        and not node.data.torn
    ]
    open_here = any(each.open and each.epoch == s.epoch for each in s.gateways)
    return open_here and (s.direct or bool(settled))


def _never_sent(w: World, s: State, i: int) -> bool:
    return not s.gateways[w.appends[i].gateway].alive
