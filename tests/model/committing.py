"""Steps of a gateway's committer and sweeper: compare and swap, see who helped, help from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model import directly, links, outcomes, script
from tests.model.history import Row
from tests.model.state import RUNNING, State
from tests.model.world import Draft, World


def steps(w: World, s: State, g: int) -> Iterator[State]:
    runs = s.gateways[g].runs
    if runs:
        yield from _commit(w, s, g, 1, *runs[0])
    if len(runs) > 1 and runs[0][0] == runs[1][0] and runs[0][2] == runs[1][1]:
        yield from _commit(w, s, g, 2, runs[0][0], runs[0][1], runs[1][2])
    yield from _help(w, s, g)


def _commit(w: World, s: State, g: int, count: int, epoch: int, before: int, after: int) -> Iterator[State]:
    """The first `count` runs in one statement."""
    rows = w.histories.run(before, after)
    what = tuple([append for append, _ in rows])
    if w.rules.commit == "do nothing":
        yield from _insert(w, s, g, rows, what)
    elif s.epoch == epoch and w.histories.same(s.history, before):
        w.step = ("gateway {} commits appends {} and acknowledges", g, what)
        d = Draft(s)
        outcomes.commit(w, d, rows)
        d.gateway(g, runs=s.gateways[g].runs[count:])
        _acknowledge(w, d, g, rows, w.histories.seq[after])
        yield d.state()
        if w.may(s, "lose commit"):
            w.step = ("FAULT gateway {} commits appends {}; the reply is lost", g, what)
            d = Draft(s, faults=1)
            outcomes.commit(w, d, rows)
            yield d.state()
        if w.may(s, "delay commit"):
            w.step = ("FAULT gateway {} sends the commit of appends {}: under way, unanswered", g, what)
            d = Draft(s, faults=1)
            d.send("commit", epoch, before, after)
            yield d.state()
    else:
        if (
            s.epoch == epoch
            and w.histories.seq[s.history] < w.histories.seq[before]
            and w.may(s, "delay commit")
        ):
            w.step = ("FAULT gateway {} sends the commit of appends {} before its turn: under way", g, what)
            d = Draft(s, faults=1)
            d.send("commit", epoch, before, after)
            yield d.state()
        if count == 1:
            yield from _after_failed_swap(w, s, g, epoch, before, rows)


def _insert(w: World, s: State, g: int, rows: tuple[Row, ...], what: tuple[int, ...]) -> Iterator[State]:
    """INSERT … ON CONFLICT DO NOTHING, and acknowledged whatever became of it."""
    w.step = ("gateway {} inserts appends {}, on conflict nothing, and acknowledges", g, what)
    d = Draft(s)
    held = w.claims(s.history)
    taken = {(w.appends[append].stream, version) for append, version in w.histories.rows[s.history]}
    for append, version in rows:
        if w.event[append] not in held and (w.appends[append].stream, version) not in taken:
            outcomes.commit(w, d, ((append, version),))
    d.gateway(g, runs=s.gateways[g].runs[1:])
    _acknowledge(w, d, g, rows, w.histories.seq[d.history])
    yield d.state()


def _acknowledge(w: World, d: Draft, g: int, rows: tuple[Row, ...], seq: int) -> None:
    for append, version in rows:
        if d.pendings[append].stage == RUNNING and w.appends[append].gateway == g:
            outcomes.acknowledge(w, d, append, version)
        links.committed(d, append)
    outcomes.confirm(w, d, g, seq)
    directly.answer_rest(w, d, g)


def _after_failed_swap(
    w: World, s: State, g: int, epoch: int, before: int, rows: tuple[Row, ...]
) -> Iterator[State]:
    """The partition stands elsewhere than where the run begins: see how far it got without us."""
    histories = w.histories
    seq = histories.seq[s.history]
    if s.epoch == epoch and seq < histories.seq[before]:
        return  # the hole before ours is another gateway's: see _help
    helped, reached = _helped(w, s, before, rows)
    rest = rows[helped:]
    sealed = s.epoch != epoch
    next_seq = histories.seq[reached] + w.appends[rest[0][0]].size if rest else 0
    first_seq = next_seq - w.appends[rest[0][0]].size + 1 if rest else 0
    lost = sealed or (bool(rest) and (first_seq <= seq or not histories.same(reached, s.history)))
    if not helped and not lost:
        return
    w.step = ("gateway {} finds appends {} of its run committed{}", g, tuple([a for a, _ in rows[:helped]]),
              ", the rest lost" if lost and rest else "")  # fmt: skip
    d = Draft(s)
    runs = s.gateways[g].runs
    if helped and (sealed or not lost):
        _acknowledge(w, d, g, rows[:helped], histories.seq[reached])
    else:
        rest = rows
    if lost or not rest:
        d.gateway(g, runs=runs[1:])
        if lost:
            _give_up(w, d, g, rest)
    else:
        d.gateway(g, runs=((epoch, reached, runs[0][2]), *runs[1:]))
    yield d.state()


def _helped(w: World, s: State, before: int, rows: tuple[Row, ...]) -> tuple[int, int]:
    """How many of the run's appends stand in Postgres at their places, and the run's history after them."""
    histories = w.histories
    count, reached = 0, before
    for append, version in rows:
        following = histories.after(reached, append, version)
        here = histories.at(s.history, histories.seq[following])
        if not here:
            break
        there = histories.rows[here][-1]
        same_id = w.event[there[0]] == w.event[append]
        if there != (append, version) and not (w.rules.helped == "ids" and same_id):
            break
        count, reached = count + 1, following
    return count, reached


def _give_up(w: World, d: Draft, g: int, rows: tuple[Row, ...]) -> None:
    directly.take_back(w, d, g)
    if not d.gateways[g].direct:
        d.gateway(g, open=False)
    for append, _ in rows:
        if d.pendings[append].stage == RUNNING and w.appends[append].gateway == g:
            d.requeue(append, again=True, doubt=False, extra=())
        links.lost(d, append)


def _help(w: World, s: State, g: int) -> Iterator[State]:
    """Commits from a journal: what comes before our own run, or what no other gateway seems to commit."""
    gateway = s.gateways[g]
    to_seq = 0
    if gateway.runs and gateway.runs[0][0] == s.epoch:
        to_seq = w.histories.seq[gateway.runs[0][1]]
    waits = w.histories.seq[s.history] < to_seq
    if not (waits or gateway.open) or w.rules.commit == "do nothing":
        return
    for n, node in enumerate(s.nodes):
        if not node.master:
            continue
        data = script.opened(w, node, gateway.epoch)
        if data is not None and s.epoch == gateway.epoch:
            yield from _from_journal(w, s, g, n, to_seq if waits else 0)
        elif waits:
            w.step = ("gateway {} can't help from Redis {}", g, n)
            d = Draft(s)
            d.gateway(g, open=False, stuck=True)
            if d.gateways[g] != gateway:
                yield d.state()


def _from_journal(w: World, s: State, g: int, n: int, to_seq: int) -> Iterator[State]:
    histories = w.histories
    data = s.nodes[n].data
    assert data is not None
    seq, q = histories.seq[s.history], histories.seq[data.h]
    if q < to_seq or (q > seq and not script.contains(w, data, s.history)):
        yield from _abandon(w, s, g, n, stuck=to_seq > 0)
        return
    if q <= seq:
        return
    here = histories.at(data.h, seq)
    assert here is not None
    rows = histories.run(here, data.h)
    what = tuple([append for append, _ in rows])
    w.step = ("gateway {} commits appends {} from the journal of Redis {}", g, what, n)
    d = Draft(s)
    outcomes.commit(w, d, rows)
    yield d.state()
    if w.may(s, "delay commit"):
        w.step = ("FAULT gateway {} sends the commit of appends {} from a journal: under way", g, what)
        d = Draft(s, faults=1)
        d.send("commit", s.epoch, here, data.h)
        yield d.state()


def _abandon(w: World, s: State, g: int, n: int, *, stuck: bool) -> Iterator[State]:
    """The journal does not lead from where Postgres stands to what was sequenced: nothing after it could
    ever be committed, so the epoch ends."""
    d = Draft(s)
    if w.rules.hole == "seal":
        if s.epoch == w.scenario.epochs:
            return
        d.epoch += 1
    w.step = ("gateway {} finds a hole in the journal of Redis {}: Postgres goes to epoch {}", g, n, d.epoch)
    d.gateway(g, open=False, stuck=stuck)
    state = d.state()
    if state != s:
        yield state


def late_commit(w: World, s: State, message: tuple[Any, ...]) -> Iterator[State]:
    """A delayed commit reaches Postgres; its reply is not awaited."""
    _, epoch, before, after = message
    rows = w.histories.run(before, after)
    w.step = ("the delayed commit of appends {} arrives at Postgres", tuple([append for append, _ in rows]))
    d = Draft(s)
    d.received(message)
    if s.epoch == epoch and w.histories.same(s.history, before):
        outcomes.commit(w, d, rows)
    yield d.state()
