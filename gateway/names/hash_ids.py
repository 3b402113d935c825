"""Hash ids: `bd-k86gaq`, short names that anyone can compute offline, and their children `bd-k86gaq.1`.

Owns the text of a hash id: what it is computed from, its grammar, what an abbreviation stands for. Must not
know where names are kept; that no two are equal is a constraint's business there.

A body is Crockford's base32 (lower case, without i, l, o, u) of a SHA-256, most significant bits first: a
longer body begins with every shorter one of the same aggregate. It has at least one letter, so that it is
never taken for the number of a public id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256

from gateway.names.encoding import encode, framed

ALGORITHM = 1
"""Stored beside every name. Names are not computed again, so another algorithm would touch only new ones."""

TENANT_BYTES = 16
BODY_CHARS_MIN = 6  # 30 bits: among 1,000, one in 2,150 tenants has a longer one
BODY_CHARS_MAX = 16  # 80 bits: two that are equal are never met
ABBREVIATION_CHARS_MIN = 4  # shorter ones would soon be ambiguous; git takes no fewer either
CHILD_DEPTH_MAX = 3
CHILD_NUMBER_MAX = 2**63 - 1  # Postgres' bigint
CANDIDATES_MAX = 10

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple([first + second for first in _ALPHABET for second in _ALPHABET])
_BITS_A_PAIR = 10
_PAIR_MASK = 2**_BITS_A_PAIR - 1
_BODY_BYTES_MAX = BODY_CHARS_MAX * 5 // 8
_SHIFTS = range(BODY_CHARS_MAX * 5 - _BITS_A_PAIR, -1, -_BITS_A_PAIR)
_DIGITS = "0123456789"
_BODY = f"[{_ALPHABET}]{{1,{BODY_CHARS_MAX}}}"
_NAME = re.compile(rf"(?:([a-z][a-z0-9]{{1,9}})-)?({_BODY})((?:\.[1-9][0-9]{{0,18}}){{0,{CHILD_DEPTH_MAX}}})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class HashName:
    """A hash id in its parts. `body` may be the beginning of one, and `prefix` None, in what people type."""

    prefix: str | None
    body: str
    children: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """As it is written: `bd-k86gaq.1.2`."""
        root = self.body if self.prefix is None else f"{self.prefix}-{self.body}"
        return ".".join((root, *map(str, self.children)))


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """`candidates` are what an abbreviation may stand for: sorted, at most CANDIDATES_MAX of all `total`."""

    candidates: tuple[str, ...]
    total: int


def bodies(tenant: bytes, aggregate_type: str, key: str) -> tuple[str, ...]:
    """The bodies that an aggregate's name may have, the first that is free counts. Never empty. `tenant` is
    its id, a UUID's 16 bytes (`sluice tenants list` shows it), `key` canonical. Raises TypeError for another
    tenant, its name say: it would have other bodies."""
    if not isinstance(tenant, bytes) or len(tenant) != TENANT_BYTES:
        raise TypeError(f"a tenant is the {TENANT_BYTES} bytes of its id, not {tenant!r}")
    return lengths_of(sha256(_up_to_the_key(tenant, aggregate_type) + framed(key)).digest())


@lru_cache(maxsize=256)
def _up_to_the_key(tenant: bytes, aggregate_type: str) -> bytes:
    """The same for thousands of aggregates that are named at once."""
    return encode("sluice/hash-id/1", tenant, aggregate_type)


def bodies_of_text(title: str, description: str, created: datetime, workspace: str) -> tuple[str, ...]:
    """The same, over what the third seed document hashes: for tools that name a thing before it has a key.
    An instant counts, not the zone that it is told in. Raises ValueError where `created` has no zone."""
    if created.utcoffset() is None:
        raise ValueError("a creation time needs a time zone")
    return bodies_of_instant(
        title, description, (created - _EPOCH) // timedelta(microseconds=1) * 1000, workspace
    )


def bodies_of_instant(title: str, description: str, created_ns: int, workspace: str) -> tuple[str, ...]:
    """The same; `created_ns` are nanoseconds since 1970."""
    preimage = encode("sluice/hash-id-text/1", title, description, str(created_ns), workspace)
    return lengths_of(sha256(preimage).digest())


_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def nanoseconds(text: str) -> int | None:
    """Since 1970, of an RFC 3339 time with up to nine digits of a second; None for any other text."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    zone = "+00:00" if found[4] in "Zz" else found[4]
    try:
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
    except ValueError:
        return None
    return (whole - _EPOCH) // timedelta(seconds=1) * 10**9 + int((found[3] or "0").ljust(9, "0"))


def lengths_of(digest: bytes) -> tuple[str, ...]:
    """The bodies of 6 to 16 characters of a 32-byte digest, shortest first; none without a letter.

    One digest in 120 million has no letter in all 16 characters: there the last digit becomes a letter.
    """
    bits = int.from_bytes(digest[:_BODY_BYTES_MAX], "big")
    symbols = "".join([_PAIRS[bits >> shift & _PAIR_MASK] for shift in _SHIFTS])
    if symbols.isdigit():
        symbols = symbols[:-1] + _ALPHABET[10 + int(symbols[-1])]
    digits = len(symbols) - len(symbols.lstrip(_DIGITS))
    return tuple([symbols[:length] for length in range(max(BODY_CHARS_MIN, digits + 1), BODY_CHARS_MAX + 1)])


def parse(text: str) -> HashName | None:
    """The parts of a name as people type it, None where it can't be one. Case does not count; the prefix may
    be missing, and the body shorter than any name's. Total."""
    if not text.isascii():  # before folding: the Kelvin sign becomes a k
        return None
    found = _NAME.fullmatch(text.lower())
    if found is None:
        return None
    children = tuple(map(int, found[3].split(".")[1:]))
    if any(number > CHILD_NUMBER_MAX for number in children):
        return None
    return HashName(found[1], found[2], children)


def is_name(typed: HashName) -> bool:
    """Whether it may be a whole name, but for the prefix."""
    return len(typed.body) >= BODY_CHARS_MIN and not typed.body.isdigit()


def may_be_body(text: str) -> bool:
    """Whether a name that was given elsewhere may have this body: shorter than ours, and of digits only."""
    return ABBREVIATION_CHARS_MIN <= len(text) <= BODY_CHARS_MAX and all(each in _ALPHABET for each in text)


def is_abbreviation(typed: HashName) -> bool:
    """Whether it is long enough to be looked for."""
    return len(typed.body) >= ABBREVIATION_CHARS_MIN


def child_of(parent: HashName, number: int) -> HashName | None:
    """The name of a child, numbered from 1; None where the parent is as deep as names go."""
    if len(parent.children) >= CHILD_DEPTH_MAX:
        return None
    return HashName(parent.prefix, parent.body, (*parent.children, number))


def stands_for(typed: HashName, name: HashName) -> bool:
    """Whether `typed` is `name` or abbreviates it: its body from the start, its children exactly, so that
    a root is never shadowed by its children, nor `.11` by `.1`."""
    return (
        typed.prefix in (None, name.prefix)
        and name.body.startswith(typed.body)
        and typed.children == name.children
    )


def choose(typed: HashName, names: Iterable[HashName]) -> HashName | Ambiguous | None:
    """Which of `names` is meant: one that is exactly so before one that is abbreviated; None for none."""
    meant = [name for name in names if stands_for(typed, name)]
    exact = [name for name in meant if name.body == typed.body]
    found = sorted(exact or meant, key=lambda name: name.text)
    if len(found) > 1:
        return Ambiguous(tuple(name.text for name in found[:CANDIDATES_MAX]), len(found))
    return found[0] if found else None
