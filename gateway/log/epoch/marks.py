"""The marks of events that this gateway knows to be committed: whether a position is of this history needs no
look at Postgres then. Pure.

Owns: which are kept. One that is not kept says nothing.
"""

from __future__ import annotations

from typing import Final

MARK_BYTES: Final = 4
DIGEST_BYTES: Final = 32
EVENTS_A_BLOCK: Final = 4096
BLOCKS_MAX: Final = 16
"""Of a partition."""
BYTES_MAX: Final = BLOCKS_MAX * EVENTS_A_BLOCK * MARK_BYTES

_NONE: Final = bytes(MARK_BYTES)
"""Stands where nothing is kept: an event whose mark that is, is not found."""


class Marks:
    """Of one partition. Blocks of events; the one that was begun first goes first."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}

    def keep(self, first_seq: int, digests: bytes) -> None:
        """The row digests of consecutive events, one after another."""
        marks = memoryview(digests).cast("I")[:: DIGEST_BYTES // MARK_BYTES].tobytes()
        seq = first_seq
        while marks:
            number, at = divmod(seq, EVENTS_A_BLOCK)
            part = marks[: (EVENTS_A_BLOCK - at) * MARK_BYTES]
            self._block(number)[at * MARK_BYTES : at * MARK_BYTES + len(part)] = part
            marks = marks[len(part) :]
            seq += len(part) // MARK_BYTES

    def keep_one(self, seq: int, mark: bytes) -> None:
        self.keep(seq, mark.ljust(DIGEST_BYTES, b"\0"))

    def has(self, seq: int, mark: bytes) -> bool:
        """Whether the event there is known to have this mark."""
        number, at = divmod(seq, EVENTS_A_BLOCK)
        block = self._blocks.get(number)
        kept = _NONE if block is None else block[at * MARK_BYTES : (at + 1) * MARK_BYTES]
        return kept == mark != _NONE

    def forget(self) -> None:
        """Events were given up, or are missed."""
        self._blocks.clear()

    def _block(self, number: int) -> bytearray:
        block = self._blocks.get(number)
        if block is None:
            while len(self._blocks) >= BLOCKS_MAX:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[number] = bytearray(EVENTS_A_BLOCK * MARK_BYTES)
        return block
