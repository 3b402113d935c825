"""A Bloom filter of identities: that one is not in it is certain, that it is there has to be looked up.

Pure. Identities are SHA-256 digests, so their own bits spread as well as any hash of them.
"""

from __future__ import annotations

import struct
from typing import Final

_FIRST_BYTES: Final = 128 * 1024
_GROWTH: Final = 4
BITS_EACH: Final = 10
"""With four places an identity, a full layer takes one of 80 others for its own."""

_places: Final = struct.Struct("4I").unpack_from


class Budget:
    """The memory that all filters of a gateway may hold, in bytes."""

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left


class IdentityFilter:
    """It grows by layers, each larger than the one before, as long as `budget` has room."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._layers: list[tuple[bytearray, int]] = []  # and the mask of a place in it
        self._room = 0  # identities that its last layer may take yet

    def __contains__(self, identity: bytes) -> bool:
        """False: it was not added."""
        a, b, c, d = _places(identity)
        for bits, mask in self._layers:
            if (
                bits[(a & mask) >> 3] >> (a & 7) & 1
                and bits[(b & mask) >> 3] >> (b & 7) & 1
                and bits[(c & mask) >> 3] >> (c & 7) & 1
                and bits[(d & mask) >> 3] >> (d & 7) & 1
            ):
                return True
        return False

    def add(self, identities: bytes) -> bool:
        """All of these, 32 bytes each; False where there is no room for them, and some may be missing."""
        for at in range(0, len(identities), 32):
            if not self._room and not self._grow():
                return False
            self._room -= 1
            bits, mask = self._layers[-1]
            for place in _places(identities, at):
                bits[(place & mask) >> 3] |= 1 << (place & 7)
        return True

    def _grow(self) -> bool:
        size = _FIRST_BYTES * _GROWTH ** len(self._layers)
        if size > self._budget.bytes_left:
            return False
        self._budget.bytes_left -= size
        self._layers.append((bytearray(size), size * 8 - 1))
        self._room = size * 8 // BITS_EACH
        return True

    def empty(self) -> None:
        """Holds nothing any more, memory neither."""
        self._budget.bytes_left += sum(len(bits) for bits, _ in self._layers)
        self._layers.clear()
        self._room = 0
