"""A webhook as it came: raw bytes, kept as they are until the signature over them is verified. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec
from msgspec.structs import force_setattr

FORM: Final = b"application/x-www-form-urlencoded"
JSON: Final = b"application/json"
HEADER_BYTES_MAX: Final = 8 * 1024
"""Longest header that a scheme reads: signatures are a few hundred bytes, also several of them."""

QUERY_BYTES_MAX: Final = 4 * 1024
"""Longest query of which parameters are read, before anything is verified: a challenge has 1,000 characters
at most."""

ID_BYTES_MAX: Final = 255
"""Longest delivery id, as the longest Idempotency-Key."""

_NAMES_MAX: Final = 1_024
"""Lists of names that are remembered: one a source."""

_VISIBLE = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ESCAPED = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*")


class BadHeader(Exception):
    """A header that a scheme reads is there twice, empty, too long, or not ASCII: a 401. Never leaves this
    package."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Request(msgspec.Struct, frozen=True, gc=False):
    """`path` and `query` are as they were sent, still escaped; header names are in lower case, in order."""

    method: bytes
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    _last: dict[bytes, bytes] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "_last", dict(self.headers))

    def __repr__(self) -> str:
        """Neither headers nor body, which may hold secrets."""
        return f"Request({self.method!r}, {self.path!r}, {self.query!r})"

    def has(self, name: str) -> bool:
        return name.encode() in self._last

    def has_any(self, names: frozenset[bytes]) -> bool:
        return not names.isdisjoint(self._last)

    def one(self, name: str, bytes_max: int = HEADER_BYTES_MAX) -> bytes | None:
        """The value of a header, None if it is absent. Raises BadHeader: a signature can't hang on it."""
        raw = name.encode()
        value = self._last.get(raw)
        if value is None:
            return None
        repeated = len(self._last) < len(self.headers) and self._is_repeated(raw)
        if repeated or len(value) > bytes_max or not _VISIBLE.fullmatch(value):
            raise BadHeader(name)
        return value

    def last(self, name: str) -> bytes | None:
        """The same where `one` has looked at it before, or nothing hangs on it."""
        return self._last.get(name.encode())

    def _is_repeated(self, name: bytes) -> bool:
        return sum(header == name for header, _ in self.headers) > 1

    def shown(self, names: tuple[str, ...]) -> dict[str, str]:
        """The headers of these names that are there, for the event; several of a name are one list."""
        found: dict[str, str] = {}
        for name, raw in _encoded(names):
            value = self._last.get(raw)
            if value is None:
                continue
            if len(self._last) < len(self.headers) and self._is_repeated(raw):
                value = b", ".join([value for header, value in self.headers if header == raw])
            text = value.decode("latin-1")
            if "\x00" not in text:
                found[name] = text
        return found

    @property
    def is_form(self) -> bool:
        media_type = self._last.get(b"content-type", b"")
        if media_type == JSON:  # as nearly always
            return False
        return media_type.partition(b";")[0].strip().lower() == FORM

    @property
    def target(self) -> bytes:
        return self.path + b"?" + self.query if self.query else self.path


@lru_cache(_NAMES_MAX)
def _encoded(names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, name.encode()) for name in names)


def form_pairs(body: bytes) -> list[tuple[str, str]] | None:
    """The parameters of a form in their order; None where they can't be read: a `%` without its digits, or
    not UTF-8."""
    if not _ESCAPED.fullmatch(body):
        return None
    pairs = []
    for part in body.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    try:
        return [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError:
        return None


def form_object(pairs: list[tuple[str, str]]) -> dict[str, object]:
    """The object of a form's parameters; one that is there several times is a list. In linear time: a form
    of 1 MiB may have one name 260,000 times."""
    found: dict[str, object] = {}
    for name, value in pairs:
        earlier = found.get(name)
        if earlier is None:
            found[name] = value
        elif isinstance(earlier, list):
            earlier.append(value)
        else:
            found[name] = [earlier, value]
    return found


def query_values(query: bytes) -> dict[str, str]:
    """The query parameters that are there exactly once; {} where they can't be read, or are too long."""
    pairs = form_pairs(query) if len(query) <= QUERY_BYTES_MAX else None
    count = Counter([name for name, _ in pairs or []])
    return {name: value for name, value in pairs or [] if count[name] == 1}


def query_value(query: bytes, name: str) -> str | None:
    """The value of one of them."""
    return query_values(query).get(name)


def url_variants(url: bytes) -> Iterator[bytes]:
    """As it is, with the port left out or the scheme's own put in, and with an apostrophe in the query
    escaped: Twilio signs any of these."""
    text = url.decode("latin-1")
    split = urlsplit(text)
    host = split.netloc.rpartition("@")[2]
    user = split.netloc.removesuffix(host)
    bare, colon, _ = host.partition(":") if not host.startswith("[") else (host, "", "")
    port = {"http": 80, "https": 443}.get(split.scheme, 0)
    other = split._replace(netloc=user + (bare if colon else f"{bare}:{port}")).geturl()
    for each in (text, other):
        path, mark, query = each.partition("?")
        yield each.encode("latin-1")
        if "'" in query:
            yield (path + mark + query.replace("'", "%27")).encode("latin-1")


def lookup(value: object, fields: tuple[str, ...]) -> object:
    """What stands at a path, None where nothing does. A field of digits is also an index."""
    for name in fields:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 9:
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


def as_text(value: object) -> str | None:
    """A string or whole number as an id; None for anything else."""
    if isinstance(value, str) and value:
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def raw_object(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, each as it was sent; {} if `body` is anything else."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return {}
