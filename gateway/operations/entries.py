"""Streams and journals in Redis, read page by page as they stand."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.log.entries import SequencedAppend, placed_from_journal
from gateway.log.redis.keys import PartitionKeys
from gateway.log.redis.scripts import Scripts

# An append is at most a request's body, 1 MiB by default: a page stays within a few dozen.
PAGE_ENTRIES: Final = 50
# And what one call of a gateway sequenced is at most SLUICE_SEQUENCE_BYTES_MAX, also 1 MiB by default.
PAGE_CALLS: Final = 16


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash; epoch -1: this Redis knows nothing of the partition. `same_server`: the epoch
    began on it and it was not away since, so its streams are whole (docs/decisions/0023)."""

    epoch: int
    q: int
    h: str
    c: int
    chain_at_c: str
    same_server: bool


@dataclass(frozen=True, slots=True)
class Journaled:
    """An append in the journal, and the chain that the script wrote after it."""

    placed: SequencedAppend
    chain: str

    @property
    def follows(self) -> int:
        """The seq that it was sequenced after."""
        return self.placed.first_seq - 1

    def continues(self, seq: int, chain: str) -> bool:
        """Whether it was sequenced after this very history, and is what its chain says."""
        return self.follows == seq and self.placed.chain_after(chain) == self.chain


async def read(
    scripts: Scripts,
    keys: PartitionKeys,
    key: str,
    first: str = "-",
    last: str = "+",
    *,
    most: int,
    newest_first: bool = False,
) -> tuple[Meta, Sequence[Any]]:
    """The meta hash and the entries of one moment. Raises RedisTrouble."""
    args = (first, last, most, int(newest_first))
    epoch, q, h, c, chain_at_c, same, entries = await scripts.run("entries", (keys.meta, key), args)
    meta = Meta(int(epoch or -1), int(q or 0), h.decode(), int(c or 0), chain_at_c.decode(), same == 1)
    return meta, entries


async def meta(scripts: Scripts, keys: PartitionKeys) -> Meta:
    """The partition's meta hash, whatever its epoch. Raises RedisTrouble."""
    return (await read(scripts, keys, keys.journal, most=1))[0]


async def journaled(
    scripts: Scripts, keys: PartitionKeys, after: int, to: int, *, most: int | None = None
) -> AsyncIterator[Journaled]:
    """The journal's appends whose last seq is beyond `after` and at most `to`, in order, at most so many.
    Raises RedisTrouble."""
    left = most
    while after < to and left != 0:
        _, entries = await read(scripts, keys, keys.journal, str(after + 1), most=PAGE_CALLS)
        before = after
        for placed, chain in itertools.chain.from_iterable(map(placed_from_journal, entries)):
            if placed.last_seq > to or left == 0:
                return
            if placed.last_seq > before:
                yield Journaled(placed, chain)
                after = placed.last_seq
                left = None if left is None else left - 1
        if len(entries) < PAGE_CALLS:
            return
