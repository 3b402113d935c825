"""What goes wrong, each at the cost of one fault; and replication, which only lags."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import outcomes, sequencing
from tests.model.state import ANSWERED, NEW, QUEUED, Data, Node, State
from tests.model.world import Draft, World


def steps(w: World, s: State) -> Iterator[State]:
    for n, node in enumerate(s.nodes):
        if node.master:
            yield from _replicate(w, s, n, node)
            yield from _lose(w, s, n, node)
        yield from _swap_roles(w, s, n, node)
    for g, gateway in enumerate(s.gateways):
        if gateway.alive and w.may(s, "die"):
            yield from _die(w, s, g)
    if w.may(s, "expire"):
        for i, pending in enumerate(s.pendings):
            if NEW < pending.stage < ANSWERED:
                w.step = ("FAULT the deadline of append {} passes", i)
                d = Draft(s, faults=1)
                outcomes.expire(w, d, i)
                yield d.state()


def _replicate(w: World, s: State, n: int, node: Node) -> Iterator[State]:
    for other, replica in enumerate(s.nodes):
        if not replica.master and (replica.data, replica.replid) != (node.data, node.replid):
            w.step = ("Redis {} catches up with Redis {}", other, n)
            d = Draft(s)
            d.nodes[other] = replica._replace(data=node.data, replid=node.replid)
            yield d.state()


def _new_id(s: State) -> int:
    """The budget only shrinks, so what is left of it names a life of a server."""
    return 100 + s.left


def _lose(w: World, s: State, n: int, node: Node) -> Iterator[State]:
    new, data = _new_id(s), node.data
    if w.may(s, "crash") and data is not None:
        for kept in w.histories.line[data.h]:
            if w.histories.seq[kept] >= w.histories.seq[data.base]:
                w.step = ("FAULT Redis {} restarts with seq {} of {}", n, w.histories.seq[kept],
                          w.histories.seq[data.h])  # fmt: skip
                yield _restarted(s, n, node._replace(run_id=new, replid=new, data=_cut(w, data, kept)))
    if w.may(s, "restore") and data is not None:
        for kept in w.histories.line[data.h][:-1]:
            if w.histories.seq[kept] >= w.histories.seq[data.base]:
                w.step = ("FAULT Redis {} is set back to seq {} of {}", n, w.histories.seq[kept],
                          w.histories.seq[data.h])  # fmt: skip
                yield _restarted(s, n, node._replace(data=_cut(w, data, kept)))
    if w.may(s, "wipe") and data is not None:
        w.step = ("FAULT Redis {} restarts empty", n)
        yield _restarted(s, n, node._replace(run_id=new, replid=new, data=None))
        w.step = ("FAULT FLUSHALL on Redis {}", n)
        d = Draft(s, faults=1)
        d.data(n, None)
        yield d.state()
    if w.may(s, "evict") and data is not None:
        yield from _evict(w, s, n, data)
    if w.may(s, "evict tags") and data is not None:
        w.step = ("FAULT tags are evicted from Redis {}", n)
        d = Draft(s, faults=1)
        held = w.histories.seq[data.h]
        tags_from = held if w.rules.tags_evicted else data.tags_from
        d.data(n, data._replace(tags_from=tags_from, tags_held=held, looked=-1))
        yield d.state()


def _cut(w: World, data: Data, kept: int) -> Data:
    c = data.c if w.histories.seq[data.c] <= w.histories.seq[kept] else kept
    return data._replace(h=kept, c=c, outdated=data.outdated if kept == data.h else 0)


def _restarted(s: State, n: int, node: Node) -> State:
    """Whatever was in its sockets is gone."""
    d = Draft(s, faults=1)
    d.nodes[n] = node
    d.late = tuple([each for each in s.late if each[0] == "commit" or each[1] != n])
    return d.state()


def _evict(w: World, s: State, n: int, data: Data) -> Iterator[State]:
    for stream in range(w.scenario.streams):
        last = w.histories.last_seq(data.h, stream)
        committed = last <= w.histories.seq[data.c] or w.rules.evicts == "anything"
        if data.hot >> stream & 1 and last and committed:
            w.step = ("FAULT stream {} is evicted from Redis {}", stream, n)
            d = Draft(s, faults=1)
            hot, evicted = data.hot & ~(1 << stream), max(data.evicted, last)
            d.data(n, data._replace(hot=hot, evicted=evicted))
            yield d.state()


def _swap_roles(w: World, s: State, n: int, node: Node) -> Iterator[State]:
    if not node.master and w.may(s, "promote"):
        w.step = ("FAULT Redis {} is promoted", n)
        d = Draft(s, faults=1)
        d.nodes[n] = node._replace(master=True, replid=_new_id(s))
        yield d.state()
    if node.master and w.may(s, "demote"):
        for other, master in enumerate(s.nodes):
            if other != n and master.master:
                w.step = ("FAULT Redis {} becomes a replica of Redis {} and takes its data", n, other)
                d = Draft(s, faults=1)
                d.nodes[n] = node._replace(master=False, replid=master.replid, data=master.data)
                yield d.state()


def _die(w: World, s: State, g: int) -> Iterator[State]:
    """With nothing under way, with a commit, or with a call."""
    gateway = s.gateways[g]
    if sum(each.alive for each in s.gateways) == 1:
        return
    w.step = ("FAULT gateway {} dies", g)
    yield _dead(w, s, g).state()
    if gateway.runs and w.rules.commit == "swap":
        w.step = ("FAULT gateway {} dies with a commit under way", g)
        d = _dead(w, s, g)
        d.send("commit", *gateway.runs[0])
        yield d.state()
    batch: tuple[int, ...] = ()
    if not gateway.phase and gateway.open:
        waiting = [i for i in w.of_gateway[g] if s.pendings[i].stage == QUEUED]
        ready = [i for i in waiting if not sequencing.to_look_up(w, s, i)]
        batch = tuple([i for i in ready if sequencing.is_judged(w, s, i)])
    if batch:
        looked_up = sequencing.looked_up(w, s, batch)
        for n, node in enumerate(s.nodes):
            if node.master and node.data is not None:
                w.step = (
                    "FAULT gateway {} dies with appends {} under way to Redis {}",
                    g,
                    batch,
                    n,
                )
                d = _dead(w, s, g)
                items = sequencing.hinted(w, s, batch, node.data)
                sequencing.delay(d, g, n, gateway.epoch, looked_up, items)
                yield d.state()


def _dead(w: World, s: State, g: int) -> Draft:
    d = Draft(s, faults=1)
    d.gateway(g, alive=False, open=False, direct=False, phase=(), runs=(), stuck=False, confirmed=0, epoch=0)
    for i in w.of_gateway[g]:
        if d.pendings[i].stage < ANSWERED:
            d.pending(
                i, stage=ANSWERED, doubt=False, again=False, extra=(), floor=0, looked_up=-1, look=(), place=0
            )
    return d
