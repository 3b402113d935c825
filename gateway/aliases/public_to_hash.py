"""`sluice names migrate`: a hash id beside every public id that has none. Both resolve from then on.

Owns the plan, which a dry run computes too and writes not: on the same names it says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.aliases.kinds import HashNamer
from gateway.aliases.store import Snapshot
from gateway.names.changes import Change, Give
from spec.model import HashIds


class CanNotMigrate(Exception):
    """Nothing was written; the text says what to correct."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An aggregate's public id, and its hash id, which it may have had before."""

    public: str
    hash: str


class Migration:
    """A plan for `Writer.write`. `pairs` is what the last call of it decided, in the order in which people
    count; `once` are the types among them whose new aggregates get no hash id by the spec."""

    def __init__(self, ids: HashIds) -> None:
        self._ids = ids
        self.pairs: tuple[Pair, ...] = ()
        self.once: tuple[str, ...] = ()

    async def plan(self, at: Snapshot) -> Sequence[Change]:
        """Raises CanNotMigrate: all names or none."""
        named = await at.public_and_hash()
        nameless = list(dict.fromkeys((each.aggregate_type, each.key) for each in named if each.hash is None))
        given = await HashNamer(self._ids).name(at, nameless)
        if len(given) < len(nameless):
            raise CanNotMigrate("every hash id that an aggregate could have is taken")
        self.once = tuple(sorted({each.aggregate_type for each in named} - set(self._ids.types)))
        aliases = {(each.aggregate_type, each.key): each.alias for each in given}
        self.pairs = tuple(
            [
                Pair(each.public.text, (each.hash or aliases[each.aggregate_type, each.key]).text)
                for each in named
            ]
        )
        return (Give(tuple(given)),)
