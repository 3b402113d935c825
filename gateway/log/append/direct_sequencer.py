"""Gives appends their places as redis/sequence.lua does, on what Postgres holds. Pure.

Owns: the verdict on each append of a batch in direct mode. Nothing here is decided before the batch is
committed: all of it rests on one look at Postgres, and the compare-and-swap tells whether that still holds.
"""

from __future__ import annotations

import math

from gateway.events import ANY_LENGTH, AT_LEAST_ONE, Append, Conflict, Stream
from gateway.log.append.identities import Claim, ClaimedByAnother, Claims, Original
from gateway.log.entries import SequencedAppend


class DirectSequencer:
    """Judge appends in order: each on the state that the ones before it leave.

    `claims` and `heads` are of one snapshot in which partition `p` stood at (seq, chain): every identity and
    event id of the appends that Postgres knows, and the length of each of their streams.
    """

    def __init__(self, p: int, claims: Claims, heads: dict[Stream, int], chain: str) -> None:
        self._p = p
        self._claims = claims
        self._heads = heads
        self._skipped: set[Stream] = set()
        self.seq = claims.seq
        self.chain = chain

    def judge(
        self, append: Append, expected: float | None = None
    ) -> SequencedAppend | Original | ClaimedByAnother | Conflict:
        """Its identities first, then the length that it asks for: its own, or `expected`, where half a length
        more says that every earlier append of the batch to this stream must have its place."""
        verdict = self._claims.judge(append) or self._conflict(append, expected)
        if verdict is not None:
            self._skipped.add(append.stream)
            return verdict
        return self._place(append, self._heads[append.stream])

    def _conflict(self, append: Append, expected: float | None) -> Conflict | None:
        head = self._heads[append.stream]
        asked = append.expected if expected is None else math.floor(expected)
        if asked not in (ANY_LENGTH, AT_LEAST_ONE, head) or (asked == AT_LEAST_ONE and head == 0):
            return Conflict(head)
        return Conflict(head) if asked != (expected or asked) and append.stream in self._skipped else None

    def _place(self, append: Append, head: int) -> SequencedAppend:
        count = len(append.events)
        self.seq += count
        placed = SequencedAppend(
            append.stream, append.append_id, append.events, append.digests, append.chosen,
            append.request_digest, head + 1, self.seq, append.tags,
        )  # fmt: skip
        self.chain = placed.chain_after(self.chain)
        self._heads[append.stream] = head + count
        tenant, claim = append.stream.tenant, Claim(self._p, placed.first_seq, count, placed.request_digest)
        for identity in append.chosen:
            self._claims.identities[tenant, identity] = claim
        for n, event in enumerate(append.events):
            self._claims.events[tenant, event.id] = (self._p, placed.first_seq + n)
        return placed
