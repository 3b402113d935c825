"""The append protocol in the plainest words: what the scripts and the statements have to do. Pure.

Two parts that know nothing of each other, as in the real thing: `RedisModel` is one partition in one Redis,
`PostgresModel` its rows. tests/log/test_protocol_model.py holds the real ones against them, step by step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gateway.appends import AT_LEAST_ONE, Append, next_chain
from gateway.events import Stream
from gateway.log.append.identities import ClaimedByAnother, Original
from gateway.log.postgres import REDIS
from gateway.outcomes import Conflict

Place = tuple[int, str]
"""(seq, chain)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An append in its place: in a journal, or on its way to Postgres."""

    append: Append
    first_version: int
    last_seq: int
    chain: str

    @property
    def first_seq(self) -> int:
        return self.last_seq - len(self.append.events) + 1


@dataclass(frozen=True, slots=True)
class Call:
    """What a call of the sequence script brings."""

    epoch: int
    caller: str
    number: int
    told: Place
    looked_up: int
    window: int
    appends: tuple[Append, ...]
    hints: tuple[str, ...]


@dataclass(slots=True)
class RedisModel:
    """`fence` is whether the server is in the life in which it was verified."""

    epoch: int
    w: int
    q: int
    h: str
    c: int
    e: int  # the highest seq of an event that was evicted
    fence: bool = True
    torn: bool = False
    journal: dict[int, Entry] = field(default_factory=dict)
    heads: dict[Stream, int] | None = field(default_factory=dict)  # None: lost
    past: str = ""
    at_c: str | None = None  # chain at c
    claims: tuple[dict[bytes, str], dict[bytes, str]] = field(default_factory=lambda: ({}, {}))
    calls: dict[str, int] = field(default_factory=dict)
    lengths: dict[Stream, int] | None = field(default_factory=dict)
    """Of every stream, here or not, in the history that this Redis continues; None: not known any more."""

    def closed(self, epoch: int) -> bytes | None:
        if self.epoch != epoch:
            return b"epoch"
        if not self.fence:
            return b"fence"
        return b"torn" if self.torn else None

    def chain_at(self, seq: int) -> str | None:
        if seq == self.q:
            return self.h
        if seq == self.c and self.at_c is not None:
            return self.at_c
        return self.journal[seq].chain if seq in self.journal else None

    def begun_at(self, seq: int) -> str | None:
        """The chain where one of the last calls began, which is known without the journal."""
        found = re.search(f" {seq}:([0-9a-f]*)", self.past)
        return found[1] if found else self.chain_at(seq)

    def advance(self, told: Place) -> bool:
        """False: it was set back behind what was committed."""
        if self.c < told[0] <= self.q and self.begun_at(told[0]) == told[1]:
            self.c, self.at_c = told
        return told[0] <= self.q

    def sequence(self, call: Call) -> tuple[list[int | bytes], list[Entry]]:
        """Answers, and what was placed; the call is not fenced."""
        stale = call.looked_up < (self.q // self.w - 1) * self.w
        claimed = self.claims[0] | self.claims[1]
        heads: dict[Stream, int] = {}
        blocked: dict[Stream, bytes] = {}
        placed: list[Entry] = []
        q, h = self.q, self.h
        answers: list[int | bytes] = []
        for append, hint in zip(call.appends, call.hints, strict=True):
            stream, head = append.stream, None
            verdict = blocked.get(stream) or _earlier(append, claimed)
            if verdict is None:
                # Each append has a hint of its own: one that was answered before may have had an old one.
                head = heads[stream] if stream in heads else self._head(stream, hint)
                verdict = self._judged(append, head, q, call.window, stale=stale)
                if verdict in (b"S", b"X", b"B"):
                    blocked[stream] = verdict
            if verdict is None:
                version, count = (head or 0) + 1, len(append.events)
                q, h = q + count, next_chain(h, version, append.digests)
                heads[stream] = version + count - 1
                claim = f"{q}:{count}:{append.request_digest.hex()}"
                claimed |= dict.fromkeys(append.identities, claim)
                placed.append(Entry(append, version, q, h))
                answers.append(version)
            else:
                answers.append(verdict)
        self._write(placed)
        return answers, placed

    def _head(self, stream: Stream, hint: str) -> int | None:
        assert self.heads is not None
        if stream in self.heads:
            return self.heads[stream]
        epoch, q, known = hint.replace(".", ":").split(":")
        return int(known) if int(epoch) == self.epoch and int(q) >= self.e else None

    def _judged(self, append: Append, head: int | None, q: int, window: int, *, stale: bool) -> bytes | None:
        if stale:
            return b"S"
        if head is None:
            return b"X"
        expected = append.expected
        if (expected >= 0 and expected != head) or (expected == AT_LEAST_ONE and not head):
            return b"C%d" % head
        if q > self.c and q - self.c + len(append.events) > window:
            return b"B"
        return None

    def _write(self, placed: Sequence[Entry]) -> None:
        current = self.q // self.w
        assert self.heads is not None
        if placed:
            self.past = f"{self.past} {self.q}:{self.h}"[-480:]
        for each in placed:
            last = each.first_version + len(each.append.events) - 1
            self._follows(each, last)
            self.heads[each.append.stream] = last
            self.journal[each.last_seq] = each
            turn = each.last_seq // self.w
            if turn > current:
                current = turn
                self.claims[turn % 2].clear()
            claim = f"{each.last_seq}:{len(each.append.events)}:{each.append.request_digest.hex()}"
            self.claims[current % 2].update(dict.fromkeys(each.append.identities, claim))
            self.q, self.h = each.last_seq, each.chain

    def _follows(self, each: Entry, last: int) -> None:
        """Whatever was evicted and looked up: it stands where its stream ends."""
        if self.lengths is not None:
            stream = each.append.stream
            assert each.first_version == self.lengths.get(stream, 0) + 1
            self.lengths[stream] = last

    def evict(self, stream: Stream, last_seq: int) -> None:
        if self.heads is not None:
            del self.heads[stream]
        self.e = max(self.e, last_seq)


def _earlier(append: Append, claimed: dict[bytes, str]) -> bytes | None:
    held = [claimed[each] for each in append.identities if each in claimed]
    if not held:
        return None
    last, count, digest = held[0].split(":")
    but_minted = len(held) == len(append.identities) - 1 and append.identities[0] not in claimed
    if len(set(held)) > 1 or digest != append.request_digest.hex():
        return b"M"
    if len(held) < len(append.identities) and not but_minted:
        return b"M"
    return b"D%d:%d" % (int(last), int(count))


class Swap(Enum):
    HELD = "held"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(slots=True)
class PostgresModel:
    """Partition `p`. `rows` in the order of seq: stream, version, event id, append."""

    p: int
    epoch: int = 1
    mode: str = REDIS
    chain: str = ""
    rows: list[tuple[Stream, int, bytes, Append]] = field(default_factory=list)
    claims: dict[bytes, tuple[int, int, bytes]] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return len(self.rows), self.chain

    def length(self, stream: Stream) -> int:
        return sum(row[0] == stream for row in self.rows)

    def swap(self, epoch: int, before: Place, run: Sequence[Entry], mode: str = REDIS) -> Swap:
        if (epoch, mode, before) != (self.epoch, self.mode, self.place):
            return Swap.FAILED
        rows = [
            (each.append.stream, each.first_version + n, event.id, each.append)
            for each in run
            for n, event in enumerate(each.append.events)
        ]
        both = [*self.rows, *rows]
        chosen = [identity for each in run for identity in each.append.chosen]
        places, ids = {row[:2] for row in both}, {(row[0].tenant, row[2]) for row in both}
        if min(len(places), len(ids)) < len(both) or len(set(chosen)) < len(chosen) or (
            self.claims.keys() & set(chosen)
        ):  # fmt: skip
            return Swap.REFUSED
        for each in run:
            claim = each.first_seq, len(each.append.events), each.append.request_digest
            self.claims |= dict.fromkeys(each.append.chosen, claim)
        self.rows += rows
        self.chain = run[-1].chain
        return Swap.HELD

    def judged(self, asked: Append) -> Original | ClaimedByAnother | None:
        """Whether it is committed already; None: no append holds any of its identities."""
        held = [self.claims.get(each) for each in asked.chosen]
        found = [each for each in held if each is not None]
        if found:
            first = found[0]
            if found != [first] * len(held) or first[2] != asked.request_digest:
                return ClaimedByAnother()
            return Original(self.p, first[0], first[0] + first[1] - 1)
        seqs = [n for n, row in enumerate(self.rows, 1) if row[3].append_id == asked.append_id]
        return Original(self.p, seqs[0], seqs[-1]) if seqs and not asked.chosen else None

    def directly(self, appends: Sequence[Append]) -> list[Entry | Original | ClaimedByAnother | Conflict]:
        """What becomes of each in direct mode, on what those before it leave; nothing is changed here."""
        then = replace(self, rows=[*self.rows], claims=dict(self.claims))
        verdicts: list[Entry | Original | ClaimedByAnother | Conflict] = []
        for each in appends:
            verdict = then.judged(each) or then._appended(each)
            if isinstance(verdict, Entry):
                assert then.swap(then.epoch, then.place, [verdict], then.mode) is Swap.HELD
            verdicts.append(verdict)
        return verdicts

    def _appended(self, asked: Append) -> Entry | Conflict:
        head, expected, (seq, chain) = self.length(asked.stream), asked.expected, self.place
        if (expected >= 0 and expected != head) or (expected == AT_LEAST_ONE and not head):
            return Conflict(head)
        return Entry(asked, head + 1, seq + len(asked.events), next_chain(chain, head + 1, asked.digests))

    def holds(self, entry: Entry) -> bool:
        """At its place, all of it."""
        there = self.rows[entry.first_seq - 1 : entry.last_seq]
        return [row[1:3] for row in there] == [
            (entry.first_version + n, event.id) for n, event in enumerate(entry.append.events)
        ]
