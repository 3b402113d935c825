"""What is under way at a time, and how much of it one holder has. Pure.

A holder is a key's handle or an address; what is counted are requests, connections, bytes. A holder that has
nothing takes no memory, so there are never more of them than there is under way. To begin and to end costs
two look-ups in a dictionary: appends pay for it.
"""

from __future__ import annotations

from enum import Enum
from math import inf


class Bound(Enum):
    """Which one is reached."""

    HOLDERS = "of one holder"
    TOTAL = "of all holders together"


class UnderWay:
    """At most `each_max` of one holder and `total_max` of all; None: as many as there are."""

    __slots__ = ("_each_max", "_held", "_total_max", "total")

    def __init__(self, each_max: int | None, total_max: int | None) -> None:
        self._each_max: float = inf if each_max is None else each_max
        self._total_max: float = inf if total_max is None else total_max
        self._held: dict[str, int] = {}
        self.total = 0

    def __len__(self) -> int:
        """How many have something under way."""
        return len(self._held)

    def of(self, holder: str) -> int:
        """How much this one has."""
        return self._held.get(holder, 0)

    def begin(self, holder: str, amount: int = 1) -> Bound | None:
        """None: it is counted, until `end` is called with the same. Otherwise it is not, for this bound."""
        held = self._held.get(holder, 0) + amount
        if held > self._each_max:
            return Bound.HOLDERS
        total = self.total + amount
        if total > self._total_max:
            return Bound.TOTAL
        self._held[holder] = held
        self.total = total
        return None

    def end(self, holder: str, amount: int = 1) -> None:
        """What was begun, whole or in parts."""
        self.total -= amount
        left = self._held[holder] - amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]
