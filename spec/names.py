"""Names that people say: which types of aggregates get which, as a spec declares it.

Owns the grammar of prefixes, and the rule that a tenant has one registry of them: a prefix says which kind a
name is, so no two kinds may share one, in whatever case they are typed.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec.handlers import Path

PUBLIC_KEY_GRAMMAR = "[A-Z][A-Z0-9]{1,9}"
"""The key of public ids: `VNO` of `VNO-42`."""

HASH_CHARS_MIN, HASH_CHARS_MAX = 6, 16
"""Of the body of a hash id: 30 bits and 80."""

HASH_PREFIX_GRAMMAR = "[a-z][a-z0-9]{1,9}"
"""The prefix of hash ids: `bd` of `bd-k86gaq`. No dash, no point: a name is never taken apart by guessing."""


@dataclass(frozen=True, slots=True)
class Projects:
    """Aggregates of `type` are projects, each with the key that its creating event has at `key`: unique in
    the tenant, or, with `everywhere`, in the whole instance. Aggregate roots of the types of `members` are
    numbered by their project, whose key or alias is where the path leads: in the creating event, or with `^`
    in the state after it."""

    type: str
    key: Path
    members: tuple[tuple[str, Path], ...]
    everywhere: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        return tuple([name for name, _ in self.members])


@dataclass(frozen=True, slots=True)
class PublicIds:
    """Aggregates of `types` are numbered 1, 2, 3 … under `key`, all types together; none are where there is
    no key. `projects` number theirs."""

    key: str
    types: tuple[str, ...]
    projects: Projects | None = None

    @property
    def has_key(self) -> bool:
        """Whether it declares the form of one key."""
        return bool(self.key)


@dataclass(frozen=True, slots=True)
class HashedOf:
    """What a name is computed from in place of the aggregate's key, as its creating event tells it."""

    title: Path
    description: Path
    created: Path


@dataclass(frozen=True, slots=True)
class HashIds:
    """Aggregates of `types` get a short hash of what they are, under `prefix`: `length` characters or more,
    of their keys, or of what `of` says."""

    prefix: str
    types: tuple[str, ...]
    length: int = HASH_CHARS_MIN
    of: HashedOf | None = None
