"""Direct mode: a gateway seals Redis off for everybody, appends go by only Postgres, then back.

Each function follows verify.py, direct.py and direct_sequencer.py. When Redis counts as lost, and when as
steady, is up to chance here: at any time, to any gateway, also while others reach it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import links, outcomes
from tests.model.script import conflicts
from tests.model.state import HELD, QUEUED, RUNNING, State
from tests.model.world import Draft, World

Verdict = tuple[str, int]
"""("D", original), ("M", 0), ("C", head), ("K", seq of the match), ("V", head): after so many events."""


def steps(w: World, s: State, g: int) -> Iterator[State]:
    gateway = s.gateways[g]
    if gateway.phase or not (gateway.stuck or not gateway.runs):
        return
    if w.may(s, "lose redis") and not s.direct:
        yield from _leave(w, s, g)
    if not gateway.open and s.direct:
        w.step = ("gateway {} verifies: epoch {} takes no Redis", g, s.epoch)
        d = Draft(s)
        outcomes.adopt(w, d, g, s.epoch, s.history, direct=True)
        yield d.state()
    if gateway.open and gateway.direct:
        queue = [i for i in w.of_gateway[g] if s.pendings[i].stage == QUEUED]
        for most in range(1, len(queue) + 1):
            yield from _append(w, s, g, tuple(queue[:most]))


def _leave(w: World, s: State, g: int) -> Iterator[State]:
    """Redis has not answered this gateway for too long."""
    d = Draft(s, faults=1)
    if w.rules.mode == "swap":
        if s.epoch == w.scenario.epochs:
            return
        d.epoch, d.direct = s.epoch + 1, True
    w.step = ("FAULT gateway {} reaches no Redis: direct mode, epoch {}", g, d.epoch)
    outcomes.adopt(w, d, g, d.epoch, s.history, direct=True)
    yield d.state()


def _append(w: World, s: State, g: int, batch: tuple[int, ...]) -> Iterator[State]:
    """One look at Postgres, and a verdict on each append. What is placed is then a run like any other."""
    w.step = ("gateway {} judges appends {} directly: Postgres is in epoch {} at seq {}", g, batch, s.epoch,
              w.histories.seq[s.history])  # fmt: skip
    d = Draft(s)
    if s.epoch != s.gateways[g].epoch:
        d.gateway(g, open=False)
        yield d.state()
        return
    after = s.history
    skipped: set[int] = set()
    for i, link in zip(batch, links.asked(w, s.pendings, batch, s.epoch), strict=True):
        broken = link == links.NOWHERE or (link == links.BEHIND_ALL and w.appends[i].stream in skipped)
        kind, value = _verdict(w, after, i, broken=broken and w.rules.links_directly)
        if kind != "V":
            skipped.update(w.appends[i].streams)
        if kind == "V":
            versions = tuple([w.histories.heads[after][stream] + 1 for stream in w.appends[i].streams])
            after = w.histories.after(after, i, versions if w.appends[i].others else versions[0])
            d.pending(i, stage=RUNNING, doubt=True, again=True, extra=())
            links.placed(w, d, i, versions, s.epoch)
        elif after == s.history or not w.rules.rests:
            d.pending(i, stage=HELD, doubt=False, extra=())
            _answer(w, d, i, kind, after, value)
        else:
            d.pending(i, stage=HELD, doubt=False, extra=(kind, after, value))
    if after != s.history:
        d.gateway(g, runs=((s.epoch, s.history, after),), stuck=False)
    yield d.state()


def _verdict(w: World, history: int, i: int, *, broken: bool) -> Verdict:
    """As direct_sequencer.py judges, on Postgres' history and the appends that were placed before it.
    `broken`: the one behind which it was judged is not among these."""
    held, chosen = w.claims(history), w.chosen[i]
    found = [held[each] for each in chosen if each in held and each in w.chosen[held[each][0]]]
    if found:
        same = found == [found[0]] * len(chosen) and w.appends[found[0][0]].body == w.appends[i].body
        return ("D", found[0][0]) if same else ("M", 0)
    if any(each in held for each in chosen):
        return ("M", 0)
    if w.event[i] in held:
        return ("D", i)
    of, heads = w.appends[i], w.histories.heads[history]
    for stream, expected, _ in of.parts:
        if conflicts(expected, heads[stream]) or broken:
            return ("C", heads[stream])
    matched = 0 if of.unless is None else w.histories.match(history, of.unless)
    return ("K", matched) if matched else ("V", heads[of.stream])


def _answer(w: World, d: Draft, i: int, kind: str, basis: int, value: int) -> None:
    if kind == "D":
        outcomes.replay(w, d, i, value)
    elif kind == "M":
        outcomes.mismatch(w, d, i)
    elif kind == "K":
        outcomes.fail_condition(w, d, i, value)
    else:
        outcomes.conflict(w, d, i, basis, value)


def answer_rest(w: World, d: Draft, g: int) -> None:
    """The batch is committed, and with it what the verdicts rest on."""
    for i in _resting(w, d, g):
        _answer(w, d, i, *d.pendings[i].extra)


def take_back(w: World, d: Draft, g: int) -> None:
    """The batch is not: they are decided again."""
    for i in _resting(w, d, g):
        d.requeue(i, again=True, extra=())


def _resting(w: World, d: Draft, g: int) -> list[int]:
    if not d.gateways[g].direct:
        return []
    return [i for i in w.of_gateway[g] if d.pendings[i].stage == HELD and d.pendings[i].extra]
