"""The hash chain over outbox rows, recomputed in their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.appends import next_chain


class ChainWalk:
    """Add rows in the order of their seq, from just after the place where `chain` stood; appends are told
    apart by their append_id."""

    __slots__ = ("_append_id", "_before", "_digests", "_versions")

    def __init__(self, chain: str) -> None:
        self._before = chain
        self._append_id: bytes | None = None
        self._versions: list[int] = []
        self._digests: list[bytes] = []

    def add(self, append_id: bytes, version: int, digest: bytes) -> bool:
        """Whether an append begins with this row."""
        begins = append_id != self._append_id
        if begins:
            self._before = self.chain
            self._append_id, self._versions, self._digests = append_id, [], []
        self._versions.append(version)
        self._digests.append(digest)
        return begins

    @property
    def chain(self) -> str:
        """The chain here, if the last row added is the last of its append."""
        if self._append_id is None:
            return self._before
        return next_chain(self._before, self._versions[0], b"".join(self._digests), tuple(self._versions))


def roll(chain: str, rows: Iterable[Any], to_seq: int) -> str:
    """The chain after the outbox rows (seq, version, append_id, digest) up to `to_seq`."""
    walk = ChainWalk(chain)
    for row in rows:
        if row["seq"] > to_seq:
            break
        walk.add(row["append_id"], row["version"], row["digest"])
    return walk.chain
