"""The four kinds of identifier: one rule for an aggregate's key, an actor's id and a target's id.

Owns the grammar and the canonical spelling. Must not know where an identifier came from; what is canonical
here is what travels into streams, stored events and answers. The canonical page is docs/http-api.md.

| kind        | canonical form                                        | accepted spellings                |
|-------------|-------------------------------------------------------|-----------------------------------|
| UUID        | version 4 or 5, RFC 9562 variant, 36 lower-case ASCII | any case                          |
| humane code | 9 of `0-9A-Z` without I, L, O, U                      | any case; I and L are 1, O 0, U V |
| singleton   | `global`, or a name that the spec declares            | exactly that                      |
| tagged UUID | `<uuid>:[a-z0-9]{1,10}`                               | the UUID half in any case         |
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from spec.errors import shown

GLOBAL = "global"
"""The singleton that every aggregate type has without declaring it."""

RESERVED_ACTOR_PREFIX = "system_"
"""Actor types that start so are the gateway's own parts. No spec declares one, no client sends one."""

SYSTEM_ACTOR_IDS = frozenset(
    {"event_scheduler", "test_data_importer", "saga_coordinator", "saga_compensator"}
)
"""The only ids of `system_*` actors, in place of the four kinds."""

NAME_GRAMMAR = "[a-z][a-z0-9_]{0,63}"
"""Every name that a spec declares: types, events, agents, targets, singletons."""

HUMANE_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
HUMANE_LENGTH = 9
HUMANE_RANDOM_BYTES = 6
"""Random bytes that `mint_humane` needs: 9 symbols of 5 bits are 45 of their 48."""

# Explicit classes and `fullmatch` only: IGNORECASE lets ſ and the Kelvin sign in, `$` a trailing newline.
_UUID = "[0-9a-{f}]{{8}}-[0-9a-{f}]{{4}}-[45][0-9a-{f}]{{3}}-[89a{b}][0-9a-{f}]{{3}}-[0-9a-{f}]{{12}}"
_CANONICAL_UUID = re.compile(_UUID.format(f="f", b="b"))
_ANY_UUID = re.compile(_UUID.format(f="fA-F", b="bAB"))
_TAGGED_UUID = re.compile(f"({_ANY_UUID.pattern}):([a-z0-9]{{1,10}})")
_LIKE_UUID = re.compile(r"(?:urn:uuid:)?[{(]?([0-9A-Fa-f-]{32,48})[)}]?(?::.*)?", re.IGNORECASE)
_HUMANE = re.compile(f"[0-9A-Za-z]{{{HUMANE_LENGTH}}}")
_NAME = re.compile(NAME_GRAMMAR)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ESCAPED = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*")

_LOWER = "abcdefghijklmnopqrstuvwxyz"
_HUMANE_SPELLING = str.maketrans(_LOWER + "ILOU", _LOWER.upper() + "110V") | str.maketrans("ilou", "110V")


class Kind(enum.StrEnum):
    UUID = "uuid"
    HUMANE_CODE = "humane_code"
    SINGLETON = "singleton"
    TAGGED_UUID = "tagged_uuid"


@dataclass(frozen=True, slots=True)
class Identifier:
    canonical: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Refused:
    """`reason` is a sentence for a person: what is wrong and how to correct it."""

    reason: str


def canonicalize(text: str, singletons: Collection[str]) -> str | None:
    """The canonical spelling of `text`, or None when it is of none of the four kinds.

    `singletons` are the spec's; `global` is always one. Total and idempotent: any text gives an id or None.
    """
    # Exact names come first: nothing may be rewritten before it is known to be no singleton.
    if text in singletons or text == GLOBAL or _CANONICAL_UUID.fullmatch(text):
        return text
    if _HUMANE.fullmatch(text):
        return text.translate(_HUMANE_SPELLING)
    if _ANY_UUID.fullmatch(text) or _TAGGED_UUID.fullmatch(text):
        return text.lower()  # ASCII by now, and the tag has no upper case
    return None


def identify(text: str, singletons: Collection[str]) -> Identifier | Refused:
    """As `canonicalize`, with its kind, or why it is invalid."""
    canonical = canonicalize(text, singletons)
    if canonical is None:
        return Refused(_reason(text))
    return Identifier(canonical, _kind(canonical, singletons))


def _kind(canonical: str, singletons: Collection[str]) -> Kind:
    if canonical in singletons or canonical == GLOBAL:
        return Kind.SINGLETON
    if len(canonical) == HUMANE_LENGTH:
        return Kind.HUMANE_CODE
    return Kind.TAGGED_UUID if ":" in canonical else Kind.UUID


def _reason(text: str) -> str:
    """Why `canonicalize` refused `text`. Most telling first: this is read by a person who has a typo."""
    if text == "":
        return "An identifier is missing: this one is empty."
    if text.startswith("@"):
        return f"{shown(text)} is an alias and cannot be used here; `/_/resolve/{{alias}}` has its key."
    if not text.isascii():
        first = next(character for character in text if not character.isascii())
        return f"{shown(text)} has U+{ord(first):04X}, which is not ASCII; retype it with plain characters."
    if text != text.strip() or _CONTROL.search(text):
        return f"{shown(text)} has whitespace at an end or a control character in it; remove that."
    uuid, colon, tag = text.partition(":")
    if colon and _ANY_UUID.fullmatch(uuid):
        return f"The tag {shown(tag)} is not 1 to 10 lower-case letters and digits; spell it so."
    if (found := _LIKE_UUID.fullmatch(text)) and len(digits := found[1].replace("-", "").lower()) == 32:
        return _uuid_reason(text, digits)
    if len(text) == HUMANE_LENGTH and not is_name(text):
        return (
            f"{shown(text)} is not a humane code: a humane code is 9 letters and digits, without separators."
        )
    if is_name(text):
        return (
            f"{shown(text)} is not a declared singleton; add it to `singletons` in the spec, or use a UUID."
        )
    return f"{shown(text)} is not a UUID (v4 or v5), a 9-character code, a singleton or a tagged UUID."


def _uuid_reason(text: str, digits: str) -> str:
    if digits[12] not in "45":
        return f"{shown(text)} is a UUID of version {digits[12]}; only versions 4 and 5 are accepted as ids."
    if digits[16] not in "89ab":
        return f"{shown(text)} is not an RFC 9562 UUID: {digits[16]} stands where 8, 9, a or b must be."
    spelled = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{shown(text)} is not the plain form of a UUID; write {spelled}."


def decode_segment(raw: bytes) -> str | None:
    """The text of one raw path segment: as `decode_text`, and None when it is `.` or `..`. `%2F` is a
    character of the segment, never a separator."""
    text = decode_text(raw)
    return None if text in (".", "..") else text


def decode_text(raw: bytes) -> str | None:
    """Percent-decoding, once, strictly as UTF-8. None when a `%` is not followed by two hex digits, when the
    bytes are not UTF-8, or when the text holds a control character."""
    if b"%" in raw:
        if not _ESCAPED.fullmatch(raw):
            return None
        raw = unquote_to_bytes(raw)
    try:
        text = raw.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def mint_humane(random_bytes: bytes) -> str:
    """A humane code out of HUMANE_RANDOM_BYTES bytes; uniform over all 32**9 codes if the bytes are.

    Raises ValueError for any other number of bytes.
    """
    if len(random_bytes) != HUMANE_RANDOM_BYTES:
        raise ValueError(f"mint_humane needs {HUMANE_RANDOM_BYTES} bytes, got {len(random_bytes)}")
    bits = int.from_bytes(random_bytes, "big")  # 32 is a power of two: 5 bits a symbol, no bias to reject
    return "".join(HUMANE_ALPHABET[bits >> shift & 31] for shift in range(0, 5 * HUMANE_LENGTH, 5))


def is_name(text: str) -> bool:
    """Whether `text` is a name that a spec may declare."""
    return _NAME.fullmatch(text) is not None


def singleton_fault(name: str) -> str | None:
    """Why a spec can't declare `name` as a singleton, with a spelling that works; None if it can.

    The trap: `broadcast`, `dashboard` and `scheduler` are nine letters, so they normalize to valid humane
    codes, and `/config/broadcast` would stop meaning what it meant the day the name is withdrawn.
    """
    if name == GLOBAL:
        return f"`global` exists without being declared; remove it, or declare {shown(_spelling(name))}."
    if not is_name(name):
        return (
            f"{shown(name)} is not a singleton's name: a lower-case letter, then up to 63 of a-z, 0-9 and _. "
            f"{shown(_spelling(name))} works."
        )
    if _HUMANE.fullmatch(name):
        code = name.translate(_HUMANE_SPELLING)
        return f"{shown(name)} is also the humane code {code}; {shown(_spelling(name))} works."
    return None


def _spelling(name: str) -> str:
    """A singleton name close to `name` that `singleton_fault` accepts."""
    slug = re.sub("[^a-z0-9]+", "_", name[:1_000].lower()).strip("_")[:58].strip("_")
    if slug == "":
        return "main"
    if slug == GLOBAL or len(slug) == HUMANE_LENGTH or slug[0].isdigit():
        return f"main_{slug}"  # an underscore is in no humane code
    return slug


def uuid_text(raw: bytes) -> str:
    """An id as the contract shows it."""
    parts = raw.hex("-", 6)  # of 4, 6 and 6 bytes: the fewest cuts are left to make
    return f"{parts[:13]}-{parts[13:17]}-{parts[17:]}"
