"""The values of the catalog. Owns no state and no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from gateway.catalog.narrowness import Only
from gateway.postgres.errors import PostgresTrouble

if TYPE_CHECKING:  # commands about keys and tenants start without the schema compiler
    from spec.model import Spec

STALE_S = 5.0
"""How long a gateway that lost Postgres continues with what it knows: the longest that a revoked key
works."""

REPORT_S = 2.0
"""The longest that a gateway which follows the catalog doesn't say so in it."""


class Scope(IntEnum):
    """What a key may do; each includes the ones before, so `principal.scope >= Scope.WRITE` is the check. The
    last one reaches beyond its tenant: to provision others."""

    READ = 1
    WRITE = 2
    ADMIN = 3
    OPERATOR = 4

    @property
    def text(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Scope | None:
        """`read`, `write`, `admin` or `operator`; None for anything else."""
        return _SCOPES.get(text)


_SCOPES = {scope.text: scope for scope in Scope}


_TENANTS_MAX = 4_096


@lru_cache(_TENANTS_MAX)
def tenant_of(stream_tenant: bytes) -> UUID:
    """A tenant's id, of its bytes as streams have them: to make one costs each append a microsecond."""
    return UUID(bytes=stream_tenant)


@dataclass(frozen=True, slots=True)
class Tenant:
    """`handle` is its public name within keys: 8 base62 characters. `stream_tenant` is the id as streams have
    it: each append asks for it."""

    id: UUID
    name: str
    handle: str
    stream_tenant: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream_tenant", self.id.bytes)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: the tenant, what the key may do, the handle that names the key in logs, and what it is
    narrowed to, if it is."""

    tenant: Tenant
    scope: Scope
    handle: str
    only: Only | None = None


_NONE: Final[Mapping[tuple[str, str], int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Deployed:
    """The spec a tenant's requests are checked by. `document` is as it was sent. `closed` are its sources of
    webhooks that can't be read here, as where a secret is not set: `spec` is without them. `salt` is the
    tenant's own: what is hashed for it tells nothing elsewhere. While a deployment removes something, `spec`
    is without that too, so that it is not appended any more, and `whole` has it. `since` tells of event
    types, by aggregate type and name, the earliest revision that admits their events as this one does, where
    that is another one, and known here."""

    revision: int
    spec: Spec
    document: bytes
    closed: frozenset[str] = frozenset()
    salt: bytes = b""
    whole: Spec | None = None
    since: Mapping[tuple[str, str], int] = field(default_factory=lambda: _NONE, repr=False, compare=False)

    @property
    def reading(self) -> Spec:
        """By which stored events are read: what is being removed may stay, since the deployment may be
        refused yet."""
        return self.spec if self.whole is None else self.whole

    @property
    def removing(self) -> bool:
        """Whether a deployment removes something: what is refused now may be taken in a moment, or never."""
        return self.whole is not None

    @property
    def etag(self) -> str:
        """As `ETag` and `If-Match` of /_/spec carry it, quotes included."""
        return f'"{self.revision}"'


class CatalogError(Exception):
    """Something about the catalog that a person has to put right; its text is the sentence to show."""


class CatalogUnavailable(PostgresTrouble):
    """Postgres did not answer a question of the catalog, which comes before an append: whether a key is valid
    is not known (503, never 401), and an event that waited for the answer never appears. No other
    PostgresTrouble says the latter."""
