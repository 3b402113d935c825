"""The scripts as Redis runs them: prelude.lua, sequence.lua, install.lua. Pure: data in, data out.

Each function follows its script line by line; what they are given and leave is described there.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.links import BEHIND_ALL, NOWHERE
from tests.model.scenario import ANY, AT_LEAST_ONE, OWN, Append
from tests.model.state import Data, Node
from tests.model.world import World

Item = tuple[int, tuple[int, ...], tuple[int, ...], int]  # (append, hint, look, as links.py asks)
Answer = tuple[str | int, ...]


class Reply(NamedTuple):
    """What the script leaves, the history before, and an answer for each append: ("V",) sequenced,
    ("D", last seq of the original), ("M",) mismatch, ("C", head), ("X",) cold, ("S",) look again,
    ("K", seq) the condition failed by the event there, ("L",) ask Postgres about the condition again."""

    data: Data
    before: int
    answers: tuple[tuple[str | int, ...], ...]


def opened(w: World, node: Node, epoch: int) -> Data | None:
    """What every script asks first; None is FENCED."""
    data = node.data
    if not node.master or data is None or data.epoch != epoch or data.fence != w.identity(node):
        return None
    return None if data.torn and w.rules.torn else data


def advanced(w: World, data: Data, known: int | None) -> int:
    """The watermark after a call that carries what its caller knows committed."""
    histories = w.histories
    if known is None or not histories.seq[data.c] < histories.seq[known] <= histories.seq[data.h]:
        return data.c
    here = histories.at(data.h, histories.seq[known])
    if here is not None and (histories.same(here, known) or w.rules.watermark == "number"):
        return here
    return data.c


def sequence(w: World, data: Data, looked_up: int, known: int | None, batch: tuple[Item, ...]) -> Reply:
    """Gives every append of the call its place, or says why not."""
    asked = (data, looked_up, known, batch)
    reply = w.replies.get(asked)
    if reply is None:
        call = _Call(w, data, looked_up)
        answers = tuple([call.answer(*item) for item in batch])
        left = data._replace(h=call.h, c=advanced(w, data, known), hot=call.hot, looked=call.looked)
        reply = w.replies[asked] = Reply(left, data.h, answers)
    return reply


class _Call:
    """The overlay: each append is judged on the state that the earlier ones of the call leave."""

    def __init__(self, w: World, data: Data, looked_up: int) -> None:
        self._w = w
        self._data = data
        self.h = data.h
        self.hot = data.hot
        self.looked = data.looked
        window = w.scenario.window
        forgotten_to = (w.histories.seq[data.h] // window - 1) * window
        self._stale = w.rules.look_again and looked_up < forgotten_to
        self._claims = dict(w.claims(data.h, data.base, forgotten_to))
        self._heads: dict[int, int] = {}
        self._blocked: dict[int, tuple[str | int, ...]] = {}
        self._skipped: set[int] = set()

    def answer(self, append: int, hint: tuple[int, ...], look: tuple[int, ...], link: int) -> Answer:
        answer = self._judge(append, hint, look, link)
        if answer != ("V",):
            self._skipped.update(self._w.appends[append].streams)
        return answer

    def _judge(self, append: int, hint: tuple[int, ...], look: tuple[int, ...], link: int) -> Answer:
        w = self._w
        of = w.appends[append]
        blocked = [self._blocked[stream] for stream in of.streams if stream in self._blocked]
        if blocked:
            return self._block(of, blocked[0])
        earlier = self._earlier(append)
        if earlier is not None:
            return earlier
        if self._stale:
            return self._block(of, ("S",))
        heads = self._heads_of(of, hint)
        if None in heads:
            return self._block(of, ("X",))
        broken = link == NOWHERE or (link == BEHIND_ALL and of.stream in self._skipped)
        for (_, expected, _), head in zip(of.parts, heads, strict=True):
            assert head is not None
            if conflicts(expected, head) or broken:
                return ("C", head)
            if w.rules.lengths == "first":
                break
        if of.unless is not None:
            failed = self._failed(of.unless, look)
            if failed:
                return failed
            self._remember(of, look)
        self._write(append, [head or 0 for head in heads])
        return ("V",)

    def _block(self, of: Append, answer: Answer) -> Answer:
        for stream in of.streams:
            self._blocked[stream] = answer
        return answer

    def _heads_of(self, of: Append, hint: tuple[int, ...]) -> list[int | None]:
        """A hint is (epoch, as of, and the head of each of its streams)."""
        hints = [(*hint[:2], head) for head in hint[2:]] or [()] * len(of.streams)
        heads = [self._head(stream, each) for stream, each in zip(of.streams, hints, strict=True)]
        if not self._w.rules.others_cold:
            heads[1:] = [head or 0 for head in heads[1:]]
        return heads

    def _failed(self, tag: int, look: tuple[int, ...]) -> Answer | None:
        """By what Postgres said, else by what is in the journal behind that and what the call has placed."""
        _, seq, matched = look
        if matched:
            return ("K", matched)
        if self._w.rules.condition == "look" or (self._w.scenario.by_tags and self._quiet(tag, seq)):
            return None
        if self._w.rules.look_epoch and seq < self._w.histories.seq[self._data.base]:
            return ("L",)
        behind = max(seq, self._w.histories.seq[self._data.base])  # an older journal is not read
        found = self._w.histories.match(self.h, tag, behind)
        return ("K", found) if found else None

    def _quiet(self, tag: int, seq: int) -> bool:
        """Whether certainly no event has it: by the tags that are here, where none has it up to `seq`."""
        w, data = self._w, self._data
        seq = max(seq, data.looked)
        if (tag < OWN and w.histories.match(self.h, tag, data.tags_held)) or seq < data.tags_from:
            return False
        stream = tag - OWN
        if stream >= 0 and self.hot >> stream & 1:
            return w.histories.last_seq(self.h, stream) == 0
        return seq >= data.evicted or not w.rules.own_evicted

    def _remember(self, of: Append, look: tuple[int, ...]) -> None:
        """Where it passed by its look."""
        if self._w.scenario.by_tags and of.unless is not None:
            self.looked = max(self.looked, look[1])

    def _earlier(self, append: int) -> tuple[str | int, ...] | None:
        """Whether it is a retry. The first identity is the event's, which a retry under a key need not
        share when the gateway minted it."""
        w = self._w
        asked = w.identities[append]
        found = [self._claims[each] for each in asked if each in self._claims]
        if not found:
            return None
        original, last = found[0]
        but_minted = len(found) == len(asked) - 1 and asked[0] not in self._claims
        if any(each != found[0] for each in found) or not (len(found) == len(asked) or but_minted):
            return ("M",)
        if w.appends[original].body != w.appends[append].body:
            return ("M",)
        return ("D", last)

    def _head(self, stream: int, hint: tuple[int, ...]) -> int | None:
        if stream in self._heads:
            return self._heads[stream]
        data, rules = self._data, self._w.rules
        if data.hot >> stream & 1:
            return self._w.histories.heads[self.h][stream] + (data.torn == stream + 1)
        if not hint:
            return None
        epoch, as_of, head = hint
        outlived = (rules.evicted and as_of < data.evicted) or (rules.hint_epoch and epoch != data.epoch)
        return None if outlived else head

    def _write(self, append: int, heads: list[int]) -> None:
        w, of = self._w, self._w.appends[append]
        versions = tuple([head + 1 for head in heads])
        if w.rules.validate == "before the call":
            versions = (max(versions[0], w.histories.heads[self.h][of.stream] + 1),)
        self.h = w.histories.after(self.h, append, versions if of.others else versions[0])
        for stream in of.streams:
            self.hot |= 1 << stream
        if w.rules.validate == "one by one":
            for (stream, _, events), head in zip(of.parts, heads, strict=True):
                self._heads[stream] = head + events
            claim = (append, w.histories.seq[self.h])
            self._claims.update(dict.fromkeys(w.identities[append], claim))
        else:
            self._heads[of.stream] = heads[0]


def conflicts(expected: int, head: int) -> bool:
    if expected == AT_LEAST_ONE:
        return head == 0
    return expected != ANY and expected != head


def contains(w: World, data: Data, history: int) -> bool:
    """Whether this server's chain is Postgres' where Postgres stands."""
    here = w.histories.at(data.h, w.histories.seq[history])
    return here is not None and w.histories.same(here, history)


def refenced(w: World, node: Node, server: int, epoch: int, history: int) -> Data | None:
    """The data after a server is believed in another life of it, which is unsafe; None: it was too late."""
    data = node.data
    if not node.master or w.identity(node) != server or data is None or data.epoch != epoch or data.torn:
        return None
    if not contains(w, data, history):
        return None
    here = w.histories.at(data.h, w.histories.seq[history])
    assert here is not None
    c = here if w.histories.seq[here] > w.histories.seq[data.c] else data.c
    return data._replace(fence=server, c=c)


def installed(w: World, node: Node, server: int, epoch: int, history: int) -> Data | None:
    """The data after install.lua; None is STALE."""
    data = node.data
    if not node.master or w.identity(node) != server:
        return None
    if data is not None and data.epoch >= epoch and w.rules.install_epoch:
        return None
    return fresh(w, server, epoch, history)


def fresh(w: World, server: int, epoch: int, history: int) -> Data:
    held = w.histories.seq[history]
    return Data(epoch, server, history, history, history, 0, 0, 0, 0, held if w.rules.tags_epoch else 0, held)
