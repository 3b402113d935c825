"""Which names a spec declares for new aggregates, and how those of each kind are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.names.aliases import Kind
from gateway.names.changes import Given
from gateway.names.public_ids import numbered
from gateway.registry.store import Snapshot
from spec.model import PublicIds, Spec


class Namer(Protocol):
    """One part of a spec that declares names. `declared` is its text: while it is the same, what was named by
    it needs no second look."""

    @property
    def kind(self) -> Kind: ...

    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def declared(self) -> str: ...

    async def name(self, at: Snapshot, aggregates: Sequence[tuple[str, str]]) -> Sequence[Given]:
        """A name for each of the aggregates (type, key), which have none of this kind yet, in order; fewer
        where there are no more."""
        ...


@dataclass(frozen=True, slots=True)
class PublicNamer:
    ids: PublicIds

    @property
    def kind(self) -> Kind:
        return Kind.PUBLIC

    @property
    def types(self) -> tuple[str, ...]:
        return self.ids.types

    @property
    def declared(self) -> str:
        return f"public {self.ids.key} {','.join(self.ids.types)}"

    async def name(self, at: Snapshot, aggregates: Sequence[tuple[str, str]]) -> Sequence[Given]:
        return numbered(self.ids.key, await at.greatest(self.ids.key), aggregates)


def namers_of(spec: Spec) -> tuple[Namer, ...]:
    """In the order in which an aggregate's names are given."""
    return () if spec.public_ids is None else (PublicNamer(spec.public_ids),)


def names_of_type(spec: Spec, aggregate_type: str) -> bool:
    """Whether new aggregates of the type get names."""
    return any(aggregate_type in namer.types for namer in namers_of(spec))
