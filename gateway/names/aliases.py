"""Aliases: what may stand after the `@` of a path, in place of an identifier: `VNO-42`, `bd-k86gaq`,
`bd-k86gaq.1`.

Owns the grammar, and the one spelling that is stored and shown. Must not know what an alias names, or whether
it names anything.

The kind is told by the body only: digits only are a public id, at least one letter makes a hash id, so the
two can't collide whatever their prefixes are. A hash id's prefix may be left out, and its body may be
abbreviated to 4 characters; whether that is good enough is for the resolver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from gateway.names import hash_ids
from gateway.names.hash_ids import CHILD_DEPTH_MAX, HashName
from spec.errors import shown
from spec.model import Spec

SIGIL = "@"
NUMBER_MAX = 2**63 - 1
"""Greatest number of a public id: it is a bigint in Postgres."""
TEXT_CHARS_MAX = 100
"""More than the longest alias has: a prefix of 10, a body of 16, three numbers of 19, and what separates."""

_PREFIX = "[A-Za-z][A-Za-z0-9]{1,9}"
# Explicit classes and `fullmatch` only: IGNORECASE lets ſ and the Kelvin sign in, `$` a trailing newline.
_PUBLIC = re.compile(f"({_PREFIX})-([1-9][0-9]{{0,18}})")
_DIGITS_AFTER_DASH = re.compile(rf"{_PREFIX}-[0-9]+(?:\.[0-9]+)*")


class Kind(StrEnum):
    PUBLIC = "public"
    HASH = "hash"


@dataclass(frozen=True, slots=True)
class Alias:
    """A well-formed alias in its canonical spelling. `prefix` is None where a hash id's was left out; `body`
    is a number in decimal, or base32; `path` is that of a child, `.1.2`, else empty."""

    kind: Kind
    prefix: str | None
    body: str
    path: str = ""

    @property
    def text(self) -> str:
        """As it is shown, without the `@`."""
        return f"{self.body}{self.path}" if self.prefix is None else f"{self.prefix}-{self.body}{self.path}"


@dataclass(frozen=True, slots=True)
class Malformed:
    """`reason` is a sentence for a person: what is wrong and how to correct it."""

    reason: str


def parse_alias(text: str) -> Alias | Malformed:
    """What `text`, without its `@`, could name. Total: any text gives one or the other.

    Letters are accepted in any case; nothing else is rewritten.
    """
    found = _PUBLIC.fullmatch(text)
    if found is not None:
        if int(found[2]) > NUMBER_MAX:
            return Malformed(f"{shown(text)} has a number above {NUMBER_MAX}.")
        return Alias(Kind.PUBLIC, found[1].upper(), found[2])
    typed = None if _DIGITS_AFTER_DASH.fullmatch(text) else hash_ids.parse(text)
    if typed is not None and hash_ids.is_abbreviation(typed):
        return of_hash(typed)
    return Malformed(_reason(text))


def alias_in(text: str, spec: Spec, aggregate_type: str) -> Alias | Malformed | None:
    """The alias that a key in a body is: with its sigil any; without, one of the prefixes that aggregates of
    this type have. None where the text is not an alias; it may be an identifier. No text is both."""
    alias = parse_alias(text.removeprefix(SIGIL))
    if text.startswith(SIGIL):
        return alias
    if isinstance(alias, Malformed) or alias.prefix is None:
        return None
    public, hashed = spec.public_ids, spec.hash_ids
    if public is not None and public.projects is not None and aggregate_type in public.projects.types:
        return alias  # of which project is for the look-up to find
    prefixes = [public.key] if public is not None and aggregate_type in public.types else []
    if hashed is not None and aggregate_type in hashed.types:
        prefixes.append(hashed.prefix)
    return alias if alias.prefix in prefixes else None


def numbered_hash(alias: Alias) -> Alias | None:
    """The hash id that is spelled like a public id: one of digits only, brought along from elsewhere. None
    where that is no body."""
    if alias.kind is not Kind.PUBLIC or alias.prefix is None or not hash_ids.may_be_body(alias.body):
        return None
    return Alias(Kind.HASH, alias.prefix.lower(), alias.body)


def of_hash(name: HashName) -> Alias:
    """A hash id as an alias."""
    path = "".join([f".{number}" for number in name.children])
    return Alias(Kind.HASH, name.prefix, name.body, path)


def _reason(text: str) -> str:
    """Why `text` is no alias. Most telling first: this is read by a person who has a typo."""
    if text == "":
        return f"An alias is missing after the {SIGIL}."
    if len(text) > TEXT_CHARS_MAX:
        return f"{shown(text)} is longer than any alias."
    if not text.isascii():
        first = next(character for character in text if not character.isascii())
        return f"{shown(text)} has U+{ord(first):04X}, which is not ASCII; retype it with plain characters."
    if _DIGITS_AFTER_DASH.fullmatch(text):
        return f"{shown(text)} is not a public id: its number starts from 1, without leading zeros."
    if text.partition("-")[2].count(".") > CHILD_DEPTH_MAX:
        return f"{shown(text)} is nested deeper than {CHILD_DEPTH_MAX}."
    return (
        f"{shown(text)} is not an alias: those are a key and a number, like VNO-42, or a prefix and base32 "
        "without i, l, o and u, like bd-k86gaq or its child bd-k86gaq.1; at least 4 characters of it."
    )
