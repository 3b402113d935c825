"""API keys and handles: `sl_<tenant handle>_<random>_<crc>`, all base62.

Owns the text of a key: minting it, recognizing a mistyped one without a query, and the digest that
is stored in its place. Must not know where keys are kept or whom one belongs to. Randomness is an argument.

A key carries 131 random bits, so its stored form needs no slow hash. The prefix and the checksum let secret
scanners find a leaked one, by `KEY_PATTERN`, with next to no false alarms.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

Entropy = Callable[[int], bytes]
"""Gives as many random bytes as it is asked for, as `secrets.token_bytes` does."""

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # ASCII order is numeric order
HANDLE_CHARS = 8
RANDOM_CHARS = 22  # 131 bits: 62^22 > 2^130
CRC_CHARS = 6  # 62^6 > 2^32
KEY_PATTERN = rf"sl_[0-9A-Za-z]{{{HANDLE_CHARS}}}_[0-9A-Za-z]{{{RANDOM_CHARS}}}_[0-9A-Za-z]{{{CRC_CHARS}}}"

_KEY = re.compile(KEY_PATTERN)
_UNBIASED = (
    248  # the greatest multiple of 62 in a byte: from here on a remainder would favour the first symbols
)
_DRAWS_MAX = 64  # a sound source fails to fill a handle in that many draws once in 10^90 runs


@dataclass(frozen=True, slots=True)
class Token:
    """A well-formed key. `handle` is its tenant's, public; `text` is the secret, and left out of the repr."""

    handle: str
    text: str = field(repr=False)


def mint(handle: str, entropy: Entropy) -> str:
    """A new key of the tenant with this 8-character handle: a secret, shown once and stored as `digest`."""
    if not _is_handle(handle):
        raise ValueError(f"{handle!r} is not a handle: {HANDLE_CHARS} base62 characters")
    body = f"sl_{handle}_{draw(RANDOM_CHARS, entropy)}"
    return f"{body}_{_checksum(body)}"


def parse(text: str) -> Token | None:
    """The key that `text` is, or None where form or checksum is wrong: never minted, not worth a look-up."""
    if _KEY.fullmatch(text) is None:
        return None
    body, _, crc = text.rpartition("_")
    if crc != _checksum(body):
        return None
    return Token(body[3 : 3 + HANDLE_CHARS], text)


def digest(text: str) -> bytes:
    """SHA-256 of a key, 32 bytes: all that is ever stored of it."""
    return hashlib.sha256(text.encode()).digest()


def new_handle(entropy: Entropy) -> str:
    """8 base62 characters that name a key or a tenant in lists and logs.

    Among 20,000, two are equal with a chance of one in a million: insert under a uniqueness constraint, and
    never overwrite.
    """
    return draw(HANDLE_CHARS, entropy)


def draw(length: int, entropy: Entropy) -> str:
    """`length` base62 symbols, each equally likely: bytes that would favour a symbol are thrown away.

    Raises ValueError where the source gives too few bytes, or none that can be used.
    """
    symbols = ""
    for _ in range(_DRAWS_MAX):
        missing = length - len(symbols)
        if not missing:
            return symbols
        drawn = entropy(missing)
        if len(drawn) != missing:
            raise ValueError(f"the source of randomness gave {len(drawn)} bytes, asked for {missing}")
        symbols += "".join(ALPHABET[byte % 62] for byte in drawn if byte < _UNBIASED)
    raise ValueError(f"the source of randomness is broken: {_DRAWS_MAX} draws gave {len(symbols)} symbols")


def base62(number: int) -> str:
    """A number >= 0 in base62, most significant symbol first, without leading zeros (0 is `0`)."""
    if number < 0:
        raise ValueError(f"{number} is negative")
    symbols = ""
    while number >= 62:
        number, digit = divmod(number, 62)
        symbols = ALPHABET[digit] + symbols
    return ALPHABET[number] + symbols


def _checksum(body: str) -> str:
    return base62(zlib.crc32(body.encode())).rjust(CRC_CHARS, "0")


def _is_handle(text: str) -> bool:
    return len(text) == HANDLE_CHARS and all(symbol in ALPHABET for symbol in text)
