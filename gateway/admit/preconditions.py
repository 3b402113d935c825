"""What a request asks for by headers: a length of the stream, a key against repeats, a way of answering.

Owns: the grammar of these headers (RFC 9110 section 13, RFC 7240, and the contract's narrower forms).
Must not know: the body, the stream.

Header names come in lower case, as ASGI has them. A header given twice is one list, as RFC 9110 section 5.3
says, and so a refusal wherever one value is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from gateway.appends import ANY_LENGTH, AT_LEAST_ONE
from gateway.errors import Refusal

LENGTH_MAX: Final = 2**63 - 1
"""Greatest version: it is a bigint in Postgres."""


class Asked(Struct, frozen=True, gc=False):
    """What the headers of an append ask for.

    `expected` is a length, ANY_LENGTH or AT_LEAST_ONE; `expected_by` names the header that asked. `mark` is
    that of the ETag in `If-Match`, 0 without one: of which history it is; None where there is no such ETag.
    `correlation_id` is a canonical UUID. `minimal` and `wait` are from `Prefer`.
    """

    expected: int = ANY_LENGTH
    expected_by: str = ""
    idempotency_key: str | None = None
    correlation_id: str | None = None
    minimal: bool = False
    wait: bool = False
    mark: int | None = None
    skip_unchanged: bool = False


NOTHING_ASKED: Final = Asked()

ASKING: Final = frozenset(
    (
        b"if-match",
        b"if-none-match",
        b"idempotency-key",
        b"x-idempotency-key",
        b"x-correlation-id",
        b"prefer",
        b"sluice-if-unchanged",
    )
)
"""The headers that ask for something. Without any of them it is NOTHING_ASKED."""
_BESIDE_A_KEY: Final = ASKING - {b"idempotency-key"}


def read_asked(headers: Iterable[tuple[bytes, bytes]]) -> Asked | Refusal:
    """What an append's headers ask for, or the first of them that can't be read: `If-None-Match`,
    `If-Match`, `Idempotency-Key`. The others are never refused."""
    found = collect(headers, ASKING)
    if not found:
        return NOTHING_ASKED
    only = found.get(b"idempotency-key") if len(found) == 1 else None
    if only is not None and _KEY.fullmatch(only):  # as mostly
        return Asked(idempotency_key=only.decode("ascii"))
    expected = _expected(found.get(b"if-match"), found.get(b"if-none-match"))
    if isinstance(expected, Refusal):
        return expected
    key = _idempotency_key(found.get(b"idempotency-key"), found.get(b"x-idempotency-key"))
    if isinstance(key, Refusal):
        return key
    unchanged = found.get(b"sluice-if-unchanged")
    if unchanged not in (None, b"skip"):
        return Refusal("invalid_field", "`Sluice-If-Unchanged` can only be `skip`.", "Sluice-If-Unchanged")
    preferred = _preferences(found[b"prefer"]) if b"prefer" in found else {}
    return Asked(
        *expected,
        key,
        read_correlation_id(found.get(b"x-correlation-id")),
        preferred.get("return") == "minimal",
        "wait" in preferred,
        _mark(found.get(b"if-match")),
        unchanged is not None,
    )


def read_asked_once(headers: Mapping[bytes, bytes]) -> Asked | Refusal:
    """The same of headers by name, each of which was sent once."""
    key = headers.get(b"idempotency-key")
    if key is not None and _BESIDE_A_KEY.isdisjoint(headers) and _KEY.fullmatch(key):
        return Asked(ANY_LENGTH, "", key.decode("ascii"))
    return read_asked(headers.items())


def etag(length: int, rewound: int, revision: int | None = None) -> str:
    """Of a stream's length, with its quotes; of its state by a revision of the spec. Once events were given
    up by a rewind, with the mark of the history: the epoch that it began."""
    if revision is None and not rewound:  # as of nearly every append
        return f'"{length}"'
    of_state = "" if revision is None else f".r{revision}"
    mark = f".e{rewound}" if rewound else ""
    return f'"{length}{of_state}{mark}"'


def collect(headers: Iterable[tuple[bytes, bytes]], names: Collection[bytes]) -> dict[bytes, bytes]:
    """The headers among `names`, without blanks around the values; repeated ones joined by `, `."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in names:
            value = value.strip(b" \t")
            found[name] = found[name] + b", " + value if name in found else value
    return found


def agreed_length(asked: Asked, previous_length: int | None, *, skip_occ: bool) -> int | Refusal:
    """The length that headers and body together ask for: a length, ANY_LENGTH or AT_LEAST_ONE.

    Refused where they contradict each other, with the header's name as path. `skip_occ` beside
    `previous_length` is the body's own affair (`envelope`).
    """
    if asked.expected == ANY_LENGTH:
        return ANY_LENGTH if previous_length is None else previous_length
    if skip_occ:
        return _contradiction(asked.expected_by, "`metadata.skip_occ: true`")
    if previous_length is None:
        return asked.expected
    if asked.expected == previous_length or (asked.expected == AT_LEAST_ONE and previous_length > 0):
        return previous_length
    return _contradiction(asked.expected_by, f"`metadata.previous_length: {previous_length}`")


def not_modified(if_none_match: bytes | None, etag: str) -> bool:
    """Whether a GET is answered by 304: its `If-None-Match` names `etag` (given with its quotes), or is `*`.

    Weak comparison, lists allowed (RFC 9110 section 13.1.2). What is no list of entity tags matches nothing.
    """
    if if_none_match is None:
        return False
    if if_none_match.strip(b" \t") == b"*":
        return True
    if not _ETAG_LIST.fullmatch(if_none_match):
        return False
    return etag.encode() in _ETAG.findall(if_none_match)


def read_correlation_id(value: bytes | None) -> str | None:
    """The text of an `X-Correlation-Id` if it is a canonical UUID (36 characters, lower case), else None."""
    if value is None or not _UUID.fullmatch(value):
        return None
    return value.decode("ascii")


PREFERENCES_MAX = 32
"""That are read: the header may have 60,000."""

_LENGTH_TAG = re.compile(rb'"(0|[1-9][0-9]{0,18})(?:\.r[0-9]{1,10})?(?:\.e([1-9][0-9]{0,18}))?"')
_ETAG = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"')
# Possessive, so linear: a comma can't be in a blank, nor a quote in a tag.
_ETAG_LIST = re.compile(rb'[ \t,]*+(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"[ \t]*+(?:,[ \t,]*+|\Z))*+')
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEY = re.compile(rb"[\x21-\x7e]{1,255}")


def _expected(if_match: bytes | None, if_none_match: bytes | None) -> tuple[int, str] | Refusal:
    if if_none_match is not None and if_none_match != b"*":
        return Refusal("invalid_field", "`If-None-Match` of an append can only be `*`.", "If-None-Match")
    if if_match is None:
        return (ANY_LENGTH, "") if if_none_match is None else (0, "If-None-Match")
    length = AT_LEAST_ONE if if_match == b"*" else _length(if_match)
    if length is None:
        sentence = '`If-Match` must be one length in quotes, like "5" or "5.r3", or `*`: no list, no `W/`.'
        return Refusal("invalid_field", sentence, "If-Match")
    if if_none_match is not None and length != 0:
        return _contradiction("If-Match", "`If-None-Match: *`")
    return length, "If-Match"


def _length(tag: bytes) -> int | None:
    match = _LENGTH_TAG.fullmatch(tag)
    return int(match[1]) if match is not None and int(match[1]) <= LENGTH_MAX else None


def _mark(if_match: bytes | None) -> int | None:
    """0 where the tag has none."""
    match = None if if_match is None else _LENGTH_TAG.fullmatch(if_match)
    return None if match is None else int(match[2] or 0)


def _contradiction(header: str, other: str) -> Refusal:
    return Refusal("invalid_field", f"`{header}` contradicts {other}; send one of them.", header)


def _idempotency_key(plain: bytes | None, prefixed: bytes | None) -> str | Refusal | None:
    for name, value in (("Idempotency-Key", plain), ("X-Idempotency-Key", prefixed)):
        if value is not None and not _KEY.fullmatch(value):
            sentence = f"`{name}` must be one key of 1 to 255 visible ASCII characters, without blanks."
            return Refusal("invalid_field", sentence, name)
    if plain is not None and prefixed is not None and plain != prefixed:
        return _contradiction("Idempotency-Key", "`X-Idempotency-Key`")
    key = prefixed if plain is None else plain
    return None if key is None else key.decode("ascii")


def _preferences(prefer: bytes) -> dict[str, str]:
    """Preference to value, both in lower case; of a repeated one the first counts (RFC 7240 section 2)."""
    found: dict[str, str] = {}
    for part in prefer.decode("latin-1").lower().split(",", PREFERENCES_MAX):
        name, _, value = part.partition(";")[0].partition("=")
        found.setdefault(name.strip(), value.strip().strip('"'))
    return found
