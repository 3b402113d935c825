"""Requests that last: a stream, a wait, a bulk. The key that let one in may be revoked, or expire, since, or
its tenant be suspended.

Owns: who of them is under way, by key. One look serves them all, after each look at the catalog: a stream
that has nothing to send need not wake for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.catalog.catalog import Catalog
from gateway.errors import Refusal
from gateway.http.authentication import SUSPENDED, UNAUTHORIZED, bearer_of
from gateway.http.request import Head
from gateway.postgres.errors import PostgresTrouble

_HANDLE = "\x00"
"""Before the handle of a key that let a request in by a ticket: no key begins so."""


class Watched:
    """The key of one such request; once it opens nothing more, `ended` is the refusal that says why."""

    __slots__ = ("_wake", "ended")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ended: Refusal | None = None
        self._wake = wake

    def end(self, refusal: Refusal) -> None:
        self.ended = refusal
        self._wake()


def _not_woken() -> None:
    """For those who look by themselves, from one part of an answer to the next."""


class KeyWatch:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._under_way: dict[str, set[Watched]] = {}

    @contextmanager
    def watching(self, head: Head, wake: Callable[[], None] = _not_woken) -> Iterator[Watched]:
        """The key of a request that was let in. Once it is known to open nothing more, `ended` says
        why, and `wake` was called."""
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
        """Tells whose key has ended, or whose tenant is suspended. While Postgres does not answer it
        is not known, and nothing new is read either."""
        tokens = list(self._under_way)
        handles = [token.removeprefix(_HANDLE) for token in tokens if token.startswith(_HANDLE)]
        try:
            living = await self._catalog.living(handles) if handles else frozenset[str]()
        except PostgresTrouble:
            return
        for token in tokens:
            try:
                if token.startswith(_HANDLE):
                    refusal = None if token.removeprefix(_HANDLE) in living else UNAUTHORIZED
                else:
                    refusal = await self._refusal(token)
            except PostgresTrouble:
                return
            if refusal is not None:
                for watched in tuple(self._under_way.get(token, ())):
                    watched.end(refusal)

    async def _refusal(self, token: str) -> Refusal | None:
        """Why the key opens nothing now. Raises CatalogUnavailable."""
        known = self._catalog.principal(token) or await self._catalog.authenticate(token)
        if known is None:
            return UNAUTHORIZED
        return SUSPENDED if self._catalog.resting(known.tenant.id) else None
