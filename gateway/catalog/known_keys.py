"""Living keys in memory, and which of them makes room for another.

Owns: that the keys of one tenant, however many it uses, do not displace another tenant's. Must not know: how
a key is looked up, or when one has ended.
"""

from __future__ import annotations

from uuid import UUID

from gateway.catalog.model import Principal


class Known:
    """A living key; `until` is when it expires, `noted_at` when its use was written."""

    __slots__ = ("noted_at", "principal", "until", "used")

    def __init__(self, principal: Principal, until: float) -> None:
        self.principal = principal
        self.until = until
        self.used = True
        self.noted_at = float("-inf")


class KnownKeys:
    """`of`: by their tokens. It is a plain dictionary, since every request looks into it."""

    def __init__(self) -> None:
        self.of: dict[str, Known] = {}
        self._tokens: dict[UUID, dict[str, None]] = {}
        """Of each tenant, the one known longest first."""

    def put(self, token: str, key: Known, count_max: int) -> None:
        """Of `count_max` at most: then the one known longest of the tenant that has more than its share is
        forgotten."""
        tenant = key.principal.tenant.id
        if token not in self.of and len(self.of) >= count_max:
            self._make_room(tenant)
        self.of[token] = key
        self._tokens.setdefault(tenant, {})[token] = None

    def forget(self, token: str) -> None:
        tenant = self.of.pop(token).principal.tenant.id
        tokens = self._tokens[tenant]
        del tokens[token]
        if not tokens:
            del self._tokens[tenant]

    def clear(self) -> None:
        self.of.clear()
        self._tokens.clear()

    def _make_room(self, tenant: UUID) -> None:
        tokens = self._tokens.get(tenant, {})
        if len(tokens) * len(self._tokens) < len(self.of):  # it has less than its share, so another has more
            tokens = max(self._tokens.values(), key=len)
        self.forget(next(iter(tokens)))
