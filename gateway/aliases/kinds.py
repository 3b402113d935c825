"""Which names a spec declares for new aggregates, and how those of each kind are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.aliases.store import Snapshot
from gateway.names import hash_ids
from gateway.names.aliases import Kind
from gateway.names.changes import Given
from gateway.names.public_ids import numbered
from spec.model import HashIds, PublicIds, Spec

Aggregate = tuple[str, str]
"""Type and key."""
_AT_ONCE: Final = 2000
"""Of a migration: a kilobyte each while its name is looked for."""


class Namer(Protocol):
    """One part of a spec that declares names. `declared` is its text: while it is the same, what was named by
    it needs no second look."""

    @property
    def kind(self) -> Kind: ...

    @property
    def prefix(self) -> str: ...

    @property
    def types(self) -> tuple[str, ...]: ...

    @property
    def declared(self) -> str: ...

    def wants(self, kinds: str | None) -> bool:
        """Whether an aggregate that has names of these kinds, or none, is to get one of this."""
        ...

    async def name(self, at: Snapshot, aggregates: Sequence[Aggregate]) -> Sequence[Given]:
        """A name for each of the aggregates, which have none of this kind yet, in order; fewer where there
        are no more."""
        ...


@dataclass(frozen=True, slots=True)
class PublicNamer:
    ids: PublicIds

    @property
    def kind(self) -> Kind:
        return Kind.PUBLIC

    @property
    def prefix(self) -> str:
        return self.ids.key

    @property
    def types(self) -> tuple[str, ...]:
        return self.ids.types

    @property
    def declared(self) -> str:
        return f"public {self.ids.key} {','.join(self.ids.types)}"

    def wants(self, kinds: str | None) -> bool:
        return kinds is None or Kind.PUBLIC not in kinds

    async def name(self, at: Snapshot, aggregates: Sequence[Aggregate]) -> Sequence[Given]:
        return numbered(self.ids.key, await at.greatest(self.ids.key), aggregates)


@dataclass(frozen=True, slots=True)
class HashNamer:
    ids: HashIds

    @property
    def kind(self) -> Kind:
        return Kind.HASH

    @property
    def prefix(self) -> str:
        return self.ids.prefix

    @property
    def types(self) -> tuple[str, ...]:
        return self.ids.types

    @property
    def declared(self) -> str:
        return f"hash/{hash_ids.ALGORITHM} {self.ids.prefix} {','.join(self.ids.types)}"

    def wants(self, kinds: str | None) -> bool:
        """Without those that people call by a number already: `sluice names migrate` gives these their hash
        ids, all or none, when somebody decides so. A new aggregate gets both names at once."""
        return kinds is None

    async def name(self, at: Snapshot, aggregates: Sequence[Aggregate]) -> Sequence[Given]:
        """The shortest body that is free, for each: those whose body is taken try one more character, all of
        them together."""
        found: dict[Aggregate, Given] = {}
        taken: set[str] = set()
        for start in range(0, len(aggregates), _AT_ONCE):
            await self._name(at, aggregates[start : start + _AT_ONCE], found, taken)
        return [found[each] for each in aggregates if each in found]

    async def _name(
        self, at: Snapshot, aggregates: Sequence[Aggregate], found: dict[Aggregate, Given], taken: set[str]
    ) -> None:
        prefix = self.ids.prefix
        trying = [(each, iter(hash_ids.bodies(at.tenant, *each))) for each in aggregates]
        while trying:
            wanted = [(each, bodies, body) for each, bodies in trying if (body := next(bodies, None))]
            taken |= await at.taken(prefix, [body for _, _, body in wanted])
            trying = []
            for each, bodies, body in wanted:
                if body in taken:
                    trying.append((each, bodies))
                else:
                    taken.add(body)
                    found[each] = Given(Kind.HASH, prefix, body, "", *each)


def namers_of(spec: Spec) -> tuple[Namer, ...]:
    """In the order in which an aggregate's names are given."""
    namers: list[Namer] = []
    if spec.public_ids is not None:
        namers.append(PublicNamer(spec.public_ids))
    if spec.hash_ids is not None:
        namers.append(HashNamer(spec.hash_ids))
    return tuple(namers)


def kinds_of_prefixes(spec: Spec) -> dict[str, Kind]:
    """What each prefix says, by its folded text: a tenant has one registry of them."""
    return {namer.prefix.lower(): namer.kind for namer in namers_of(spec)}


def names_of_type(spec: Spec, aggregate_type: str) -> bool:
    """Whether new aggregates of the type get names."""
    return any(aggregate_type in namer.types for namer in namers_of(spec))
