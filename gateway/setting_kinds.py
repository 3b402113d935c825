"""The kinds of settings: what the text of one may be, in words, and the value that it means.

Must not know which settings there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a setting accepts, in words, and how its text is read (ValueError: not that)."""

    accepts: str
    read: Callable[[str], Any]


def integer(low: int, high: int) -> Kind:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
            raise ValueError
        return int(text)

    return Kind(f"an integer from {low} to {high}", read)


def seconds(low: float, high: float) -> Kind:
    def read(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not low <= float(text) <= high:
            raise ValueError
        return float(text)

    return Kind(f"seconds from {low:.10g} to {high:.10g}", read)


def one_of(**words: Any) -> Kind:
    def read(text: str) -> Any:
        if text.lower() not in words:
            raise ValueError
        return words[text.lower()]

    return Kind("one of " + ", ".join(words), read)


def word(what: str) -> Kind:
    def read(text: str) -> str:
        if not re.fullmatch(r"[!-~]{1,255}", text):
            raise ValueError
        return text

    return Kind(f"{what} (printable ASCII, no spaces)", read)


def url(schemes: Iterable[str], read: Callable[[str], str]) -> Kind:
    return Kind(" or ".join(f"{scheme}://…" for scheme in schemes) + ", its password percent-encoded", read)


SWITCH = one_of(
    **{
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(","))


_ORIGIN = re.compile(r"https?://(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[1-9][0-9]{0,4})?")


def _origins(text: str) -> frozenset[str]:
    origins = frozenset(part.strip() for part in text.split(","))
    if origins != {"*"} and not all(_ORIGIN.fullmatch(each) for each in origins):
        raise ValueError
    return origins


ORIGINS = Kind("origins such as https://shop.example, separated by commas, or *", _origins)
NETWORKS = Kind("addresses or networks such as 10.0.0.0/8, separated by commas", _networks)
LEVEL = one_of(debug="debug", info="info", warning="warning", error="error")
