"""Which names a spec declares for new aggregates, and how those of each kind are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from gateway.aliases.store import Snapshot
from gateway.names import hash_ids
from gateway.names.aliases import Kind
from gateway.names.changes import Given
from gateway.names.public_ids import numbered
from spec.handlers import Path
from spec.identifiers import GLOBAL, Identifier, identify
from spec.model import HashIds, PublicIds, Spec
from spec.names import HashedOf, Projects

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
        roots = [each for each in aggregates if is_root(each[1])]
        return numbered(self.ids.key, await at.greatest(self.ids.key), roots)


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
        more = "" if self.ids.of is None else f" of {self.ids.of}"
        length = "" if self.ids.length == hash_ids.BODY_CHARS_MIN else f" {self.ids.length}"
        return f"hash/{hash_ids.ALGORITHM} {self.ids.prefix} {','.join(self.ids.types)}{length}{more}"

    def wants(self, kinds: str | None) -> bool:
        """Without those that people call by a number already: `sluice names migrate` gives these their hash
        ids, all or none, when an operator decides so. A new aggregate gets both names at once."""
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
        trying = [(each, iter(bodies)) for each, bodies in (await self._bodies(at, aggregates)).items()]
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

    async def _bodies(self, at: Snapshot, aggregates: Sequence[Aggregate]) -> dict[Aggregate, Sequence[str]]:
        """Those that each may have, by its key or by what the spec says; of an event that lacks that, by the
        key."""
        found: dict[Aggregate, Sequence[str]] = {}
        data = {} if self.ids.of is None else await at.first_data(aggregates)
        for each in aggregates:
            bodies = None
            if self.ids.of is not None:
                bodies = bodies_of(self.ids.of, data.get(each), UUID(bytes=at.tenant))
            every = bodies or hash_ids.bodies(at.tenant, *each)
            found[each] = [body for body in every if len(body) >= self.ids.length] or every[-1:]
        return found


def bodies_of(of: HashedOf, data: object, workspace: UUID) -> tuple[str, ...] | None:
    """By title, description and creation time, in the workspace that the tenant is."""
    title, description, created = (value_at(path, data) for path in (of.title, of.description, of.created))
    if not isinstance(title, str) or not isinstance(created, str):
        return None
    created_ns = hash_ids.nanoseconds(created)
    if created_ns is None:
        return None
    text = description if isinstance(description, str) else ""
    return hash_ids.bodies_of_instant(title, text, created_ns, str(workspace))


@dataclass(frozen=True, slots=True)
class ProjectNamer:
    """Numbers of projects: each has a counter of its own. `keys_of` finds the keys of the projects that these
    aggregates are of."""

    projects: Projects
    keys_of: KeysOf

    @property
    def kind(self) -> Kind:
        return Kind.PUBLIC

    @property
    def prefix(self) -> str:
        return ""

    @property
    def types(self) -> tuple[str, ...]:
        return self.projects.types

    @property
    def declared(self) -> str:
        return f"projects {self.projects}"

    def wants(self, kinds: str | None) -> bool:
        return kinds is None or Kind.PUBLIC not in kinds

    async def name(self, at: Snapshot, aggregates: Sequence[Aggregate]) -> Sequence[Given]:
        """Of those whose project is known."""
        keys = await self.keys_of(at, self.projects, [each for each in aggregates if is_root(each[1])])
        numbers: dict[str, list[Aggregate]] = {}
        for each, key in keys.items():
            numbers.setdefault(key, []).append(each)
        given: list[Given] = []
        for key, several in numbers.items():
            given += numbered(key, await at.greatest(key), several)
        return given


KeysOf = Callable[[Snapshot, Projects, Sequence[Aggregate]], Awaitable[dict[Aggregate, str]]]


def is_root(key: str) -> bool:
    """Whether a key is that of an aggregate of its own: no singleton, and no tagged UUID."""
    return ":" not in key and identify(key, ()).__class__ is Identifier and key != GLOBAL


async def _no_projects(
    _at: Snapshot, _projects: Projects, _aggregates: Sequence[Aggregate]
) -> dict[Aggregate, str]:
    return {}


def namers_of(spec: Spec, keys_of: KeysOf = _no_projects) -> tuple[Namer, ...]:
    """In the order in which an aggregate's names are given. Without `keys_of`, what is declared."""
    namers: list[Namer] = []
    public = spec.public_ids
    if public is not None and public.has_key:
        namers.append(PublicNamer(public))
    if public is not None and public.projects is not None:
        namers.append(ProjectNamer(public.projects, keys_of))
    if spec.hash_ids is not None:
        namers.append(HashNamer(spec.hash_ids))
    return tuple(namers)


def kinds_of_prefixes(spec: Spec) -> dict[str, frozenset[Kind]]:
    """What each prefix may say, by its folded text: numbers and hashes may share one."""
    found: dict[str, frozenset[Kind]] = {}
    for namer in namers_of(spec):
        if namer.prefix:
            prefix = namer.prefix.lower()
            found[prefix] = found.get(prefix, frozenset()) | {namer.kind}
    return found


def value_at(path: Path, data: object) -> object:
    """What a path without `[*]` leads to in these data; None where that is absent."""
    for step in path.fields:
        if isinstance(step, str) and isinstance(data, dict):
            data = data.get(step)
        elif isinstance(step, int) and isinstance(data, list) and -len(data) <= step < len(data):
            data = data[step]
        else:
            return None
    return data


def names_of_type(spec: Spec, aggregate_type: str) -> bool:
    """Whether new aggregates of the type get names."""
    return any(aggregate_type in namer.types for namer in namers_of(spec))
