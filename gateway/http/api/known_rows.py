"""The keys of the rows that live clients have, so that each is told of deletions of its own rows only.

Owns: how much memory they take. Tenants share it, and the clients of a tenant share what that has; a client
whose keys take more is no longer sure which rows it has. Must not know: rows, how a client is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all clients."""
CLIENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Some 20,000 keys."""
_KEY_BYTES: Final = 160
"""Of a key beside its text: its object, and its place in a set, which is up to six times as large as what is
in it."""


class KnownRows:
    """Those of one client. It may have others unless `sure`."""

    __slots__ = ("_before", "_bytes", "_bytes_max", "_keys", "sure")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._keys: set[str] = set()
        self._before: set[str] = set()
        """It had these, and was not told of them again."""
        self.sure = True

    def has(self, key: str) -> None:
        self.has_no_more(key)
        if self.sure:
            self._keys.add(key)
            self._bytes += _bytes_of(key)
            self._keep()

    def has_no_more(self, key: str) -> None:
        for keys in (self._keys, self._before):
            if key in keys:
                keys.remove(key)
                self._bytes -= _bytes_of(key)

    def may_have(self, key: str) -> bool:
        return not self.sure or key in self._keys or key in self._before

    def lose(self) -> None:
        """It is not known any more which rows it has."""
        self._bytes -= sum(map(_bytes_of, self._keys))
        self._keys, self.sure = set(), False

    def begin(self, *, reset: bool) -> None:
        """It is told all rows once more; `reset`: it has none until then."""
        if reset:
            self._keys, self._before, self._bytes = set(), set(), 0
        self._before |= self._keys
        self._keys, self.sure = set(), True

    def end(self) -> list[str]:
        """It was told all: the keys of those that it had and was not told of."""
        gone, self._before = sorted(self._before), set()
        self._bytes -= sum(map(_bytes_of, gone))
        return gone

    def limit(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._keep()

    def _keep(self) -> None:
        if self._bytes > self._bytes_max:
            self.lose()


def _bytes_of(key: str) -> int:
    return _KEY_BYTES + len(key)


class RowMemory:
    """One a gateway."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._of: dict[bytes, set[KnownRows]] = {}

    @contextmanager
    def client(self, tenant: bytes) -> Iterator[KnownRows]:
        """One more client of the tenant, as long as it follows."""
        known = KnownRows(0)
        tenants = _rounded(len(self._of))
        of = self._of.setdefault(tenant, set())
        of.add(known)
        if _rounded(len(self._of)) != tenants:
            for each in self._of:
                self._share(each)
        elif _rounded(len(of)) != _rounded(len(of) - 1):
            self._share(tenant)
        else:
            known.limit(self._each_max(tenant))
        try:
            yield known
        finally:
            of.discard(known)
            if not of:
                del self._of[tenant]

    def _share(self, tenant: bytes) -> None:
        most = self._each_max(tenant)
        for each in self._of[tenant]:
            each.limit(most)

    def _each_max(self, tenant: bytes) -> int:
        share = self._bytes_max // _rounded(len(self._of)) // _rounded(len(self._of[tenant]))
        return min(share, CLIENT_BYTES_MAX)


def _rounded(count: int) -> int:
    """Up to a power of two: shares seldom change, and all who have one are asked for it then."""
    return 1 << max(count - 1, 0).bit_length()
