"""Names that people say: which types of aggregates get which, as a spec declares it.

Owns the grammar of prefixes, and the rule that a tenant has one registry of them: a prefix says which kind a
name is, so no two kinds may share one, in whatever case they are typed.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLIC_KEY_GRAMMAR = "[A-Z][A-Z0-9]{1,9}"
"""The key of public ids: `VNO` of `VNO-42`."""

HASH_PREFIX_GRAMMAR = "[a-z][a-z0-9]{1,9}"
"""The prefix of hash ids: `bd` of `bd-k86gaq`. No dash, no point: a name is never taken apart by guessing."""


@dataclass(frozen=True, slots=True)
class PublicIds:
    """Aggregates of `types` are numbered 1, 2, 3 … under `key`, all types together."""

    key: str
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HashIds:
    """Aggregates of `types` get a short hash of what they are, under `prefix`."""

    prefix: str
    types: tuple[str, ...]
