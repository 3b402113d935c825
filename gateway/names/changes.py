"""What happens to names: the events of a tenant's stream of names, from which every table of names follows.

Owns their form. Must not know where they are kept. An alias is given once, to one aggregate, permanently; all
that can happen to it later is to be retired, and restored. The form is durable: it is added to, not changed.

An event gives, retires or restores up to `NAMES_AN_EVENT_MAX` names, all or none. `_names_given` and
`_names_imported` hold `{"names": [[kind, prefix, body, path, aggregate type, key], …]}`, `_names_retired` and
`_names_restored` the first four of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.names.aliases import Alias, Kind

STREAM_TYPE: Final = "_names"
"""Aggregate type of the stream; its key is `global`. No spec declares a name with an underscore in front."""

GIVEN: Final = "_names_given"
IMPORTED: Final = "_names_imported"
RETIRED: Final = "_names_retired"
RESTORED: Final = "_names_restored"

NAMES_AN_EVENT_MAX: Final = 1000
"""About 90 KB of an event, well below what a client may send in one."""


class Given(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A name, and the aggregate that has it."""

    kind: Kind
    prefix: str
    body: str
    path: str
    aggregate_type: str
    key: str

    @property
    def alias(self) -> Alias:
        return Alias(self.kind, self.prefix, self.body, self.path)


class Named(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A name that was given before."""

    kind: Kind
    prefix: str
    body: str
    path: str


@dataclass(frozen=True, slots=True)
class Give:
    """Names that are new; `imported` where they come from elsewhere, with their numbers."""

    names: tuple[Given, ...]
    imported: bool = False


@dataclass(frozen=True, slots=True)
class Retire:
    """Names that are not shown any more, or, with `restore`, are again. They resolve either way."""

    names: tuple[Named, ...]
    restore: bool = False


Change = Give | Retire

_encode = msgspec.json.Encoder().encode


def named(alias: Alias) -> Named:
    """The alias as it is stored. It has its prefix."""
    assert alias.prefix is not None
    return Named(alias.kind, alias.prefix, alias.body, alias.path)


def to_events(changes: Sequence[Change]) -> Iterator[tuple[str, bytes]]:
    """Event type and payload of each event, in order; large changes are spread over several."""
    for change in changes:
        for start in range(0, len(change.names), NAMES_AN_EVENT_MAX):
            names = list(change.names[start : start + NAMES_AN_EVENT_MAX])
            yield _type_of(change), _encode({"names": names})


def _type_of(change: Change) -> str:
    if isinstance(change, Give):
        return IMPORTED if change.imported else GIVEN
    return RESTORED if change.restore else RETIRED
