"""The raw path of a request, in decoded segments.

Owns: where segments end, and that each is decoded once. Must not know: which routes exist.
"""

from __future__ import annotations

from spec.identifiers import decode_segment

SEGMENTS_MAX = 16
"""More than any path of ours has."""

_PERCENT = ord("%")  # a search for an int is several times as fast as one for a bytes


def split(raw_path: bytes) -> tuple[str | None, ...] | None:
    """The segments of a raw path without its query: `/order/a%3Ab` is `("order", "a:b")`, `/` is `()`.

    A segment is None where it can't be decoded (`decode_segment` says when): the caller knows whether that is
    an id in bad form or a name that doesn't exist. `%2F` never splits. The whole is None for what is no path
    of ours: it doesn't start with a slash, ends with one, has an empty segment, or more than
    SEGMENTS_MAX of which some are escaped: to decode them takes longest.
    """
    if _PERCENT not in raw_path and raw_path.isascii():
        text = raw_path.decode("ascii")
        if text.isprintable() and "/." not in text and "//" not in text:
            if text[:1] != "/" or (text[-1] == "/" and text != "/"):
                return None
            return tuple(text[1:].split("/")) if text != "/" else ()
    first, *rest = raw_path.split(b"/")
    if first or b"" in rest or len(rest) > SEGMENTS_MAX:
        return None
    return tuple([decode_segment(segment) for segment in rest])
