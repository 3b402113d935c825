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
    """The memory that all `filters` of a gateway may hold, in bytes.

    Half of it is shared out: so much each filter has, whatever the keys of others. The rest is for the first
    that needs more.
    """

    def __init__(self, bytes_max: int, filters: int) -> None:
        self.bytes_max = bytes_max
        self._own = bytes_max // 2 // filters
        self._shared_left = bytes_max - self._own * filters

    def take(self, held: int, size: int) -> bool:
        """Whether a filter that holds `held` may hold `size` more."""
        needed = self._beyond(held + size) - self._beyond(held)
        if needed > self._shared_left:
            return False
        self._shared_left -= needed
        return True

    def give_back(self, held: int) -> None:
        """Takes back the bytes of a filter that was emptied."""
        self._shared_left += self._beyond(held)

    def _beyond(self, held: int) -> int:
        return max(0, held - self._own)


class IdentityFilter:
    """It grows by layers, each larger than the one before, as long as `budget` has room."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._layers: list[tuple[bytearray, int]] = []  # and the mask of a place in it
        self._room = 0  # identities that its last layer may take yet

    @property
    def bytes_held(self) -> int:
        return sum(len(bits) for bits, _ in self._layers)

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
        if not self._budget.take(self.bytes_held, size):
            return False
        self._layers.append((bytearray(size), size * 8 - 1))
        self._room = size * 8 // BITS_EACH
        return True

    def empty(self) -> None:
        """Removes all identities, and releases the memory."""
        self._budget.give_back(self.bytes_held)
        self._layers.clear()
        self._room = 0
