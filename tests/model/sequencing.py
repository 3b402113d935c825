"""Steps of a gateway's sequencer: look identities up, call the script, take its answers. The first has a task
of its own (look_ups.py), so anything may come between it and the second."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.model import links, outcomes, script
from tests.model.script import Item, Reply
from tests.model.state import NEW, QUEUED, RUNNING, Data, Node, State
from tests.model.world import Draft, World


def steps(w: World, s: State, g: int) -> Iterator[State]:
    yield from _submissions(w, s, g)
    gateway = s.gateways[g]
    if gateway.phase == ("cold",):
        yield from _look_at_heads(w, s, g)
    elif gateway.direct:
        return
    elif not gateway.phase and gateway.open:
        queue = [i for i in w.of_gateway[g] if s.pendings[i].stage == QUEUED]
        yield from _look_ups(w, s, g, [i for i in queue if to_look_up(w, s, i)])
        yield from _looks(w, s, g, queue)
        queue = [i for i in queue if is_judged(w, s, i)]
        if len(gateway.runs) < 2:
            ready = tuple(itertools.takewhile(lambda i: not to_look_up(w, s, i), queue))
            for most in range(1, len(ready) + 1):
                yield from _calls(w, s, g, ready[:most])
            yield from _empty_calls(w, s, g)


def _submissions(w: World, s: State, g: int) -> Iterator[State]:
    following = next((i for i in w.of_gateway[g] if s.pendings[i].stage == NEW), None)
    if following is None:
        return
    after = w.appends[following].after
    if after is not None and s.pendings[after].stage != NEW:
        w.step = ("a client sends append {} to gateway {}", following, g)
        d = Draft(s)
        d.requeue(following, floor=s.top)
        yield d.state()


def to_look_up(w: World, s: State, i: int) -> bool:
    """What was chosen by a client, or sent before, is looked up in Postgres first."""
    pending = s.pendings[i]
    return pending.looked_up < 0 and (bool(w.chosen[i]) or (w.rules.relook and pending.again))


def _look_ups(w: World, s: State, g: int, waiting: list[int]) -> Iterator[State]:
    if waiting and s.epoch != s.gateways[g].epoch:
        w.step = ("gateway {} finds at a look-up that Postgres is in epoch {}", g, s.epoch)
        d = Draft(s)
        d.gateway(g, open=False)
        yield d.state()
        return
    seq = w.histories.seq[s.history]
    for most in range(1, len(waiting) + 1):
        asked = tuple(waiting[:most])
        w.step = ("gateway {} looks up appends {}: Postgres is in epoch {} at seq {}", g, asked, s.epoch, seq)
        d = Draft(s)
        for i in asked:
            outcomes.judge(w, d, i)
            if d.pendings[i].stage == QUEUED:
                d.pending(i, looked_up=seq)
        yield d.state()


def is_judged(w: World, s: State, i: int) -> bool:
    """Whether its condition was looked at, in the gateway's epoch: till then it is beside the queue."""
    look, epoch = s.pendings[i].look, s.gateways[w.appends[i].gateway].epoch
    return w.appends[i].unless is None or (bool(look) and (look[0] == epoch or not w.rules.look_epoch))


def _looks(w: World, s: State, g: int, queue: list[int]) -> Iterator[State]:
    """One look at Postgres for a condition, at any time; or, of one that Redis was not asked about in this
    epoch, none."""
    for i in queue:
        tag = w.appends[i].unless
        if tag is None or is_judged(w, s, i):
            continue
        if w.scenario.by_tags and not s.pendings[i].look:
            w.step = ("gateway {} does not ask Postgres about the condition of append {}", g, i)
            d = Draft(s)
            d.pending(i, look=(s.gateways[g].epoch, 0, 0))
            yield d.state()
        seq = w.histories.seq[s.history]
        if w.rules.look == "sequenced":
            seqs = [w.histories.seq[node.data.h] for node in s.nodes if node.data is not None]
            seq = max([seq, *seqs])
        matched = w.histories.match(s.history, tag)
        w.step = ("gateway {} asks Postgres about the condition of append {}: seq {}, match {}", g, i, seq,
                  matched)  # fmt: skip
        d = Draft(s)
        d.pending(i, look=(s.epoch, seq, matched))
        yield d.state()


def looked_up(w: World, s: State, batch: tuple[int, ...]) -> int:
    """What a call of these carries."""
    looks = [s.pendings[i].looked_up for i in batch if s.pendings[i].looked_up >= 0]
    return min(looks, default=w.histories.seq[s.history])


def _calls(w: World, s: State, g: int, batch: tuple[int, ...]) -> Iterator[State]:
    """The call reaches whichever master the gateway's connection leads to."""
    looked = looked_up(w, s, batch)
    gateway = s.gateways[g]
    for n, node in enumerate(s.nodes):
        if not node.master:
            continue
        data = script.opened(w, node, gateway.epoch)
        if data is None:
            w.step = ("gateway {} calls Redis {} with appends {}: fenced", g, n, batch)
            d = Draft(s)
            _distrust(d, g, batch)
            yield d.state()
            continue
        items = hinted(w, s, batch, data)
        for known in _known(w, s, node):
            reply = script.sequence(w, data, looked, known, items)
            yield from _answered(w, s, g, n, batch, known, reply)
        if w.may(s, "tear"):
            yield from _torn(w, s, g, n, batch, script.sequence(w, data, looked, None, items))
        if w.may(s, "delay call"):
            w.step = ("FAULT gateway {} calls Redis {} with appends {}: under way, unanswered", g, n, batch)
            d = Draft(s, faults=1)
            delay(d, g, n, gateway.epoch, looked, items)
            _distrust(d, g, batch, doubt=True)
            yield d.state()


def hinted(w: World, s: State, batch: tuple[int, ...], data: Data) -> tuple[Item, ...]:
    """Each append with what is known of its stream. Unless the scenario is about cold streams, a stream that
    is missing costs no call of its own: the one that misses it, the look at Postgres and the next are one."""
    asked = links.asked(w, s.pendings, batch, s.gateways[w.appends[batch[0]].gateway].epoch)
    each = [(i, s.pendings[i].look, link) for i, link in zip(batch, asked, strict=True)]
    if w.scenario.cold:
        return tuple([(i, s.pendings[i].extra, look, link) for i, look, link in each])
    as_of = data.epoch, w.histories.seq[data.h]
    return tuple([(i, (*as_of, *_heads(w, s, i)), look, link) for i, look, link in each])


def _heads(w: World, s: State, i: int) -> list[int]:
    """Of its streams, in Postgres."""
    return [w.histories.heads[s.history][stream] for stream in w.appends[i].streams]


def delay(d: Draft, g: int, n: int, epoch: int, looked_up: int, items: tuple[Item, ...]) -> None:
    d.send("call", n, g, d.left, epoch, looked_up, items)


def _known(w: World, s: State, node: Node) -> tuple[int | None, ...]:
    """What a call carries as known committed: the latest, or nothing new."""
    assert node.data is not None
    seq = w.histories.seq
    return (s.history, None) if seq[s.history] > seq[node.data.c] else (None,)


def _answered(
    w: World, s: State, g: int, n: int, batch: tuple[int, ...], known: int | None, reply: Reply
) -> Iterator[State]:
    told = "" if known is None else f", tells that seq {w.histories.seq[known]} is committed"
    answers = ", ".join(" ".join(map(str, each)) for each in reply.answers)
    w.step = ("gateway {} calls Redis {} with appends {}{}: {}", g, n, batch, told, answers)
    d = Draft(s)
    d.data(n, in_turn(s, g, reply))
    _settle(w, d, g, batch, reply)
    if known is not None and w.histories.seq[reply.data.c] < w.histories.seq[known]:
        d.gateway(g, open=False)
    yield d.state()
    if known is None and w.may(s, "lose reply"):
        w.step = (
            "FAULT gateway {} calls Redis {} with appends {}: {}; the reply is lost",
            g,
            n,
            batch,
            answers,
        )
        d = Draft(s, faults=1)
        d.data(n, in_turn(s, g, reply))
        _distrust(d, g, batch, doubt=True)
        yield d.state()


def in_turn(s: State, g: int, reply: Reply, number: int = -1) -> Data:
    """Calls of the gateway that are under way with a lower number come too late from now on. A number is
    what was left of the budget when the call was delayed, so they descend."""
    outdated = reply.data.outdated
    for message in s.late:
        if message[0] == "call" and message[2] == g and message[3] > number:
            outdated |= 1 << message[3]
    return reply.data if outdated == reply.data.outdated else reply.data._replace(outdated=outdated)


def _torn(w: World, s: State, g: int, n: int, batch: tuple[int, ...], reply: Reply) -> Iterator[State]:
    written = [i for i, answer in zip(batch, reply.answers, strict=True) if answer == ("V",)]
    data = s.nodes[n].data
    if written and data is not None:
        w.step = ("FAULT gateway {} calls Redis {} with appends {}: the script fails half-way", g, n, batch)
        d = Draft(s, faults=1)
        stream = w.appends[written[0]].stream
        d.data(n, data._replace(torn=1 + stream, hot=data.hot | 1 << stream))
        _distrust(d, g, batch, doubt=True)
        yield d.state()


def _distrust(d: Draft, g: int, batch: tuple[int, ...], *, doubt: bool = False) -> None:
    d.gateway(g, open=False, phase=())
    for i in batch:
        d.requeue(i, again=True, extra=(), doubt=doubt or d.pendings[i].doubt)


def _settle(w: World, d: Draft, g: int, batch: tuple[int, ...], reply: Reply) -> None:
    histories = w.histories
    d.gateway(g, phase=())
    outcomes.confirm(w, d, g, histories.seq[reply.data.c])
    if reply.data.h != reply.before:
        gateway = d.gateways[g]
        d.gateway(g, runs=(*gateway.runs, (gateway.epoch, reply.before, reply.data.h)), stuck=False)
    places = dict(histories.run(reply.before, reply.data.h))
    for i, answer in zip(batch, reply.answers, strict=True):
        if answer == ("V",):
            d.pending(i, stage=RUNNING, doubt=True, again=True, extra=(), looked_up=-1, look=())
            links.placed(w, d, i, places[i], d.gateways[g].epoch)
            if w.rules.acknowledge == "sequenced":
                outcomes.acknowledge(w, d, i, places[i])
        else:
            _take_answer(w, d, i, answer, reply)


def _take_answer(w: World, d: Draft, i: int, answer: tuple[str | int, ...], reply: Reply) -> None:
    kind, value = str(answer[0]), int(answer[1]) if len(answer) > 1 else 0
    # The original is the append's own first try, perhaps; any other answer says that there was none.
    d.pending(i, doubt=kind == "D" and w.rules.own_doubt and d.pendings[i].doubt)
    if kind in "DMCK":
        outcomes.wait(w, d, i, kind, reply.data.h, value)
    elif kind == "X":
        d.requeue(i, extra=(reply.data.epoch, w.histories.seq[reply.before]))
        d.gateway(w.appends[i].gateway, phase=("cold",))
    elif kind == "L":
        d.requeue(i, look=())
    else:
        d.requeue(i, again=True)


def _look_at_heads(w: World, s: State, g: int) -> Iterator[State]:
    """One look at Postgres for all streams of the call that Redis does not have."""
    cold = [i for i in w.of_gateway[g] if s.pendings[i].stage == QUEUED and len(s.pendings[i].extra) == 2]
    heads = [_heads(w, s, i) for i in cold]
    w.step = ("gateway {} asks Postgres for the streams of appends {}: {} events", g, tuple(cold), heads)
    d = Draft(s)
    d.gateway(g, phase=())
    for i, of_each in zip(cold, heads, strict=True):
        d.pending(i, extra=(*s.pendings[i].extra, *of_each))
    yield d.state()


def _empty_calls(w: World, s: State, g: int) -> Iterator[State]:
    """A call without appends moves the watermark, or finds the server fenced."""
    gateway = s.gateways[g]
    for n, node in enumerate(s.nodes):
        if not node.master:
            continue
        data = script.opened(w, node, gateway.epoch)
        if data is None:
            w.step = ("gateway {} finds Redis {} fenced", g, n)
            d = Draft(s)
            d.gateway(g, open=False)
            yield d.state()
            continue
        known = _known(w, s, node)[0]
        c = script.advanced(w, data, known)
        after, seq = (
            in_turn(s, g, Reply(data if c == data.c else data._replace(c=c), data.h, ())),
            w.histories.seq,
        )
        behind = known is not None and seq[c] < seq[known]
        if after is data and not behind and seq[c] <= gateway.confirmed:
            continue  # nothing changes
        w.step = ("gateway {} moves the watermark of Redis {} to seq {}", g, n, seq[c])
        d = Draft(s)
        d.data(n, after)
        outcomes.confirm(w, d, g, seq[c])
        if behind:
            d.gateway(g, open=False)
        yield d.state()


def late_call(w: World, s: State, message: tuple[Any, ...]) -> Iterator[State]:
    """A delayed call runs, if it still may; its reply is not awaited."""
    _, n, g, number, epoch, looked_up, items = message
    data = script.opened(w, s.nodes[n], epoch)
    what = tuple([item[0] for item in items])
    w.step = ("the delayed call of gateway {} with appends {} arrives at Redis {}", g, what, n)
    d = Draft(s)
    d.received(message)
    if data is not None and not (w.rules.call_numbers and data.outdated >> number & 1):
        reply = script.sequence(w, data, looked_up, None, items)
        d.data(n, in_turn(s, g, reply, number))
    yield d.state()
