"""The query of a request: its known parameters as text, then each as the value it stands for.

Owns: how parameters are spelled. Must not know: which routes have which.

One that a route does not have is an `unknown_parameter`: a typo would read everything. One that can't be
read, or is given twice, is an `invalid_field`; `path` is its name. `+` stands for itself, as in RFC 3986 (the
blank of HTML forms would turn the offset of a time into nonsense).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gateway.errors import Refusal
from spec.errors import nearest, shown
from spec.identifiers import NAME_GRAMMAR, decode_text

UNIX_SECONDS_MIN: Final = -62_135_596_800
"""The first second of the year 1."""

UNIX_SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999, where RFC 3339 ends. Greater numbers are milliseconds by mistake."""


def undeclared(query: bytes, names: Collection[str]) -> Refusal | None:
    """The refusal of the first parameter of a raw query (without its `?`) that is not among `names`."""
    for pair in filter(None, query.split(b"&")):
        raw_name = pair.partition(b"=")[0]
        name = decode_text(raw_name) if raw_name else ""
        if not raw_name or name in names or _family(name) in names:
            continue
        given = raw_name.decode("latin-1") if name is None else name
        known = f"It has {', '.join(f'`{each}`' for each in names)}." if names else "It has none."
        why = f"This path has no query parameter {shown(given)}{nearest(given, names)}. {known}"
        return Refusal("unknown_parameter", why, given)
    return None


def _family(name: str | None) -> str | None:
    """`filter[field]` of every `filter[…]`, whatever field it names."""
    return None if name is None or "[" not in name else f"{name.partition('[')[0]}[field]"


def parse(query: bytes, known: Collection[str]) -> dict[str, str] | Refusal:
    """The parameters of a raw query (without its `?`) that are among `known`, percent-decoded once."""
    found: dict[str, str] = {}
    for pair in filter(None, query.split(b"&")):
        raw_name, _, raw_value = pair.partition(b"=")
        name = decode_text(raw_name) if raw_name else None
        if name is None or name not in known:
            continue
        if name in found:
            return _refusal(name, "is given twice; send it once")
        value = decode_text(raw_value)
        if value is None:
            return _refusal(name, "must be percent-encoded UTF-8 without control characters")
        found[name] = value
    return found


_NAME = re.compile(f"_?{NAME_GRAMMAR}")  # the gateway's own begin with an underscore
_DIGITS = re.compile("[0-9]{1,19}")


def integer(found: Mapping[str, str], name: str, *, least: int, most: int) -> int | Refusal | None:
    """A whole number from `least` (0 or more) to `most`, in ASCII digits only; None if absent."""
    text = found.get(name)
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
        return _refusal(name, f"must be a whole number from {least} to {most}, in plain digits")
    return int(text)


def boolean(found: Mapping[str, str], name: str) -> bool | Refusal | None:
    """`true` or `false`; None if absent."""
    value = choice(found, name, ("true", "false"))
    return value == "true" if isinstance(value, str) else value


def choice(found: Mapping[str, str], name: str, choices: Sequence[str]) -> str | Refusal | None:
    """One of `choices`, spelled exactly so; None if absent."""
    text = found.get(name)
    if text is None or text in choices:
        return text
    return _refusal(name, f"must be {' or '.join(choices)}")


def names(found: Mapping[str, str], name: str) -> frozenset[str] | Refusal | None:
    """Names with commas between them, at least one; None if absent."""
    text = found.get(name)
    if text is None:
        return None
    listed = text.split(",")
    if not all(_NAME.fullmatch(each) for each in listed):
        return _refusal(name, "must be names like `order`, with commas between them")
    return frozenset(listed)


_UNIX = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]+))?")
_RFC_3339 = re.compile(
    "([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]):([0-9]{2})"
    r"(?:\.([0-9]+))?"
    "(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_DAY_S = 86_400


def instant(found: Mapping[str, str], name: str) -> int | Refusal | None:
    """A point in time, as milliseconds since 1970 (UTC), finer digits cut off; None if absent.

    Spelled as Unix seconds (`1705312900.123`) or by RFC 3339 with an offset (`2024-01-15T10:01:40+01:00`).
    """
    text = found.get(name)
    if text is None:
        return None
    milliseconds = _unix(text)
    if milliseconds is None:
        microseconds = rfc_3339(text)
        milliseconds = None if microseconds is None else microseconds // 1000
    if milliseconds is None:
        return _refusal(
            name, "must be Unix seconds, or a time of RFC 3339 with an offset, like 2024-01-15T10:01:40Z"
        )
    return milliseconds


def _unix(text: str) -> int | None:
    match = _UNIX.fullmatch(text)
    if match is None:
        return None
    sign, seconds, fraction = match.groups()
    if not UNIX_SECONDS_MIN <= int(sign + seconds) <= UNIX_SECONDS_MAX:
        return None
    milliseconds = int(seconds) * 1000 + _behind_the_point(fraction, 3)
    return -milliseconds if sign else milliseconds


def rfc_3339(text: str) -> int | None:
    """Microseconds since 1970 of a time with an offset, finer digits cut off; None for any other text."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        return None
    date, hour_minute, second, fraction, sign, offset_h, offset_m = match.groups()
    leap = second == "60"  # RFC 3339 writes a leap second so; clocks count it as the next one
    try:
        local = datetime.fromisoformat(f"{date}T{hour_minute}:{'59' if leap else second}")
    except ValueError:  # the 31st of February
        return None
    seconds = (local - _EPOCH) // _SECOND + leap
    if sign is not None:
        offset_s = int(offset_h) * 3600 + int(offset_m) * 60
        seconds -= offset_s if sign == "+" else -offset_s
    if leap and seconds % _DAY_S:  # they come at midnight UTC only
        return None
    return seconds * 1_000_000 + _behind_the_point(fraction, 6)


def _behind_the_point(fraction: str | None, digits: int) -> int:
    return int((fraction or "").ljust(digits, "0")[:digits])


def _refusal(name: str, fault: str) -> Refusal:
    return Refusal("invalid_field", f"The query parameter `{name}` {fault}.", name)
