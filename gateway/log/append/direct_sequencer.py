"""Gives appends their places as redis/sequence.lua does, on what Postgres holds. Pure.

Owns: the verdict on each append of a batch in direct mode. Nothing here is decided before the batch is
committed: all of it rests on one look at Postgres, and the compare-and-swap tells whether that still holds.
"""

from __future__ import annotations

import math

from gateway.appends import ANOTHER_HISTORY, Append, fits
from gateway.events import Stream
from gateway.items import Condition, matches
from gateway.log.append.identities import Claim, ClaimedByAnother, Claims, Original
from gateway.log.entries import SequencedAppend, sequenced_append
from gateway.names.unique import Holders
from gateway.outcomes import ConditionFailed, Conflict, NotUnique


class DirectSequencer:
    """Judge appends in order: each on the state that the ones before it leave.

    `claims`, `heads` and `holders` are of one snapshot in which partition `p` stood at (seq, chain): every
    identity and event id of the appends that Postgres knows, the length of each of their streams, and who
    holds the values that they claim.
    """

    def __init__(
        self, p: int, claims: Claims, heads: dict[Stream, int], chain: str, holders: Holders | None = None
    ) -> None:
        self._p = p
        self._claims = claims
        self._heads = heads
        self._holders = holders or Holders({})
        self._skipped: set[Stream] = set()
        self._placed: list[SequencedAppend] = []
        self.seq = claims.seq
        self.chain = chain

    def judge(
        self, append: Append, expected: float | None = None, matched: int = 0
    ) -> SequencedAppend | Original | ClaimedByAnother | Conflict | ConditionFailed | NotUnique:
        """Its identities first, then the length that it asks for: its own, or `expected`, where half a length
        more says that every earlier append of the batch to this stream must have its place; then its
        condition, which fails where `matched` is the seq of an event in Postgres."""
        verdict = (
            self._claims.judge(append)
            or self._conflict(append, append.expected if expected is None else expected, matched)
            or (self._holders.judge(append) if append.claims else None)
        )
        if verdict is not None:
            self._skipped.update(append.streams)
            return verdict
        if append.claims:
            self._holders.take(append)
        return self._place(append)

    def _conflict(self, append: Append, expected: float, matched: int) -> Conflict | ConditionFailed | None:
        if append.spread is not None or append.condition is not None:
            return (
                self._first_conflict(append, never=False)
                or self._failed(append.condition, matched)
                or self._first_conflict(append, never=True)
            )
        head, asked = self._heads[append.stream], math.floor(expected)
        broken = asked != expected and append.stream in self._skipped
        return Conflict(head) if broken or not fits(asked, head) else None

    def _first_conflict(self, append: Append, *, never: bool) -> Conflict | None:
        """`never`: of the streams that are expected to be as long as none is, which are told of last."""
        for which, (stream, length) in enumerate(zip(append.streams, append.lengths, strict=True)):
            if (length == ANOTHER_HISTORY) == never and not fits(length, self._heads[stream]):
                return Conflict(self._heads[stream], which)
        return None

    def _failed(self, condition: Condition | None, matched: int) -> ConditionFailed | None:
        if condition is None:
            return None
        for placed in () if matched else self._placed:
            for n, (stream, _) in enumerate(placed.places()):
                tags = placed.tags[n] if placed.tags else ()
                if matches(condition.items, stream.aggregate_type, stream.key, placed.events[n].type, tags):
                    matched = matched or placed.first_seq + n
        return ConditionFailed(matched) if matched else None

    def _place(self, append: Append) -> SequencedAppend:
        count = len(append.events)
        self.seq += count
        firsts = [self._heads[stream] + 1 for stream in append.streams]
        placed = sequenced_append(append, firsts, self.seq)
        self.chain = placed.chain_after(self.chain)
        self._heads.update(placed.places())
        self._placed.append(placed)
        tenant, claim = append.stream.tenant, Claim(self._p, placed.first_seq, count, placed.request_digest)
        for identity in append.chosen:
            self._claims.identities[tenant, identity] = claim
        for n, event in enumerate(append.events):
            self._claims.events[tenant, event.id] = (self._p, placed.first_seq + n)
        return placed
