"""What was read of aggregates, kept in memory: a prefix of committed history, which never changes but by a
rewind, so reading on from it is right at any gateway. Places count the rewinds (log.py)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

_SHARE: Final = 16
"""Into how many parts the memory is divided at least: one that is larger would drive out too many others."""


class Prefix(Protocol):
    @property
    def length(self) -> int:
        """Of the stream that it was read from."""

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""


_P = TypeVar("_P", bound=Prefix)


class PrefixCache(Generic[_P]):
    """One for each place, the least recently used given up first. `empty` is that of an empty stream."""

    def __init__(self, empty: _P, bytes_max: int) -> None:
        self._empty = empty
        self._found: OrderedDict[Hashable, _P] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def get(self, place: Hashable) -> _P:
        """What is kept, else what there is of an empty stream."""
        found = self._found.get(place)
        if found is None:
            return self._empty
        self._found.move_to_end(place)
        return found

    def put(self, place: Hashable, prefix: _P) -> None:
        """Keeps it, unless a longer one is kept already (this one is of the past)."""
        former = self._found.pop(place, None)
        if former is not None:
            self._bytes -= former.size_bytes
            if former.length > prefix.length:
                prefix = former
        size = prefix.size_bytes
        if size > self._bytes_max // _SHARE:
            return
        self._found[place] = prefix
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, given_up = self._found.popitem(last=False)
            self._bytes -= given_up.size_bytes
