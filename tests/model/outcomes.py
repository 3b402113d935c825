"""What clients are told and what Postgres is made to hold, each checked against the promises as it happens.

Postgres only ever gains rows here, so a promise that holds when it is given holds from then on, but one: that
something will never appear. An append of which that was said is REFUSED, and `commit` looks for them.
"""

from __future__ import annotations

from tests.model.history import Row, Version, firsts
from tests.model.script import conflicts
from tests.model.state import ANSWERED, COMMITTED, HELD, REFUSED, WAITING, Broken, Pending
from tests.model.world import Draft, World


def commit(w: World, d: Draft, rows: tuple[Row, ...]) -> None:
    """Inserts rows after all that Postgres holds. Raises Broken if it would hold what it must not."""
    for append, version in rows:
        _check_row(w, d, append, version)
        d.history = w.histories.after(d.history, append, version)


def _check_row(w: World, d: Draft, append: int, version: Version) -> None:
    of, heads = w.appends[append], w.histories.heads[d.history]
    if d.pendings[append].stage == REFUSED:
        raise Broken(f"append {append} appears after it was answered that it never will")
    held = w.claims(d.history)
    for identity in w.identities[append]:
        if identity in held:
            raise Broken(f"append {append} is there beside append {held[identity][0]} of the same identity")
    for (stream, expected, _), first in zip(of.parts, firsts(version), strict=True):
        head = heads[stream]
        if first != head + 1:
            raise Broken(f"append {append} stands at version {first} of a stream that has {head} events")
        if conflicts(expected, first - 1):
            raise Broken(
                f"append {append} asked to stand after {expected} events and stands after {first - 1}"
            )
    if of.unless is not None and w.histories.match(d.history, of.unless):
        raise Broken(f"append {append} stands after an event that its condition excludes")
    _check_link(w, d, append)


def _check_link(w: World, d: Draft, append: int) -> None:
    """It follows directly what it was judged on, and that too."""
    row, of = w.judged_on[append], w.appends[append]
    if not row or of.free:
        return
    there = [other for other, _ in w.histories.rows[d.history] if of.stream in w.appends[other].streams]
    if tuple(there[-len(row) :]) != row:
        raise Broken(f"append {append} was judged behind appends {row} and stands behind {tuple(there)}")


def acknowledge(w: World, d: Draft, append: int, version: Version) -> None:
    """201. Raises Broken unless Postgres has it at this version."""
    if (append, version) not in w.histories.rows[d.history]:
        raise Broken(f"append {append} is acknowledged at version {version} and is not there")
    _end(d, append, ANSWERED)
    _acknowledged(w, d, append)


def _acknowledged(w: World, d: Draft, append: int) -> None:
    if w.scenario.realtime:
        d.top = max(d.top, w.claims(d.history)[w.event[append]][1])


def replay(w: World, d: Draft, append: int, original: int | None) -> None:
    """201 again, with the receipt of what stands where its original did. Raises Broken if it is another's."""
    there = original is not None and original in {row[0] for row in w.histories.rows[d.history]}
    if not there or not _same_request(w, append, original):
        raise Broken(f"append {append} is answered with the receipt of {original}, which is no try of it")
    assert original is not None
    if append in w.linked and not w.rules.link_own:
        d.pending(append, place=COMMITTED)
    _end(d, append, ANSWERED)
    _acknowledged(w, d, original)


def _same_request(w: World, append: int, original: int | None) -> bool:
    if original is None or w.appends[append].body != w.appends[original].body:
        return False
    return append == original or bool({*w.chosen[append]} & {*w.chosen[original]})


def mismatch(w: World, d: Draft, append: int) -> None:
    """422. Raises Broken when no other append holds any of its identities."""
    held = w.claims(d.history)
    if not any(identity in held for identity in w.identities[append]):
        raise Broken(f"append {append} is answered a mismatch with nobody")
    _end(d, append, ANSWERED)


def conflict(w: World, d: Draft, append: int, basis: int, head: int) -> None:
    """409. Raises Broken unless the history that it was decided on is committed and the stream really had
    that many events, not before all that was acknowledged when the request came."""
    histories = w.histories
    if basis not in histories.held[d.history]:
        raise Broken(f"append {append} is answered a conflict on a history that is not committed")
    floor = d.pendings[append].floor
    real = [each for each in histories.line[d.history] if histories.seq[each] >= floor]
    streams = w.appends[append].streams
    if head not in {histories.heads[each][stream] for each in real for stream in streams}:
        raise Broken(f"append {append} is answered a conflict with {head} events, not what the stream has")
    if append in {row[0] for row in histories.rows[d.history]}:
        raise Broken(f"append {append} is answered a conflict and is there")
    _end(d, append, REFUSED)
    _refuse_original(w, d, append, head)


def fail_condition(w: World, d: Draft, append: int, seq: int) -> None:
    """409. Raises Broken unless an event that the condition excludes is committed."""
    tag = w.appends[append].unless
    assert tag is not None
    if w.histories.match(d.history, tag) != seq:
        raise Broken(f"the condition of append {append} is refused by an event that is not committed")
    if append in {row[0] for row in w.histories.rows[d.history]}:
        raise Broken(f"append {append} is answered that its condition failed and is there")
    _end(d, append, REFUSED)


def _refuse_original(w: World, d: Draft, append: int, head: int) -> None:
    """A 409 to a keyed retry means that the original is not there and never will be; where the request asks
    for more events than there are, an original that is still on its way may get its turn later."""
    if not w.chosen[append] or not 0 <= w.appends[append].expected < head:
        return
    for other, _ in w.histories.rows[d.history]:
        if _same_request(w, append, other):
            raise Broken(f"append {append} is answered a conflict and its original {other} is there")


def expire(w: World, d: Draft, append: int) -> None:
    """Its deadline has passed: 504 where it is in doubt, else 503."""
    if d.pendings[append].doubt:
        _end(d, append, ANSWERED)
        return
    if append in {row[0] for row in w.histories.rows[d.history]}:
        raise Broken(f"append {append} is answered not_committed and is there")
    _end(d, append, REFUSED)


def _end(d: Draft, append: int, stage: int) -> None:
    """Of what is answered nothing else is remembered but its place, for those that were judged on it."""
    d.pendings[append] = Pending(stage, False, False, (), 0, place=d.pendings[append].place)


# -- answers that wait for their basis


def wait(w: World, d: Draft, append: int, kind: str, basis: int, value: int) -> None:
    """Answers once everything up to the basis is confirmed: at once, where it is."""
    d.pending(append, stage=WAITING, extra=(kind, basis, value), looked_up=-1, look=())
    confirmed = d.gateways[w.appends[append].gateway].confirmed
    waits = {"C": w.rules.conflict_waits, "D": w.rules.replay_waits, "K": w.rules.condition_waits}
    at_once = not waits.get(kind, True)
    if at_once or _awaited(w, kind, basis, value) <= confirmed:
        _answer(w, d, append)


def _awaited(w: World, kind: str, basis: int, value: int) -> int:
    """The seq that has to be confirmed. A replay waits only for its original, a condition for the match."""
    return value if kind in "DK" else w.histories.seq[basis]


def confirm(w: World, d: Draft, g: int, seq: int) -> None:
    """The gateway learns that Postgres and this epoch's Redis hold the same up to `seq`."""
    if seq <= d.gateways[g].confirmed:
        return
    d.gateway(g, confirmed=seq)
    for i in w.of_gateway[g]:
        if d.pendings[i].stage == WAITING and _awaited(w, *d.pendings[i].extra) <= seq:
            _answer(w, d, i)


def _answer(w: World, d: Draft, append: int) -> None:
    kind, basis, value = d.pendings[append].extra
    epoch = d.gateways[w.appends[append].gateway].epoch
    if kind == "C" and w.rules.conflict_looks and d.epoch != epoch:
        d.requeue(append, again=True, extra=())
    elif w.rules.answers == "checked":
        _answer_checked(w, d, append, kind)
    elif kind == "M":
        mismatch(w, d, append)
    elif kind == "C":
        conflict(w, d, append, basis, value)
    elif kind == "K":
        fail_condition(w, d, append, value)
    else:
        here = w.histories.at(d.history, value)
        replay(w, d, append, None if not here else w.histories.rows[here][-1][0])


def _answer_checked(w: World, d: Draft, append: int, kind: str) -> None:
    """As Postgres has it by now; decided again where that says otherwise."""
    head = w.histories.heads[d.history][w.appends[append].stream]
    d.pending(append, stage=HELD)
    judge(w, d, append)
    still = d.pendings[append].stage == HELD
    if still and kind == "C" and conflicts(w.appends[append].expected, head):
        conflict(w, d, append, d.history, head)
    elif still:
        d.requeue(append, again=True, extra=())


def judge(w: World, d: Draft, i: int) -> None:
    """Answers an append that Postgres knows already."""
    held = w.claims(d.history)
    chosen = w.chosen[i]
    found = [held[each] for each in chosen if each in held and each in w.chosen[held[each][0]]]
    if not found:
        if any(each in held for each in chosen):
            mismatch(w, d, i)
        elif not chosen and w.event[i] in held:
            replay(w, d, i, i)
    elif found == [found[0]] * len(chosen) and w.appends[found[0][0]].body == w.appends[i].body:
        replay(w, d, i, found[0][0])
    else:
        mismatch(w, d, i)


def decide_again(w: World, d: Draft, g: int) -> None:
    """The epoch has ended, and with it what was decided in it and not confirmed."""
    for i in w.of_gateway[g]:
        if d.pendings[i].stage == WAITING:
            d.requeue(i, again=True, extra=())


def adopt(w: World, d: Draft, g: int, epoch: int, history: int, *, direct: bool = False) -> None:
    """The gateway believes Redis, which continues what Postgres committed up to `history`; or goes direct."""
    if epoch != d.gateways[g].epoch:
        d.gateway(g, epoch=epoch, confirmed=0)
        decide_again(w, d, g)
    d.gateway(g, open=True, direct=direct, phase=())
    if w.rules.look_anew:
        for i in w.of_gateway[g]:
            if w.rules.beside or w.appends[i].unless is None or d.pendings[i].look:
                d.pending(i, looked_up=-1)
    confirm(w, d, g, w.histories.seq[history])
