"""Histories of a partition, each an integer: 0 is the empty one, every other one is a shorter one and an
append at the version that a script gave it.

Redis and Postgres hold histories in the model where the real ones hold rows and a hash chain. `mark` is the
chain: what the protocol may compare. Everything else is what the checks know and the protocol does not.
"""

from __future__ import annotations

from tests.model.scenario import OWN, Scenario

Version = int | tuple[int, ...]
"""The first version of an append; of one to several streams, in each of them."""
Row = tuple[int, Version]
"""An append and its version."""


class Histories:
    """Made as they are met; every list is indexed by the history."""

    def __init__(self, scenario: Scenario) -> None:
        self._appends = scenario.appends
        self._chain_of_requests = scenario.rules.chain == "requests"
        self._known: dict[tuple[int, int, Version], int] = {}
        self._marks: dict[tuple[int, int], int] = {}
        self._at: dict[tuple[int, int], int | None] = {}
        self.rows: list[tuple[Row, ...]] = [()]
        self.seq: list[int] = [0]
        self.line: list[tuple[int, ...]] = [(0,)]  # every history that it continues, and itself
        self.held: list[frozenset[int]] = [frozenset((0,))]  # the same, as a set
        self.heads: list[tuple[int, ...]] = [(0,) * scenario.streams]
        self.mark: list[int] = [0]

    def after(self, history: int, append: int, version: Version) -> int:
        """The history that continues `history` with an append at a version."""
        key = (history, append, version)
        found = self._known.get(key)
        return self._make(key) if found is None else found

    def _make(self, key: tuple[int, int, Version]) -> int:
        history, append, version = key
        made = self._known[key] = len(self.rows)
        of = self._appends[append]
        self.rows.append((*self.rows[history], (append, version)))
        self.seq.append(self.seq[history] + of.size)
        self.line.append((*self.line[history], made))
        self.held.append(self.held[history] | {made})
        heads = list(self.heads[history])
        for (stream, _, events), first in zip(of.parts, firsts(version), strict=True):
            heads[stream] = max(heads[stream], first + events - 1)
        self.heads.append(tuple(heads))
        self.mark.append(made if not self._chain_of_requests else self._mark(history, of.body))
        return made

    def _mark(self, history: int, body: int) -> int:
        return self._marks.setdefault((self.mark[history], body), len(self._marks) + 1)

    def at(self, history: int, seq: int) -> int | None:
        """What it continues that ends at `seq`; None where no append ends there."""
        key = (history, seq)
        if key not in self._at:
            ends = {self.seq[each]: each for each in self.line[history]}
            self._at[key] = ends.get(seq)
        return self._at[key]

    def run(self, before: int, after: int) -> tuple[Row, ...]:
        """The rows that lead from one history to another that continues it."""
        return self.rows[after][len(self.rows[before]) :]

    def last_seq(self, history: int, stream: int) -> int:
        """Of the stream's last event; 0: it has none."""
        last = seq = 0
        for append, _ in self.rows[history]:
            seq += self._appends[append].size
            if stream in self._appends[append].streams:
                last = seq
        return last

    def same(self, one: int, other: int) -> bool:
        """Whether seq and chain are equal, which is all that a compare-and-swap sees."""
        return self.mark[one] == self.mark[other] and self.seq[one] == self.seq[other]

    def match(self, history: int, tag: int, after: int = 0) -> int:
        """The last seq of the first append behind `after` whose events have the tag; 0: none."""
        seq = 0
        for append, _ in self.rows[history]:
            seq += self._appends[append].size
            of = self._appends[append]
            if seq > after and (tag in of.tags or tag - OWN in of.streams):
                return seq
        return 0


def firsts(version: Version) -> tuple[int, ...]:
    return version if isinstance(version, tuple) else (version,)
