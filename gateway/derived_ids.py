"""Ids that are derived from others: the same cause always gives the same id.

Owns: UUIDs of version 5 of the events that other events imply, and of what rules and sagas create.
Must not know: who derives, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Final

_derived = sha1(b"sluice/implied/1", usedforsecurity=False).copy
"""A hash that is copied is at hand sooner than one that is made."""

_NO_VERSION: Final = ~(0xF << 76 | 0x3 << 62)
_VERSION_5: Final = 0x5 << 76 | 0x2 << 62


def derived_id(cause: bytes, number: int) -> bytes:
    """The id of the event number `number` that the event `cause` implies: a UUIDv5, 16 bytes."""
    made_of = _derived()
    made_of.update(b"%b%d" % (cause, number))
    return _version_5(made_of.digest())


def id_of(made_of: bytes) -> bytes:
    """A UUIDv5, 16 bytes, the same of the same bytes, which begin with what it is the id of and a version."""
    return _version_5(sha1(made_of, usedforsecurity=False).digest())


def _version_5(digest: bytes) -> bytes:
    return (int.from_bytes(digest[:16]) & _NO_VERSION | _VERSION_5).to_bytes(16)


def implied_among(ids: Sequence[bytes]) -> int:
    """How many of an append's events are implied, by their ids: they are its last ones."""
    firsts: set[bytes] = set()
    for n, each in enumerate(ids):
        if each[6] >> 4 == 5:
            firsts.update(derived_id(cause, 0) for cause in ids[len(firsts) : n])
            if each in firsts:
                return len(ids) - n
    return 0
