"""The one way to turn a tuple into bytes for a hash: injective, so that distinct tuples never hash alike.

Owns the format. Must not know what is hashed or by what. A format that is in use is never changed: what needs
another gets a new domain.
"""

from __future__ import annotations

Part = bytes | str | None
"""Text counts as its UTF-8. None is absent, which is not the same as empty."""


def encode(domain: str, *parts: Part) -> bytes:
    """`domain` (what is hashed, by which version: `sluice/content/1`), then the parts, each with its length
    in front as netstrings have it, `3:abc,`; an absent part is `-,`.

    It can be read back in one way only, so distinct tuples, of whatever lengths, have distinct encodings.
    Total: half a surrogate pair is encoded as what it is.
    """
    return b"".join((framed(domain), *map(framed, parts)))


def framed(part: Part) -> bytes:
    """What one more part adds to an encoding."""
    if part is None:
        return b"-,"
    if isinstance(part, str):
        part = part.encode("utf-8", "surrogatepass")
    return b"%d:%b," % (len(part), part)
