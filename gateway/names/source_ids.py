"""Source ids: what a foreign system calls one of our aggregates, and the key that follows from it.

Owns what a source id is, and the key of one that is not mapped yet. Must not know where mappings are
kept: one that is stored wins over the derivation (gateway/catalog/source_ids.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from uuid import UUID

from gateway.names.encoding import encode

PART_BYTES_MAX = 1024
"""Of source, scope and source id each: an entry of Postgres' index holds 2,704 bytes."""

_KEY_DOMAIN = "sluice/source-key/1"


@dataclass(frozen=True, slots=True)
class SourceId:
    """`source_id` names one thing within `scope` (a file, a project, a type of thing) of `source`. All three
    are exactly as the foreign system spells them: nothing is trimmed or folded, `tu1` is not `tu1 `.

    `scope` may be empty, where the source has no more than one.
    """

    source: str
    scope: str
    source_id: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """`part` (`source`, `scope` or `id`) is at fault; `reason` is a sentence for a person."""

    part: str
    reason: str


def read(source: str, scope: str, source_id: object) -> SourceId | Unusable:
    """What names one thing, or why it can't. `source_id` is a string, or a whole number as JSON has it: 42 is
    the same id as "42". Total."""
    if isinstance(source_id, int) and not isinstance(source_id, bool):
        source_id = str(source_id) if abs(source_id) < 10**64 else None
    if not isinstance(source_id, str):
        return Unusable("id", "A source id is a string or a whole number.")
    for part, name, text in (
        ("source", "source", source),
        ("scope", "scope", scope),
        ("id", "source id", source_id),
    ):
        if not text and part != "scope":
            return Unusable(part, f"The {name} is empty.")
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            return Unusable(
                part, f"The {name} contains U+0000 or half a surrogate pair, which can't be stored."
            )
        if len(text.encode()) > PART_BYTES_MAX:
            return Unusable(part, f"The {name} is longer than {PART_BYTES_MAX} bytes.")
    return SourceId(source, scope, source_id)


def derived_key(tenant: UUID, source: str, origin: str, incarnation: int, source_id: str) -> str:
    """The UUIDv5 (RFC 9562) in the tenant's namespace: each program that derives it gets the same, without
    asking.

    `origin` is the name under which the scope was first seen, and `incarnation` how many scopes began under
    it before: after a rename another scope may take the name, and its ids are other things.
    """
    name = encode(_KEY_DOMAIN, source, origin, str(incarnation), source_id)
    return str(UUID(bytes=sha1(tenant.bytes + name, usedforsecurity=False).digest()[:16], version=5))
