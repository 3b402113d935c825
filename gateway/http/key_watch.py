"""Requests that last: a stream, a wait, a bulk. The key that let one in may be revoked, or expire, since.

Owns: who of them is under way, by key. One look serves them all, after each look at the catalog: a stream
that has nothing to send need not wake for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.catalog.catalog import Catalog
from gateway.http.authentication import bearer_of
from gateway.http.request import Head
from gateway.postgres.errors import PostgresTrouble

_HANDLE = "\x00"
"""Before the handle of a key that let a request in by a ticket: no key begins so."""


class Watched:
    """The key of one such request."""

    __slots__ = ("_wake", "ended")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ended = False
        self._wake = wake

    def end(self) -> None:
        self.ended = True
        self._wake()


def _not_woken() -> None:
    """For those who look by themselves, from one part of an answer to the next."""


class KeyWatch:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._under_way: dict[str, set[Watched]] = {}

    @contextmanager
    def watching(self, head: Head, wake: Callable[[], None] = _not_woken) -> Iterator[Watched]:
        """The key of a request that was let in. Once it is known to have ended, `ended` is true, and `wake`
        was called."""
        token = bearer_of(head) or ""
        if head.ticketed is not None:
            token = _HANDLE + head.ticketed.handle
        watched = Watched(wake)
        self._under_way.setdefault(token, set()).add(watched)
        try:
            yield watched
        finally:
            others = self._under_way[token]
            others.discard(watched)
            if not others:
                del self._under_way[token]

    async def look(self) -> None:
        """Tells whose key has ended. While Postgres does not answer it is not known, and nothing new is read
        either."""
        tokens = list(self._under_way)
        handles = [token.removeprefix(_HANDLE) for token in tokens if token.startswith(_HANDLE)]
        try:
            living = await self._catalog.living(handles) if handles else frozenset[str]()
        except PostgresTrouble:
            return
        for token in tokens:
            try:
                if token.startswith(_HANDLE):
                    ended = token.removeprefix(_HANDLE) not in living
                else:
                    known = self._catalog.principal(token) or await self._catalog.authenticate(token)
                    ended = known is None
            except PostgresTrouble:
                return
            if ended:
                for watched in tuple(self._under_way.get(token, ())):
                    watched.end()
