"""Steps of a gateway's verifier: look at Postgres and Redis, then believe, or seal and install."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model import outcomes, script
from tests.model.state import Broken, Data, Node, State
from tests.model.world import Draft, World


def steps(w: World, s: State, g: int) -> Iterator[State]:
    gateway = s.gateways[g]
    match gateway.phase:
        case ():
            if gateway.open:
                yield from _notice(w, s, g)
            elif not s.direct and (not gateway.runs or gateway.stuck):
                yield from _look(w, s, g)
            if s.direct and gateway.direct and not gateway.runs:
                yield from _inspect(w, s, g, s.epoch, s.history)  # it has been steady: back to Redis
        case ("row", epoch, history):
            yield from _inspect(w, s, g, epoch, history)
        case (("refence" | "install" | "copy") as action, n, server, epoch, history):
            yield from _act(w, s, g, action, n, server, epoch, history)


def _notice(w: World, s: State, g: int) -> Iterator[State]:
    if s.epoch != s.gateways[g].epoch:
        w.step = ("gateway {} notices that Postgres is in epoch {}", g, s.epoch)
        d = Draft(s)
        d.gateway(g, open=False)
        yield d.state()


def _look(w: World, s: State, g: int) -> Iterator[State]:
    if not w.scenario.slow_look:
        yield from _inspect(w, s, g, s.epoch, s.history)
        return
    w.step = (
        "gateway {} verifies: Postgres is in epoch {} at seq {}",
        g,
        s.epoch,
        w.histories.seq[s.history],
    )
    d = Draft(s)
    d.gateway(g, phase=("row", s.epoch, s.history))
    yield d.state()


def _inspect(w: World, s: State, g: int, epoch: int, history: int) -> Iterator[State]:
    """What follows from Postgres' row, as it was read, and from what a server says now."""
    for n, node in enumerate(s.nodes):
        if not node.master:
            continue
        d = Draft(s)
        d.gateway(g, phase=())
        if _ahead(w, node.data, epoch, history):
            w.step = ("gateway {} reads Postgres again: Redis {} is ahead", g, n)
            if not w.rules.second_look or _ahead(w, node.data, s.epoch, s.history):
                raise Broken("Postgres seems to have lost commits, and has not")
        elif not _continues(w, node.data, epoch, history):
            if not _give_up(w, s, d, g, n, epoch, history):
                continue
        elif node.data is not None and node.data.fence == w.identity(node):
            w.step = ("gateway {} verifies Redis {}: believed, in epoch {}", g, n, epoch)
            outcomes.adopt(w, d, g, epoch, history)
        elif w.rules.another_life == "refence":
            w.step = (
                "gateway {} verifies Redis {}: it continues Postgres in another life, to be believed",
                g,
                n,
            )
            d.gateway(g, phase=("refence", n, w.identity(node), epoch, history))
        elif not _give_up(w, s, d, g, n, epoch, history):
            continue
        state = d.state()
        if state != s:
            yield state


def _ahead(w: World, data: Data | None, epoch: int, history: int) -> bool:
    seq = w.histories.seq
    return data is not None and (data.epoch > epoch or seq[data.c] > seq[history])


def _continues(w: World, data: Data | None, epoch: int, history: int) -> bool:
    return data is not None and data.epoch == epoch and not data.torn and script.contains(w, data, history)


def _give_up(w: World, s: State, d: Draft, g: int, n: int, epoch: int, history: int) -> bool:
    """Seals the epoch that was looked at, to install the next; or, unsafe, copies Postgres. False: the bound
    on epochs is reached."""
    server = w.identity(s.nodes[n])
    if w.rules.divergence == "copy":
        w.step = (
            "gateway {} verifies Redis {}: to be overwritten with seq {}",
            g,
            n,
            w.histories.seq[history],
        )
        d.gateway(g, phase=("copy", n, server, epoch, history))
    elif s.epoch == epoch:
        if s.epoch == w.scenario.epochs:
            return False
        d.epoch, d.direct = s.epoch + 1, False
        w.step = ("gateway {} verifies Redis {}: not believed, Postgres goes to epoch {}", g, n, d.epoch)
        d.gateway(g, phase=("install", n, server, d.epoch, s.history))
    else:
        w.step = ("gateway {} finds the epoch sealed by another", g)
    return True


def _act(
    w: World, s: State, g: int, action: str, n: int, server: int, epoch: int, history: int
) -> Iterator[State]:
    data = _done(w, s.nodes[n], action, server, epoch, history)
    w.step = (
        "gateway {}: {} Redis {} in epoch {}, {}",
        g,
        action,
        n,
        epoch,
        "stale" if data is None else "done",
    )
    d = Draft(s)
    d.gateway(g, phase=())
    if data is not None:
        d.data(n, data)
        outcomes.adopt(w, d, g, epoch, history)
    yield d.state()
    if w.may(s, "delay install"):
        w.step = ("FAULT gateway {}: {} Redis {} in epoch {}: under way, unanswered", g, action, n, epoch)
        d = Draft(s, faults=1)
        d.gateway(g, phase=())
        d.send("verify", n, action, server, epoch, history)
        yield d.state()


def _done(w: World, node: Node, action: str, server: int, epoch: int, history: int) -> Data | None:
    if action == "refence":
        return script.refenced(w, node, server, epoch, history)
    if action == "install":
        return script.installed(w, node, server, epoch, history)
    if not node.master or w.identity(node) != server:
        return None
    return script.fresh(w, server, epoch, history)


def late_verify(w: World, s: State, message: tuple[Any, ...]) -> Iterator[State]:
    """A delayed installation arrives; its reply is not awaited."""
    _, n, action, server, epoch, history = message
    w.step = ("the delayed {} arrives at Redis {} for epoch {}", action, n, epoch)
    d = Draft(s)
    d.received(message)
    data = _done(w, s.nodes[n], action, server, epoch, history)
    if data is not None:
        d.data(n, data)
    yield d.state()
